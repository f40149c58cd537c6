"""Every recipe of `recipes/` against the real megatron-bridge, at its own number of GPUs."""

import os
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from bridgepack.bridge.live import value_in
from bridgepack.bridge.targets import Target
from bridgepack.bridge.validating.ask import question_of
from bridgepack.bridge.validating.verdict import verdict_of
from bridgepack.bridge.writing.write import to_bridge
from bridgepack.checking import real
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.examples.__main__ import write_examples
from bridgepack.records import HostVerdict
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity
from tests.support.catalogue import catalogue, function_of
from tests.support.hub_configs import model_configs
from tests.support.installed_host import host_release
from tests.support.recipe_is_run import unlike_its_run
from tests.support.small_builds import Command
from tests.support.upstream_recipes import validate

PROJECT = Path(__file__).parents[2]

TARGETS = catalogue()
FAMILIES = {
    *("cuda_graphs", "deepseek_v3", "gemma3", "gpt_oss", "llama3", "long_context", "moonlight", "nemotron_h"),
    *("qwen2", "qwen3", "qwen3_moe", "qwen_vl"),
}
#: One recipe of each family, its last; all of them before a release, as `scripts/test --exhaustive` sets the variable.
ASKED = (
    TARGETS
    if "BRIDGEPACK_NUM_CONFIGS" in os.environ
    else [*{target.rpartition(":")[0]: target for target in TARGETS}.values()]
)


@pytest.fixture
def at_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder that is the current one: recipes name paths relative to it."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_catalogue_is_there() -> None:
    assert {Path(target.rpartition(":")[0]).stem for target in TARGETS} >= FAMILIES
    assert len(TARGETS) >= 140


@pytest.mark.bridge
def test_strict_checks_that_ask_the_host_are_clean(host: None, at_work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As `check --strict --no-files --real-validate`, in one process; before `h100_host`, which would stay."""

    reports = {function_of(target): _asked(load_recipe(target), monkeypatch) for target in ASKED}

    assert {name: _faults(report) for name, report in reports.items() if report.fails(strict=True)} == {}
    assert {report.host and report.host.state for report in reports.values()} == {"accepted"}
    assert len(reports) >= len(FAMILIES)


@pytest.mark.bridge
@pytest.mark.parametrize("page", ["README.md", "docs/index.md", "docs/tutorials/128k.md", "docs/tutorials/slurm.md"])
def test_recipes_that_pages_write_are_clean_with_their_tokenizers(
    host: None, at_work: Path, monkeypatch: pytest.MonkeyPatch, command: Command, page: str
) -> None:
    """As the catalogue's; the quickstart's recipe has no model, so that the host is not asked about it."""
    write_examples(Path("quickstart"), limit=60, vocab_size=512)
    text = (PROJECT / page).read_text().replace("\\\n", "")
    (words,) = re.findall(r"(?m)^bridgepack (new .*)$", text)
    words = re.sub(r"--data \S+", "--data quickstart/training.jsonl", words)  # a page makes its own
    assert command(*shlex.split(words)).code == 0
    (written,) = at_work.glob("*.yaml")

    report = _asked(load_recipe(written), monkeypatch)
    quickstart = check_target(load_recipe(PROJECT / "recipes" / "quickstart.yaml"), CheckOptions())

    assert (_faults(report), report.host and report.host.state) == ([], "accepted")
    assert _faults(quickstart) == []


def _asked(recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch) -> CheckReport:
    """Return the report of the strictest check, which asks the host in this process."""

    def ask(target: Target, *, world_size: int | None, artifact: Path | None, **_: Any) -> HostVerdict:
        return verdict_of(question_of(target, world_size, artifact))

    monkeypatch.setattr(real, "host_verdict", ask)
    return check_target(recipe, CheckOptions(looks_at_files=False, real_validate=True))


@pytest.mark.bridge
@pytest.mark.parametrize("target", TARGETS, ids=function_of)
def test_recipe_is_what_the_host_accepts(target: str, h100_host: None, at_work: Path) -> None:
    recipe = load_recipe(target)
    recipe.resolve()
    num_gpus = recipe.parallelism.num_gpus
    assert num_gpus is not None
    assert _faults(check_target(recipe, CheckOptions(looks_at_files=False))) == []

    config = to_bridge(recipe)
    assert unlike_its_run(recipe, config) == {}
    _put_files(at_work, recipe, type(config.model).__name__)

    assert validate(config, num_gpus) is None
    assert _faults(check_target(config, CheckOptions(world_size=num_gpus))) == []
    _check_stages(config.model)
    assert recipe.packing.packed_sequence_size <= _num_positions(config)


def _faults(report: CheckReport) -> list[tuple[str, str, str]]:
    return [(one.code, one.where, one.found) for one in report.findings if one.severity is not Severity.ADVICE]


def _put_files(folder: Path, recipe: SFTRecipe, model_class: str) -> None:
    """Make what has to exist when a run starts: weights, and packs where they are built before.

    Weights are as Hugging Face has them where the host cannot load its own checkpoints of such a model (BP864).
    """
    assert recipe.checkpoint.pretrained is not None
    weights = folder / recipe.checkpoint.pretrained
    weights.mkdir(parents=True)
    loads_own = host_release().loads_models_from_parts or not model_class.endswith("ModelConfig")
    for name in ("latest_checkpointed_iteration.txt",) if loads_own else ("config.json", "model.safetensors"):
        (weights / name).write_text("{}" if name == "config.json" else "")
    if recipe.packing.mode == "offline":
        packs = folder / "artifacts" / recipe.name
        for split in ("training", "validation"):
            (packs / split).mkdir(parents=True)
            (packs / split / "shard-00000-of-00001.idx.parquet").touch()
        (packs / "bridge_metadata.json").write_text("[]")


def _check_stages(model: Any) -> None:
    """Assert that layers spread evenly over pipeline stages, which the host looks at only when it builds the model.

    Source: megatron-core 0.19.2, transformer/transformer_block.py, get_num_layers_to_build.
    """
    num_stages = model.pipeline_model_parallel_size
    if num_stages == 1 or model.pipeline_model_parallel_layout is not None:
        return
    num_layers = model.num_layers
    num_layers += model.account_for_embedding_in_pipeline_split + model.account_for_loss_in_pipeline_split
    for uneven in (model.num_layers_in_first_pipeline_stage, model.num_layers_in_last_pipeline_stage):
        if uneven is not None:
            num_layers, num_stages = num_layers - uneven, num_stages - 1
    assert num_layers % num_stages == 0


def _num_positions(config: Any) -> int:
    """Return the positions that the model of a ConfigContainer was made for."""
    model = config.model
    if model.position_embedding_type == "yarn":
        return round(model.yarn_original_max_position_embeddings * model.yarn_rotary_scaling_factor)
    published = model_configs()[value_in(config, "model.hf_model_id")]
    positions: int = published.get("text_config", published)["max_position_embeddings"]
    return positions
