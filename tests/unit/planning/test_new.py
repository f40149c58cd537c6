"""New recipes: which recipe of the catalogue they start from, the topology elsewhere, and that they check clean."""

import dataclasses
import json
import re
import resource
from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.document import stated_values
from bridgepack.config.load import CatalogueEntry, catalogue
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.starting import MethodKind, Wish, recipes_of_model, write_new
from bridgepack.config.write import YAML_HEADER
from bridgepack.errors import ConfigError, DataError
from bridgepack.planning.detecting import detect_data
from bridgepack.planning.limits import limits_of
from bridgepack.planning.plan import new_recipe
from bridgepack.rules.judging.rule import Severity
from tests.support.hub_configs import model_configs
from tests.support.messages import mentions
from tests.support.small_builds import write_json_lines

CHAT = [{"role": "user", "content": "2 + 2?"}, {"role": "assistant", "content": "4"}]
WISH = Wish(name="mine", model="Qwen/Qwen3-8B", num_gpus=16, seq_length=32768)
#: Not in the catalogue.
OTHER_MODELS = ("Qwen/Qwen2.5-14B", "meta-llama/Meta-Llama-3-70B")


@pytest.fixture(scope="module")
def entries() -> tuple[CatalogueEntry, ...]:
    """Return the catalogue."""
    return catalogue()


def _recipe(text: str) -> SFTRecipe:
    return SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(text))


def _new(entries: tuple[CatalogueEntry, ...], **changes: Any) -> SFTRecipe:
    return _recipe(new_recipe(dataclasses.replace(WISH, **changes), entries))


def _recipe_or_none(wish: Wish, entries: tuple[CatalogueEntry, ...]) -> SFTRecipe | None:
    """Return a new recipe; None where the number of GPUs or the length is not one that the model can have."""
    try:
        return _recipe(new_recipe(wish, entries))
    except ConfigError as error:
        if re.match(r"--(num-gpus|seq-length) is \d+; ", str(error)):
            return None
        raise


