"""What a check is pointed at is told apart; a recipe and a saved config become settings in the host's paths."""

import dataclasses
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from ruamel.yaml import YAML

from bridgepack.bridge.artifact_paths import paths_of_artifact
from bridgepack.bridge.locations import line_of
from bridgepack.bridge.targets import load_target
from bridgepack.errors import ConfigError
from tests.support.messages import mentions

RECIPE = """\
name: mine
data:
  train: rows.jsonl
tokenizer:
  name_or_path: tokenizer
packing:
  packed_sequence_size: 4096
parallelism:
  context_parallel_size: 2
  num_gpus: 16
bridge_overrides:
  model:
    cp_comm_type: a2a
  dataset:
    dataset_kwargs:
      pad_to_max_length: false
ignore:
  BP014: an old run
"""
SAVED = """\
_target_: megatron.bridge.training.config.ConfigContainer
model:
  _target_: megatron.bridge.models.gpt_provider.GPTModelProvider
  context_parallel_size: 1
train:
  _target_: megatron.bridge.training.config.TrainingConfig
  micro_batch_size: 1
dataset:
  _target_: megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig
  offline_packing_specs:
    _target_: megatron.bridge.data.packing.config.PackedSequenceSpecs
    packed_metadata_path:
      _target_: pathlib.PosixPath
      _call_: true
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(RECIPE)
    (tmp_path / "saved.yaml").write_text(SAVED)
    return tmp_path


@dataclasses.dataclass
class Part:
    """One section of a container."""

    size: int = 1


@dataclasses.dataclass
class ConfigContainer:
    """Looks like the host's."""

    model: Part = dataclasses.field(default_factory=Part)
    train: Part = dataclasses.field(default_factory=Part)
    dataset: Part = dataclasses.field(default_factory=Part)


def test_recipe(folder: Path) -> None:
    target = load_target("mine.yaml")
    assert (target.kind, target.file, load_target(target.recipe).kind) == ("recipe", Path("mine.yaml"), "recipe")
    config: Any = target.config
    assert (config.is_complete, config.world_size, config.ignored) == (True, 16, {"BP014": "an old run"})
    assert [config.is_whole_at(path) for path in ("model.num_layers", "optimizer.lr")] == [False, True]
    assert (config.values["model"]["cp_comm_type"], config.values["model"]["seq_length"]) == ("a2a", 4096)
    assert config.values["dataset"]["offline_packing_specs"]["pad_seq_to_mult"] == 4
    assert config.values["dataset"]["dataset_kwargs"] == {"pad_to_max_length": False}
    assert config.user_path("train.micro_batch_size") == "batch.micro_batch_size"
    for path in ("model.cp_comm_type", "model.fp8"):
        assert config.user_path(path) == f"bridge_overrides.{path}"
    there: Any = load_target("mine.yaml", {"parallelism.context_parallel_size": 4}, artifact=Path("packs")).config
    specs = there.values["dataset"]["offline_packing_specs"]
    assert (specs["pad_seq_to_mult"], specs["packed_train_data_path"]) == (8, "packs/training")
    assert specs["packed_metadata_path"] == Path("packs/bridge_metadata.json")


def test_saved_config(folder: Path) -> None:
    target: Any = load_target("saved.yaml", {"model.context_parallel_size": 8})
    assert (target.kind, target.config.is_complete) == ("saved", True)
    assert target.config.values["model"]["context_parallel_size"] == 8
    specs = target.config.values["dataset"]["offline_packing_specs"]
    assert specs["packed_metadata_path"] == PurePosixPath()  # what the host itself reads back


def test_python_function_in_a_file(folder: Path) -> None:
    (folder / "mine.py").write_text(
        "from tests.unit.bridge.test_targets import ConfigContainer\nmy_config = ConfigContainer\n"
    )
    target = load_target("mine.py:my_config")
    assert (target.kind, target.file, target.function) == ("container", Path("mine.py"), "my_config")


