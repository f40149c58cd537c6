"""Compares packed steps in several layouts with the unpacked step, in one process with the host loaded."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path

from bridgepack.canaries import faults
from bridgepack.canaries.comparing import (
    Sizes,
    WholeStep,
    bound_for,
    unpacked_step,
)
from bridgepack.canaries.inputs import PackedInput, packed_input, write_packed, write_sequences
from bridgepack.canaries.judging import adapters_without_gradient, judge_step
from bridgepack.canaries.naming import ADAPTERS_WITHOUT_GRADIENT, finding
from bridgepack.canaries.packs import ChosenPacks
from bridgepack.canaries.processes import HostProcess
from bridgepack.canaries.records import (
    Bound,
    CanaryFinding,
    CanaryOptions,
    CanaryReport,
    HostFacts,
    Kernel,
    LayoutRecord,
    Measured,
    Outcome,
    PacksRecord,
    Precision,
    RunOutcome,
    RunRequest,
    topology_of,
)
from bridgepack.canaries.targets import CanaryTarget
from bridgepack.errors import ConfigError
from bridgepack.records import TRAIN
from bridgepack.replay.settings import Topology

#: Weights are drawn with the first of these whose experts are chosen clearly enough, or the clearest.
_SEEDS = (1, 2, 3, 4, 5)
#: Rounding in float32 moves the scores of a tiny router by some 1e-6; chosen by less than this, a token could
#: go to another expert in one of two runs, and no bound holds.
_CLEAR_MARGIN = 1e-5


#: Seed of the weights, and the unpacked step in each precision.
References = tuple[int, dict[Precision, WholeStep]]
_UNPACKED = "the unpacked step"


@dataclass
class Comparison:
    """Some packs, and the unpacked steps that packed ones are compared with."""

    host: HostProcess  #: with the recipe loaded
    facts: HostFacts
    target: CanaryTarget
    chosen: ChosenPacks
    options: CanaryOptions
    folder: Path  #: for what steps read and leave
    kernel: Kernel
    precisions: Sequence[Precision]
    num_runs: int = 0
    references: dict[str | None, References] = field(default_factory=dict)  #: by the host's fault that is planted

    @property
    def num_packs(self) -> int:
        """Number of packs that are compared."""
        return len(self.chosen.packs)

    @property
    def num_devices(self) -> int | None:
        """Number of GPUs available for a layout; None on CPU, where processes share cores."""
        return None if self.kernel == "reference" else self.facts.num_gpus

    def report(
        self, topologies: Sequence[Topology], *, fault: str | None, keeps_boundaries: bool, notes: Sequence[str]
    ) -> CanaryReport:
        """Return what some topologies compute, one after another, with a fault planted in each where one is named.

        With `keeps_boundaries` packs are taken as they are even where their lengths do not fit a topology.

        Raises:
            ConfigError: the unpacked step does not run.
        """
        context_size, results = self.target.recipe.parallelism.context_parallel_size, []
        references = self._references_of(fault if fault in faults.OF_THE_HOST else None)
        for topology in topologies:
            packs = packed_input(
                self.chosen,
                topology,
                self.facts,
                entries=self.target.entries,
                pad_seq_to_mult=self.target.pad_seq_to_mult,
                keeps_boundaries=keeps_boundaries
                or (topology.context_parallel_size == context_size and context_size > 1 and fault is None),
                fault=fault,
            )
            results.append(self._layout(packs, references))
        of_unpacked = self._findings_on(references)
        findings = tuple(finding for group in (of_unpacked, *(group for _, group in results)) for finding in group)
        records = tuple(record for record, _ in results)
        report = CanaryReport(
            target=self.target.place,
            recipe=self.target.recipe.name,
            outcome=_outcome(records, findings),
            packs=self._packs_record(),
            provider=self.facts.provider,
            model=self.facts.model,
            seed=references[0],
            planted=fault,
            bounds=self._bounds,
            layouts=records,
            findings=findings,
            notes=(*self.target.notes, *notes, *self.facts.notes, *self._pack_notes(references)),
            versions=self.facts.versions,
            fingerprint="",
        )
        return replace(report, fingerprint=_fingerprint(report))

    @cached_property
    def _bounds(self) -> tuple[Bound, ...]:
        lengths = [sequence.runtime_length for sequence in self.chosen.sequences]
        sizes = Sizes(
            model=self.facts.model,
            vocab_size=self.chosen.vocab_size,
            longest_sequence=max(lengths),
            num_tokens=sum(lengths),
        )
        return tuple(bound_for(precision, sizes) for precision in self.precisions)

    def _references_of(self, fault: str | None) -> References:
        """Return the unpacked steps, with a fault of the host if one is named; each is computed once."""
        if fault not in self.references:
            self.references[fault] = self._computed_references(fault)
        return self.references[fault]

    def _computed_references(self, fault: str | None) -> References:
        first, *more_precisions = self.precisions
        steps: dict[int, WholeStep] = {}
        for seed in _SEEDS:
            steps[seed] = self._reference(first, seed, fault)
            if _margin(steps[seed]) > _CLEAR_MARGIN:
                break
        seed = max(steps, key=lambda seed: _margin(steps[seed]))
        if _margin(steps[seed]) <= _CLEAR_MARGIN:
            more_precisions = []
        more = {precision: self._reference(precision, seed, fault) for precision in more_precisions}
        return seed, {first: steps[seed], **more}

    def _reference(self, precision: Precision, seed: int, fault: str | None) -> WholeStep:
        outcome = self._run(None, precision, seed, fault)
        if not outcome.is_complete:
            raise ConfigError(
                f"the unpacked step in {precision} does not run here: {outcome.reason}. Its last lines:\n{outcome.tail}"
            )
        return unpacked_step(outcome, [len(pack.sequences) for pack in self.chosen.packs])

    def _findings_on(self, references: References) -> list[CanaryFinding]:
        """Return what is wrong with the unpacked step itself."""
        reference, findings = references[1][self.precisions[0]], []
        num_trained = self._packs_record().num_trained
        if reference.num_trained != num_trained:
            text = (
                f"the loss is divided by {reference.num_trained:,} tokens, and the masks of these sequences train "
                f"{num_trained:,}, so sequences are not weighted by their trained tokens"
            )
            findings.append(finding(faults.LOSS_NORMALISED, _UNPACKED, text))
        still = adapters_without_gradient(reference)
        if still:
            findings.append(finding(ADAPTERS_WITHOUT_GRADIENT, _UNPACKED, still))
        return findings

    def _run(self, packs: PackedInput | None, precision: Precision, seed: int, fault: str | None = None) -> RunOutcome:
        """Return how a step over packs ends; over the sequences one by one where there are none."""
        self.num_runs += 1
        folder = self.folder / f"run{self.num_runs}"
        selection = self.chosen
        longest = max(sequence.runtime_length for sequence in selection.sequences)
        if packs is None:
            write_sequences(folder, selection)
        else:
            write_packed(folder, packs)
        request = RunRequest(
            topology=topology_of() if packs is None else packs.topology,
            precision=precision,
            kernel=self.kernel,
            is_packed=packs is not None,
            folder=str(folder),
            num_rows=len(selection.sequences) if packs is None else len(packs.rows),
            packed_sequence_size=longest if packs is None else packs.settings.packed_sequence_size,
            pad_seq_to_mult=1 if packs is None else packs.settings.pad_seq_to_mult,
            pad_to_max_length=packs is None or packs.settings.pad_to_max_length,
            pad_cu_seqlens=packs is not None and packs.settings.pad_cu_seqlens,
            eos_token_id=selection.eos_token_id,
            vocab_size=selection.vocab_size,
            seed=seed,
            fault=fault if packs is None else packs.fault,
            timeout_s=self.options.timeout_s,
        )
        outcome = self.host.run(request)
        self.options.progress.advance(1)
        return outcome

    def _layout(self, packs: PackedInput, of_unpacked: References) -> tuple[LayoutRecord, list[CanaryFinding]]:
        seed, references = of_unpacked
        measurements: list[Measured] = []
        findings: dict[str, CanaryFinding] = {}
        for bound in self._bounds:
            if bound.precision not in references:
                continue
            outcome = self._run(packs, bound.precision, seed)
            result, step_findings = judge_step(outcome, packs, references[bound.precision], bound)
            measurements.append(result)
            for item in step_findings:
                findings.setdefault(item.name, item)
        record = LayoutRecord(
            name=packs.topology.title,
            sequence_parallel=packs.topology.sequence_parallel,
            kernel=self.kernel,
            pad_seq_to_mult=packs.settings.pad_seq_to_mult,
            is_laid_out_anew=packs.is_laid_out_anew,
            measured=tuple(measurements),
        )
        return record, list(findings.values())

    def _packs_record(self) -> PacksRecord:
        selection = self.chosen
        return PacksRecord(
            origin=str(self.target.artifact) if self.target.artifact is not None else "made up",
            split=TRAIN,
            numbers=tuple(pack.number for pack in selection.packs),
            num_sequences=len(selection.sequences),
            num_tokens=sum(sequence.runtime_length for sequence in selection.sequences),
            num_trained=sum(int(sequence.loss_mask.sum()) for sequence in selection.sequences),
            num_cut=selection.num_cut,
            vocab_size=selection.vocab_size,
            fingerprint=selection.fingerprint,
        )

    def _pack_notes(self, references: References) -> list[str]:
        selection, notes = self.chosen, []
        if selection.num_cut:
            left_out = sum(pack.num_sequences_left_out for pack in selection.packs)
            notes.append(
                f"packs are cut to {self.options.max_tokens:,} tokens, which leaves {left_out} of their last "
                "sequences out; raise --max-tokens"
            )
        if all(len(pack.sequences) == 1 for pack in selection.packs):
            notes.append(
                "each of these packs holds one sequence, so nothing was compared where sequences meet; choose an "
                "artifact with packs of several"
            )
        if selection.num_untrained_eos:
            notes.append(
                f"{selection.num_untrained_eos} tokens with loss follow an EOS token; the packed loader does not "
                "train them, so the unpacked step does not either"
            )
        margin = _margin(references[1][self.precisions[0]])
        if margin <= _CLEAR_MARGIN:
            precisions = ", ".join(self.precisions[1:])
            notes.append(
                f"experts are chosen by margins as small as {margin:.1e}, which rounding can flip: {precisions} is "
                "left out; fewer packs or --max-tokens make it clearer"
            )
        elif self.facts.is_moe:
            notes.append(
                f"experts are chosen by margins of at least {margin:.1e}, so that rounding sends no token elsewhere"
            )
        return notes


def _margin(reference: WholeStep) -> float:
    """Return the smallest margin in the choice of experts; infinity without experts."""
    return float("inf") if reference.router_margin is None else reference.router_margin


def _outcome(layouts: tuple[LayoutRecord, ...], findings: tuple[CanaryFinding, ...]) -> Outcome:
    outcomes = {measurement.outcome for layout in layouts for measurement in layout.measured}
    if findings or "differs" in outcomes:
        return "differs"
    return "could not run" if "could not run" in outcomes else "same"


def _fingerprint(report: CanaryReport) -> str:
    """Return the hash of the compared inputs, without measurements, paths and facts of this machine."""
    content = {
        "packs": report.packs.fingerprint,
        "vocab_size": report.packs.vocab_size,
        "provider": report.provider,
        "model": dict(report.model),
        "seed": report.seed,
        "planted": report.planted,
        "bounds": [asdict(bound) for bound in report.bounds],
        "layouts": [[layout.name, layout.kernel, layout.pad_seq_to_mult] for layout in report.layouts],
        "versions": dict(report.versions),
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
