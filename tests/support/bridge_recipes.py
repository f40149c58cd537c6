"""Small recipes on bases of megatron-bridge, and quiet around the host's own functions."""

from typing import Any

from bridgepack.bridge.targets import quiet
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.rules.judging.rule import Severity
from tests.support.small_builds import small_recipe, with_changes

#: Keeps what the host prints, warns and logs from the output.
quiet_host = quiet
DENSE = "llama32_1b_sft_1gpu_h100_bf16_config"


def recipe_of(model: str, /, **changes: Any) -> SFTRecipe:
    """Return a small recipe; a double underscore in a change's name stands for a dot."""
    sections = {"packing": {"packed_sequence_size": 2048}, "batch": {"global_batch_size": 8}, "model": {"name": model}}
    recipe = small_recipe("train.jsonl", "meta-llama/Llama-3.2-1B", **sections, schedule={"train_iters": 100})
    return with_changes(recipe, changes)


def errors_and_warnings(config: Any, world_size: int | None) -> set[str]:
    """Return the codes of what a check says about a config, advice left out; files are not looked at."""
    report = check_target(config, CheckOptions(world_size=world_size, looks_at_files=False))
    return {finding.code for finding in report.findings if finding.severity != Severity.ADVICE}
