"""API functions of the canary: packed training compared with unpacked, and the canary tried on planted faults."""

from pathlib import Path
from typing import Any

from bridgepack.api.progress import shows_progress
from bridgepack.canaries.canary import run_canary, run_self_test
from bridgepack.canaries.faults import FAULTS as FAULTS
from bridgepack.canaries.records import CanaryOptions, CanaryReport
from bridgepack.config.arguments import check_arguments, stated_options


@shows_progress
@check_arguments
def canary(target: str | Path, **options: Any) -> CanaryReport:
    """Return the comparison of loss and gradients in packed and unpacked training of a target, in each layout.

    Example: `bridgepack.canary("packed").outcome` is `same`, `differs` or `could not run`.

    Args:
        target: an artifact's folder or a recipe, as on the command line.
        options: fields of `CanaryOptions`: artifact, overrides, tensor, pipeline, context, num_packs, max_tokens,
            fault, uses_gpu, timeout_s, progress.

    Raises:
        ConfigError: the target or an option is unknown, the host is missing, or the model is not supported.
        ArtifactError: the artifact cannot be read.
    """
    return run_canary(str(target), stated_options(CanaryOptions, options, "canary"))


@shows_progress
@check_arguments
def canary_self_test(target: str | Path, **options: Any) -> list[CanaryReport]:
    """Return one report for each fault that the canary can find, planted one after another; each should name its fault.

    Example: `[report.planted for report in bridgepack.canary_self_test("packed")]`.

    Args:
        target: as for `canary`.
        options: as for `canary`, without a fault and sizes.

    Raises:
        ConfigError: as `canary`, or a fault needs an even number of packs.
        ArtifactError: the artifact cannot be read.
    """
    return run_self_test(str(target), stated_options(CanaryOptions, options, "canary_self_test"))
