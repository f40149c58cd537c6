"""Runs the canary: chooses packs and topologies, and compares packed and unpacked steps."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bridgepack.canaries.comparison import Comparison
from bridgepack.canaries.packs import ChosenPacks, chosen_packs
from bridgepack.canaries.processes import HostProcess
from bridgepack.canaries.records import CanaryOptions, CanaryReport, HostFacts, Kernel, Precision
from bridgepack.canaries.targets import CanaryTarget, open_target
from bridgepack.canaries.tiny_model import default_topologies, fit_topology, require_fit, topology_of_options
from bridgepack.data.tokenizers.trust import refuse_model_code
from bridgepack.errors import ConfigError
from bridgepack.host import RELEASES, HostRelease
from bridgepack.replay.settings import Topology


def run_canary(target: str, options: CanaryOptions) -> CanaryReport:
    """Return the comparison of packed and unpacked training of a target.

    Raises:
        ConfigError: the target is unknown, the host is missing, or the model is not supported.
        ArtifactError: the artifact cannot be read.
    """
    user_topology = topology_of_options(options.tensor, options.pipeline, options.context)
    with _comparison(target, options) as comparison:
        topologies, notes = _topologies(comparison, user_topology)
        options.progress.start("training steps", (len(topologies) + 1) * len(comparison.precisions), "steps")
        return comparison.report(topologies, fault=None, keeps_boundaries=user_topology is not None, notes=notes)


@contextmanager
def _comparison(target: str, options: CanaryOptions) -> Iterator[Comparison]:
    """Yield the comparison of a target's packs, with the host loaded."""
    canary_target = open_target(target, options)
    refuse_model_code(canary_target.recipe, is_trusted=options.trust_remote_code)
    _choose_packs(canary_target, options, RELEASES[-1])  # before the host's import: the newest trains the most labels
    with tempfile.TemporaryDirectory(prefix="bridgepack-canary-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with HostProcess(folder, is_on_cpu=options.device == "cpu") as host:
            options.progress.start("Megatron-Bridge", None, "imports")
            recipe = canary_target.recipe.model_dump(mode="json", exclude_unset=True)
            facts = host.open(recipe, canary_target.artifact, folder)
            options.progress.finish()
            packs = _choose_packs(canary_target, options, facts.release)
            kernel = _kernel(facts, options)
            precisions: tuple[Precision, ...] = ("bfloat16",) if kernel != "reference" else ("float64", "float32")
            inputs = (host, facts, canary_target, packs, options)
            yield Comparison(*inputs, folder=folder, kernel=kernel, precisions=precisions)


def _choose_packs(target: CanaryTarget, options: CanaryOptions, release: HostRelease) -> ChosenPacks:
    limit = options.max_tokens
    packs = chosen_packs(target.rows, eos_token_id=target.eos_token_id, max_tokens=limit, release=release)
    if not any(sequence.loss_mask.any() for sequence in packs.sequences):
        raise ConfigError(
            f"none of the {len(packs.packs)} packs has a trained token within --max-tokens {limit}, so there is no "
            "loss to compare. Raise --max-tokens or --num-packs."
        )
    return packs


def _topologies(comparison: Comparison, user_topology: Topology | None) -> tuple[list[Topology], list[str]]:
    facts = comparison.facts
    if user_topology is None:
        return default_topologies(facts, num_packs=comparison.num_packs, num_devices=comparison.num_devices)
    require_fit(user_topology, facts, comparison.num_devices)
    return [fit_topology(user_topology, facts)], []


def _kernel(facts: HostFacts, options: CanaryOptions) -> Kernel:
    is_there = facts.num_gpus > 0 and facts.has_transformer_engine
    if options.device == "gpu" and not is_there:
        missing = "no GPU" if not facts.num_gpus else "no TransformerEngine"
        raise ConfigError(f"--device is gpu; there is {missing} here. Use --device cpu.")
    return "transformer_engine" if is_there and options.device != "cpu" else "reference"