def _error(entries: tuple[CatalogueEntry, ...], **changes: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        _new(entries, **changes)
    return str(raised.value)


OLMOE = "olmoe_7b_sft_8gpu_h100_bf16_config"


def _without(entries: tuple[CatalogueEntry, ...], family: str) -> tuple[CatalogueEntry, ...]:
    """Return the catalogue without a family, whether or not it has one today."""
    return tuple(entry for entry in entries if family not in entry.name)


@pytest.mark.parametrize(
    ("changes", "kind", "tokenizer", "name"),
    [
        ({}, "full", "Qwen/Qwen3-8B", "qwen3_8b_sft_8gpu_h100_bf16_32k_config"),
        ({"model": "Qwen/Qwen3-8B-Base"}, "full", "Qwen/Qwen3-8B-Base", "qwen3_8b_"),
        ({"model": "org/my-qwen3-8b-tuned", "method": "dora"}, "dora", "org/my-qwen3-8b-tuned", "qwen3_8b_"),
        ({"model": "qwen3_8b_peft_1gpu_h100_bf16_config"}, "lora", "Qwen/Qwen3-8B", "qwen3_8b_"),
        ({"model": "bridge:qwen3_8b_sft_4gpu_h100_bf16_config", "method": "lora"}, "lora", "Qwen/Qwen3-8B", "qwen3_8b"),
        ({"model": "qwen3_8b_sft_4gpu_h100_bf16_recipe", "method": "lora"}, "lora", "Qwen/Qwen3-8B", "qwen3_8b_"),
    ],
)
def test_names_of_a_model(
    entries: tuple[CatalogueEntry, ...], changes: dict[str, Any], kind: str, tokenizer: str, name: str
) -> None:
    recipe = _new(entries, **changes)

    assert recipe.model is not None
    assert (recipe.name, recipe.method.kind, recipe.tokenizer.name_or_path) == ("mine", kind, tokenizer)
    assert recipe.model.name.startswith(name)


def test_a_model_without_a_family_takes_the_host_s_recipe_and_a_tokenizer(entries: tuple[CatalogueEntry, ...]) -> None:
    others = _without(entries, "olmoe")

    recipe = _new(others, model=OLMOE, tokenizer="allenai/OLMoE", seq_length=4096)

    assert recipe.model is not None
    assert (recipe.method.kind, recipe.tokenizer.name_or_path, recipe.model.name) == ("full", "allenai/OLMoE", OLMOE)
    assert _error(others, model=OLMOE).startswith(f"--model is {OLMOE!r}, which is")


def test_longest_name_of_a_model_counts(entries: tuple[CatalogueEntry, ...]) -> None:
    found = recipes_of_model(entries, "Qwen/Qwen3-30B-A3B-Instruct-2507")

    assert {entry.recipe.tokenizer.name_or_path for entry in found if entry.recipe} == {"Qwen/Qwen3-30B-A3B"}
    assert recipes_of_model(entries, "Qwen/Qwen2.5-VL-7B-Instruct") == []


NUMS_OF_GPUS = (1, 2, 8, 16, 64, 256)


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("num_gpus", NUMS_OF_GPUS)
def test_new_recipes_check_clean(entries: tuple[CatalogueEntry, ...], num_gpus: int, method: MethodKind) -> None:
    known = {entry.recipe.tokenizer.name_or_path for entry in entries if entry.recipe and entry.recipe.model}
    num_checked = 0
    parity = NUMS_OF_GPUS.index(num_gpus) + (method == "lora")
    for number, model in enumerate(sorted(known | set(OTHER_MODELS))):
        # Half of the lengths: each meets every model, number of GPUs and method, and these each other.
        for seq_length in (4096, 8192, 32768, 131072)[(parity + number) % 2 :: 2]:
            wish = Wish(name="mine", model=model, num_gpus=num_gpus, seq_length=seq_length, method=method)
            recipe = _recipe_or_none(wish, entries)
            if recipe is None:
                continue
            topology = recipe.parallelism
            report = check_target(recipe, CheckOptions(looks_at_files=False))
            assert [one.code for one in report.findings if one.severity is not Severity.ADVICE] == [], wish
            assert seq_length % recipe.resolve().pad_seq_to_mult.value == 0
            most = 65536 * topology.context_parallel_size * topology.tensor_model_parallel_size
            assert seq_length <= most or limits_of(recipe).has_one_context
            assert topology.num_gpus == num_gpus
            num_checked += 1

    assert num_checked > 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_gpus": 7}, "--num-gpus is 7; allowed for Qwen/Qwen3-8B, method full, at 32768 tokens: multiples of 8 "),
        ({"seq_length": 65536}, "--seq-length is 65536; allowed for Qwen/Qwen3-8B: at most 32768, the longest"),
        (
            {"seq_length": 5001},
            "--seq-length is 5001; allowed: multiples of 4",
        ),
        ({"model": "zai-org/GLM-4.5-Air", "num_gpus": 8}, "--num-gpus is 8; 106."),
        ({"model": "org/x-8b"}, "--model is 'org/x-8b'"),
        ({"model": "Qwen3-9B"}, "--model is 'Qwen3-9B'"),
        ({"model": "qwen3_8b_sft_4gpu_h100_bf16_recip"}, "--model is 'qwen3_8b_sft_4gpu_h100_bf16_recip'; allowed: an"),
        ({"name": "a b"}, "name is 'a b'; allowed: text matching"),
    ],
    ids=str,
)
def test_what_cannot_be(entries: tuple[CatalogueEntry, ...], changes: dict[str, Any], message: str) -> None:
    assert _error(entries, **changes).startswith(message)


def test_text_has_a_header_and_comments(entries: tuple[CatalogueEntry, ...]) -> None:
    lines = new_recipe(WISH, entries).splitlines()

    assert lines[0] == YAML_HEADER
    first = "# Full training of qwen3_8b_sft_8gpu_h100_bf16_32k_config on 16 GPUs in packs of 32,768"
    assert lines[1].startswith(first)
    sizes = {"  context_parallel_size: 2 # 16,384 tokens per rank", "  tensor_model_parallel_size: 4"}
    assert sizes | {"  num_gpus: 16 # data-parallel copies: 2, each on 8", "  kind: full # or lora, or dora"} <= {
        *lines
    }
    assert not any(line.rstrip().endswith("null") for line in lines)


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = write_new(tmp_path / "new" / "mine.yaml", "name: mine\n")

    assert path.read_text() == "name: mine\n"
    with pytest.raises(ConfigError, match=r"mine\.yaml.* already exists; "):
        write_new(path, "name: other\n")
    assert path.read_text() == "name: mine\n"
    with pytest.raises(ConfigError, match=r"mine\.toml.* ends in \.yaml or \.yml"):
        write_new(tmp_path / "mine.toml", "")
    with pytest.raises(ConfigError, match="it cannot be written"):
        write_new(path / "below.yaml", "")


