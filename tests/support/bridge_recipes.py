"""Small recipes on bases of megatron-bridge, and quiet around the host's own functions."""

from collections.abc import Mapping
from typing import Any

from bridgepack.bridge.targets import quiet
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.rules.judging.rule import Severity
from tests.support.small_builds import small_recipe, with_changes

#: Keeps what the host prints, warns and logs from the output.
quiet_host = quiet
DENSE = "llama32_1b_sft_1gpu_h100_bf16_config"


#: Kind -> a layout of rows that the host reads.
HOST_LAYOUTS: Mapping[str, Any] = {
    "chat": {"kind": "chat", "messages": [{"from_column": "messages"}]},
    "prompt_completion": {"kind": "prompt_completion", "prompt": "{prompt}", "completion": "{completion}"},
}


def recipe_of(model: str, /, **changes: Any) -> SFTRecipe:
    """Return a small recipe; a double underscore in a change's name stands for a dot.

    Where the host reads the data, and nothing is said of the layout, it has a usual one.
    """
    sections = {"packing": {"packed_sequence_size": 2048}, "batch": {"global_batch_size": 8}, "model": {"name": model}}
    recipe = small_recipe("train.jsonl", "meta-llama/Llama-3.2-1B", **sections, schedule={"train_iters": 100})
    if changes.get("packing__mode", "offline") != "offline" and not {"data", "data__layout"} & changes.keys():
        kind = with_changes(recipe, changes).preprocessing.kind
        changes["data__layout"] = HOST_LAYOUTS.get(kind)
    return with_changes(recipe, changes)


def errors_and_warnings(config: Any, world_size: int | None) -> set[str]:
    """Return the codes of what a check says about a config, advice left out; files are not looked at."""
    report = check_target(config, CheckOptions(world_size=world_size, looks_at_files=False))
    return {finding.code for finding in report.findings if finding.severity != Severity.ADVICE}
