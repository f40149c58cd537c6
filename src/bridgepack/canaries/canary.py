"""Runs the canary: chooses packs and layouts, and compares packed and unpacked steps."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridgepack.canaries import faults
from bridgepack.canaries.comparison import Comparison
from bridgepack.canaries.packs import ChosenPacks, chosen_packs
from bridgepack.canaries.processes import HostProcess
from bridgepack.canaries.records import CanaryOptions, CanaryReport, HostFacts, Kernel, Layout, Precision
from bridgepack.canaries.targets import CanaryTarget, open_target
from bridgepack.canaries.tiny_model import asked_layout, default_layouts, fit_layout, require_fit
from bridgepack.errors import ConfigError


def run_canary(target: str, options: CanaryOptions) -> CanaryReport:
    """Return the comparison of packed and unpacked training of a target.

    Raises:
        ConfigError: the target is unknown, the host is missing, or the model is not supported.
        ArtifactError: the artifact cannot be read.
    """
    asked = asked_layout(options.tensor, options.pipeline, options.context)
    _check_fault(options.fault, asked)
    with _comparison(target, options) as comparison:
        layouts, notes = _layouts(comparison, options.fault, asked)
        options.progress.start("training steps", (len(layouts) + 1) * len(comparison.precisions), "steps")
        keeps = asked is not None and options.fault is None
        return comparison.report(layouts, fault=options.fault, keeps_boundaries=keeps, notes=notes)


def run_self_test(target: str, options: CanaryOptions) -> list[CanaryReport]:
    """Return a report per fault, each planted in a separate run; only the first precision is computed.

    Raises:
        ConfigError: as `run_canary`, or a fault needs an even number of packs.
        ArtifactError: the artifact cannot be read.
    """
    with _comparison(target, options, num_precisions=1) as comparison:
        layouts = {fault: _layouts(comparison, fault, None)[0] for fault in faults.FAULTS}
        options.progress.start("training steps", len(layouts) + 1, "steps")
        return [
            comparison.report(layouts[fault], fault=fault, keeps_boundaries=False, notes=[]) for fault in faults.FAULTS
        ]


@contextmanager
def _comparison(target: str, options: CanaryOptions, *, num_precisions: int | None = None) -> Iterator[Comparison]:
    """Yield the comparison of a target's packs, with the host loaded, in the first `num_precisions` (default: all)."""
    opened = open_target(target, options)
    with tempfile.TemporaryDirectory(prefix="bridgepack-canary-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with HostProcess(folder, is_on_cpu=options.uses_gpu is False) as host:
            options.progress.start("Megatron-Bridge", None, "imports")
            recipe = opened.recipe.model_dump(mode="json", exclude_unset=True)
            facts = host.open(recipe, opened.artifact, folder)
            options.progress.finish()
            chosen = _choose_packs(opened, options, facts)
            kernel = _kernel(facts, options)
            known: tuple[Precision, ...] = ("bfloat16",) if kernel != "reference" else ("float64", "float32")
            precisions = known[:num_precisions]
            yield Comparison(host, facts, opened, chosen, options, folder=folder, kernel=kernel, precisions=precisions)


def _choose_packs(target: CanaryTarget, options: CanaryOptions, facts: HostFacts) -> ChosenPacks:
    limit = options.max_tokens
    chosen = chosen_packs(target.rows, eos_token_id=target.eos_token_id, max_tokens=limit, release=facts.release)
    if not any(one.loss_mask.any() for one in chosen.sequences):
        raise ConfigError(
            f"none of the {len(chosen.packs)} packs has a trained token within --max-tokens {limit}, so there is no "
            "loss to compare. Raise --max-tokens or --packs."
        )
    return chosen


def _check_fault(fault: str | None, asked: Layout | None) -> None:
    if asked is None or fault is None:
        return
    needs = {
        faults.BOUNDARIES_DROPPED: (asked.pipeline >= 3, "--pipeline 3 or 6, as only then is there a middle stage"),
        faults.WRONG_MULTIPLE: (asked.context >= 2, "--context 2 or more"),
    }
    fits, allowed = needs.get(fault, (True, ""))
    if not fits:
        raise ConfigError(f"--plant {fault} cannot be planted in {asked.name}; allowed: {allowed}. Or leave sizes out.")


def _layouts(comparison: Comparison, fault: str | None, asked: Layout | None) -> tuple[list[Layout], list[str]]:
    facts = comparison.facts
    if asked is not None:
        require_fit(asked, facts, comparison.num_devices)
        return [fit_layout(asked, facts)], []
    if fault is None:
        return default_layouts(facts, num_packs=comparison.num_packs, num_devices=comparison.num_devices)
    layout = faults.FAULTS[fault][1]
    require_fit(layout, facts, comparison.num_devices)
    if comparison.num_packs % layout.data:
        raise ConfigError(
            f"--packs: {comparison.num_packs} packs cannot be shared by two ranks evenly, which {fault} needs. "
            "Choose an even number, of an artifact that has as many."
        )
    return [fit_layout(layout, facts)], []


def _kernel(facts: HostFacts, options: CanaryOptions) -> Kernel:
    is_there = facts.num_gpus > 0 and facts.has_transformer_engine
    if options.uses_gpu and not is_there:
        missing = "no GPU" if not facts.num_gpus else "no TransformerEngine"
        raise ConfigError(f"--device is gpu; there is {missing} here. Use --device cpu.")
    return "transformer_engine" if is_there and options.uses_gpu is not False else "reference"