@pytest.mark.on_disk
def test_a_full_disk_leaves_no_empty_recipe(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(ConfigError, match="written: File too large"):
            write_new(tmp_path / "mine.yaml", "name: mine\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("method", ["full", "lora"])
@pytest.mark.parametrize("num_gpus", [8, 64])
@pytest.mark.parametrize("name", ["Qwen/Qwen3-8B", "Qwen/Qwen3-30B-A3B", "moonshotai/Moonlight-16B-A3B"])
def test_a_folder_with_a_config_gets_the_topology_of_its_plan(
    tmp_path: Path, entries: tuple[CatalogueEntry, ...], name: str, num_gpus: int, method: MethodKind
) -> None:
    folder = tmp_path / "mymodel"
    folder.mkdir()
    config = model_configs()[name]
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text("{}")

    recipe = _new(entries, model=str(folder), num_gpus=num_gpus, seq_length=4096, method=method)

    assert recipe.model is not None
    assert recipe.model.name == recipe.tokenizer.name_or_path == str(folder)
    assert config["num_key_value_heads"] % recipe.parallelism.tensor_model_parallel_size == 0
    assert config["num_hidden_layers"] % recipe.parallelism.pipeline_model_parallel_size == 0
    report = check_target(recipe, CheckOptions(looks_at_files=False))
    assert [one.code for one in report.findings if one.severity is Severity.ERROR] == []


def test_a_model_of_the_hub_that_is_known_gets_the_topology_of_its_plan(entries: tuple[CatalogueEntry, ...]) -> None:
    recipe = _new(entries, model="zai-org/GLM-4.5-Air", num_gpus=64, seq_length=8192)

    assert recipe.parallelism.expert_model_parallel_size > 1
    assert not [one for one in check_target(recipe, CheckOptions()).findings if one.severity is Severity.ERROR]


@pytest.mark.parametrize("text", ["", "[]", '{"hidden_size": 0}', '{"num_hidden_layers": "x"}'])
def test_a_broken_config_is_refused(tmp_path: Path, entries: tuple[CatalogueEntry, ...], text: str) -> None:
    (tmp_path / "config.json").write_text(text)
    (tmp_path / "tokenizer.json").write_text("{}")

    assert "config.json" in _error(entries, model=str(tmp_path))


def _with_data(entries: tuple[CatalogueEntry, ...], data: Path, layout: str | None = None) -> tuple[SFTRecipe, str]:
    text = new_recipe(dataclasses.replace(WISH, data=str(data), detection=detect_data(str(data), layout)), entries)
    return _recipe(text), text


def _pair(question: str, answer: str) -> dict[str, Any]:
    turns = [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return {"kind": "chat", "messages": turns}


@pytest.mark.parametrize(
    ("row", "layout"),
    [
        ({"question": "2 + 2?", "answer": "4"}, _pair("{question}", "{answer}")),
        ({"messages": CHAT}, {"kind": "chat", "messages": [{"from_column": "messages"}]}),
        ({"dialog": [{"from": "human", "value": "hi"}, {"from": "gpt", "value": "Hi."}]}, None),
        (
            {"input_ids": [1, 2], "labels": [-100, 2]},
            {"kind": "tokenized", "input_ids": "input_ids", "labels": "labels"},
        ),
    ],
)
def test_the_layout_of_the_data_is_written(
    entries: tuple[CatalogueEntry, ...], tmp_path: Path, row: dict[str, Any], layout: dict[str, Any] | None
) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(f"{{\n{json.dumps(row)}\n")

    recipe, text = _with_data(entries, data)

    assert recipe.data.layout is not None
    assert stated_values(recipe.data.layout) == (layout or {"kind": "chat", "messages": [{"from_column": "dialog"}]})
    assert recipe.preprocessing.kind == recipe.data.layout.kind
    assert "  layout: # " in text
    (comment,) = (
        line.partition(" # or ")[2] for line in text.splitlines() if line.startswith("  kind: ") and "chat" in line
    )
    others = {"chat", "prompt_completion", "text", "tokenized"} - {recipe.preprocessing.kind}
    assert sorted(comment.split(", or ")) == sorted(others)
    assert all(len(line.partition(" # ")[0]) <= 120 for line in text.splitlines())
    assert _with_data(entries, data, "none")[0].data.layout is None


def test_flags_of_the_loss_are_obeyed(entries: tuple[CatalogueEntry, ...], tmp_path: Path) -> None:
    data = tmp_path / "data.jsonl"
    data.write_text(json.dumps({"messages": [CHAT[0], {**CHAT[1], "weight": 0}]}))

    preprocessing = _with_data(entries, data)[0].preprocessing

    assert isinstance(preprocessing, ChatPreprocessing)
    assert preprocessing.message_weights == "mask"


def test_all_files_and_rows_of_a_folder_count(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(json.dumps({"question": "2 + 2?", "answer": "4"}) + "\n")
    (tmp_path / "b.jsonl").write_text(json.dumps({"question": "2 + 2?", "answer": "4", "thinking": "Two."}) + "\n")
    found = detect_data(str(tmp_path))

    assert found is not None
    assert (found.entry.name, found.num_rows) == ("question_thinking_answer", 2)
    (tmp_path / "c.jsonl").write_text(json.dumps({"messages": CHAT}) + "\n")
    shares = r"67 % like question_\w+ \(.*/a\.jsonl row 1\), 33 % like messages \(.*/c\.jsonl row 1\)"
    with pytest.raises(ConfigError, match=shares):
        detect_data(str(tmp_path))


def test_rows_at_the_end_of_a_file_count(tmp_path: Path) -> None:
    rows = [{"question": f"{number} + 2?", "answer": "4"} for number in range(20_000)]
    late = [{"question": f"{number} + 2?", "answer": "4", "context": "A sum of two."} for number in range(5_000)]
    write_json_lines(tmp_path / "a.jsonl", [*rows, *late])
    found = detect_data(str(tmp_path / "a.jsonl"))

    assert found is not None
    assert (found.entry.name, found.num_rows) == ("context_question", 1000)


@pytest.mark.parametrize("num_rows", [150, 990])
def test_every_row_of_small_data_counts(tmp_path: Path, num_rows: int) -> None:
    rows = [{"question": "2 + 2?", "answer": "4"} for _ in range(num_rows)]
    write_json_lines(tmp_path / "a.jsonl", [*rows, {"question": "2 + 2?", "answer": "4", "note": "It is a sum."}])
    found = detect_data(str(tmp_path / "a.jsonl"))

    assert found is not None
    assert found.num_rows == num_rows + 1
    assert [(one.name, one.num_rows) for one in found.unread] == [("note", 1)]


@pytest.mark.parametrize("content", ["", "{}\n", '{"question": null}\n', None])
def test_data_without_rows_has_no_layout_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("data.jsonl").write_text(content)

    assert detect_data("data.jsonl") is None
    with pytest.raises(ConfigError, match=r"--layout is alpaca, .*--data is 'data\.jsonl', .*no row"):
        detect_data("data.jsonl", "alpaca")
    assert detect_data("s3://bucket/rows.jsonl") is None


@pytest.mark.parametrize("is_saved", [False, True])
def test_held_out_rows_of_the_data_become_validation(
    entries: tuple[CatalogueEntry, ...], tmp_path: Path, is_saved: bool
) -> None:
    from datasets import Dataset, DatasetDict

    rows = [{"question": "Q", "answer": "A"}]
    data = tmp_path / "data"
    if is_saved:
        dataset = Dataset.from_list(rows)
        DatasetDict(train=dataset, test=dataset, validation=dataset).save_to_disk(data)
        train, validation = data / "train", data / "validation"
    else:
        train, validation = data / "train.csv", data / "validation.jsonl"
        write_json_lines(validation, rows)
        write_json_lines(data / "test.jsonl", rows)
        train.write_text("question,answer\nQ,A\n")

    text = new_recipe(dataclasses.replace(WISH, data=str(data)), entries)

    recipe = _recipe(text)
    assert (recipe.data.train, recipe.data.validation) == (str(train), str(validation))
    assert recipe.data.validation_fraction == 0
    assert mentions(text, "; data.validation is ", " validation; not used: test.\n")
    assert mentions(text, "# held out by the ", "or validation_fraction")


def test_training_files_without_a_common_name_are_listed(entries: tuple[CatalogueEntry, ...], tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.csv", "test.jsonl"):
        write_json_lines(tmp_path / name, [])

    recipe = _new(entries, data=str(tmp_path))

    assert recipe.data.train == (str(tmp_path / "a.jsonl"), str(tmp_path / "b.csv"))
    assert recipe.data.validation == str(tmp_path / "test.jsonl")


def test_saved_data_with_two_training_splits_is_refused(entries: tuple[CatalogueEntry, ...], tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["train_sft", "train_gen"]}')

    with pytest.raises(DataError, match="DatasetDict with splits train_sft, train_gen; "):
        _new(entries, data=str(tmp_path))