def test_artifact(folder: Path) -> None:
    targets = (str(folder), "packs/*.parquet", "training_4096.npy")
    assert {load_target(target).kind for target in targets} == {"artifact"}
    with pytest.raises(ConfigError, match="artifact has no settings"):
        load_target(str(folder), {"a": 1})


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("no.module:function", "there is no module"),
        ("json:dumps_config", "there is no 'dumps_config'"),
        ("json:__name__", "SFTRecipe or a ConfigContainer"),
        ("bridge:no_such_recipe_config", "no_such_recipe_config"),
    ],
)
def test_mistakes(folder: Path, target: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_target(target)


def test_lines(folder: Path) -> None:
    file = Path("mine.yaml")
    assert line_of(file, ["parallelism.context_parallel_size"]) == 9
    assert line_of(file, ["packing.pad_seq_to_mult"]) == 6
    assert line_of(file, ["nothing", "name"]) == 1
    Path("mine.toml").write_text('name = "a"\n\n[data]\ntrain = "x"\n[[ data.more ]]\n"a" . b = 1\n')
    fields = {"name": 1, "data.train": 4, "data.gone": 3, "data.more": 5, "data.more.a.b": 6, "gone": None}
    assert {field: line_of(Path("mine.toml"), [field]) for field in fields} == fields


@pytest.mark.parametrize(
    ("section", "value"), [("model", None), ("train", [1]), ("dataset", "text"), ("model", {}), ("ddp", [1, 2])]
)
def test_a_section_of_another_kind_is_refused(folder: Path, section: str, value: Any) -> None:
    allowed = "a section with named fields, or" if section == "ddp" else "an object of the host"
    values = YAML(typ="safe", pure=True).load(SAVED)
    with (folder / "cut.yaml").open("w") as file:
        YAML().dump({**values, section: value}, file)
    with pytest.raises(ConfigError, match=f"{section} of cut.yaml is .*; allowed: {allowed}"):
        load_target("cut.yaml")
    (folder / "saved.yaml").write_text(f"{SAVED}mixed_precision: bf16_mixed\npeft:\n")
    assert load_target("saved.yaml").kind == "saved"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("model", 3, "--set model is 3"),
        ("dataset.offline_packing_specs", [1], r"--set dataset.offline_packing_specs is \[1\]; allowed: named fields"),
        ("train.micro_batch_size.x", 1, "no field 'x' there. train.micro_batch_size is 1, which has no fields."),
        ("model.contxt_parallel_size", 1, "no field 'contxt_parallel_size' there. Did you mean context_parallel_size?"),
        ("modle.x", 1, "no field 'modle' there. Did you mean model?"),
    ],
)
def test_an_override_that_makes_no_sense(folder: Path, path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_target("saved.yaml", {path: value})
    assert load_target("saved.yaml", {"dataset.offline_packing_specs": None}).config is not None


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ("&all {model: *all}", "repeat more than 100,000 values, or themselves"),
        (f"{{model: {'{a: ' * 300}1{'}' * 300}}}", "lies more than 12 sections deep"),
    ],
)
def test_overrides_of_a_recipe_that_make_no_sense(folder: Path, overrides: str, message: str) -> None:
    text = RECIPE.partition("bridge_overrides:")[0]
    (folder / "mine.yaml").write_text(f"{text}bridge_overrides: {overrides}\n")
    with pytest.raises(ConfigError, match=message):
        load_target("mine.yaml")


@pytest.mark.parametrize(
    ("files", "artifact", "train", "validation"),
    [
        (["training_8.parquet", "validation_8.parquet"], ".", "training_8.parquet", "validation_8.parquet"),
        (["training_8.parquet"], "training_8.parquet", "training_8.parquet", None),
        (["a.parquet", "b.parquet"], ".", ".", None),
        (["a.parquet", "b.parquet"], "*.parquet", "*.parquet", None),
        (["training_0.parquet", "training_1.parquet", "validation_8.parquet"], ".", None, "validation_8.parquet"),
        (["training/a.parquet"], ".", "training", "validation"),
        (["training_8.npy"], ".", "training_8.npy", None),
    ],
)
def test_pack_paths(folder: Path, files: list[str], artifact: str, train: str | None, validation: str | None) -> None:
    packs = Path("packs")
    for name in files:
        (packs / name).parent.mkdir(parents=True, exist_ok=True)
        (packs / name).touch()
    paths = paths_of_artifact(packs / artifact, has_validation=True)
    assert paths.get("packed_train_data_path") == (train and str(packs / train))
    assert paths.get("packed_val_data_path") == (validation and str(packs / validation))
    assert paths_of_artifact(packs / artifact, has_validation=False)["packed_val_data_path"] is None


def test_lines_of_a_file_that_cannot_be_read_again(folder: Path) -> None:
    (folder / "deep.yaml").write_text(f"a: {'[' * 2000}{']' * 2000}\n")
    (folder / "other.yaml").write_text("a: [\n")
    for name in ("deep.yaml", "other.yaml", "gone.yaml"):
        assert line_of(Path(name), ["a"]) is None


def test_a_hint_is_of_recipes_alone_whatever_a_name_says() -> None:
    with pytest.raises(ConfigError) as refused:
        load_target("Did you mean qwen3_8b_sft")
    assert mentions(refused.value, "target is 'Did you mean qwen3_8b_sft'", "no such file")
    assert "Did you mean" not in str(refused.value).replace("'Did you mean qwen3_8b_sft'", "")
    with pytest.raises(ConfigError, match=r"Did you mean qwen3_8b_sft_8gpu_h100_bf16\w*"):
        load_target("qwen3_8b_sft_8gpu_h100_bf1")
