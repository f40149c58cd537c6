"""What a lead reads before a run gets its GPUs: run, data, proofs, and what nobody has checked."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from bridgepack.checking.overview import Overview
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import other_settings
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import SequenceView
from bridgepack.errors import ArtifactError, BridgepackError
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.plan import Plan
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.packs import recorded_recipe
from bridgepack.records import Manifest
from bridgepack.records.words import count_text

#: Rule on settings other than the packs', which the verdict counts by themselves.
_OTHER_SETTINGS = "BP117"


@dataclass(frozen=True, kw_only=True, slots=True)
class SignOff:
    """What the page says of a run and its packs."""

    page: Overview
    manifest: Manifest
    recipe: SFTRecipe  #: of the run: the given one, or the packs' own
    masks: MaskReport | str  #: comparison of a sample of the masks; or why there is none
    #: fields of the recipe whose value differs from that in the packs' own, each with both
    other_settings: tuple[str, ...]
    memory: Candidate | str  #: the recipe's own layout and pack size as `plan` estimates it; or why it does not

    @property
    def topology(self) -> Mapping[str, str]:
        """Name -> value of the run's sizes."""
        sizes = self.recipe.parallelism
        names = {
            "tensor": sizes.tensor_model_parallel_size,
            "pipeline": sizes.pipeline_model_parallel_size,
            "context": sizes.context_parallel_size,
            "expert": sizes.expert_model_parallel_size,
        }
        text = ", ".join(f"{name} {size}" for name, size in names.items())
        return {"GPUs": "not stated" if sizes.num_gpus is None else f"{sizes.num_gpus:,}", "parallel sizes": text}

    @property
    def num_doubted(self) -> int:
        """Sequences of the sample whose loss mask another derivation contradicts."""
        return 0 if isinstance(self.masks, str) else self.masks.num_with_findings

    @property
    def verdict(self) -> tuple[Literal["good", "warn", "bad"], str]:
        """How bad it is (`good`, `warn` or `bad`), and the verdict."""
        report, doubts = self.page.report, []
        if report.num_errors:
            doubts.append(count_text(report.num_errors, "error"))
        if self.num_doubted:
            doubts.append(f"{count_text(self.num_doubted, 'loss mask')} in doubt")
        num_told = sum(finding.code == _OTHER_SETTINGS for finding in report.findings) if self.other_settings else 0
        num_warnings = report.num_warnings - num_told
        warnings = [count_text(num_warnings, "warning")] if num_warnings else []
        if self.other_settings:
            warnings.append(f"{count_text(len(self.other_settings), 'setting')} other than the packs'")
        if doubts:
            return "bad", f"Not ready: {', '.join([*doubts, *warnings])}"
        accept = f", with {' and '.join(warnings)} to accept" if warnings else ""
        if not self.page.has_recipe:
            return "warn", f"The packs are ready{accept}; the run was not judged"
        return ("warn", f"Ready{accept}") if warnings else ("good", "Ready: no errors, no warnings")

    @property
    def example(self) -> SequenceView | None:
        """The first sequence of the first pack; None if its packs could not be read."""
        text = self.page.splits[0].excerpts if self.page.splits else ()
        if not text or not text[0].view.sequences:
            return None
        return text[0].view.sequences[0]

    @property
    def gaps(self) -> list[str]:
        """What nobody has checked, in the reader's words."""
        return list(self._gaps())

    def _gaps(self) -> Iterator[str]:
        report, sample = self.page.report, self.manifest.served
        if not self.page.has_recipe:
            yield "The recipe of the run: give it with `bridgepack report RECIPE --artifact ARTIFACT --sign-off`."
        if report.host is None or not report.host.is_judged:
            yield "Megatron-Bridge itself has not validated the run: `bridgepack check RECIPE --real-validate`."
        if report.rules_skipped:
            yield f"{len(report.rules_skipped):,} rules did not run; `bridgepack check --skipped` says what they need."
        if isinstance(self.memory, str):
            yield "Whether the run fits into memory."
        if isinstance(self.masks, str):
            yield f"Loss masks: {self.masks}"
        elif self.masks.mode == "sample" and self.masks.num_rows_read < self.masks.num_rows:
            yield (
                f"Loss masks of all rows: {self.masks.num_rows_read:,} of {self.masks.num_rows:,} rows were compared; "
                "`bridgepack prove masks --all` compares the rest."
            )
        if not isinstance(self.masks, str) and self.masks.num_not_judged:
            yield f"Loss masks of {count_text(self.masks.num_not_judged, 'sequence')} that no derivation could judge."
        if sample is None:
            yield "Answers as a server shows them: the build recorded no sample of them."
        else:
            yield "Answers beyond the sample: `bridgepack prove served --all` compares all with what is served."
        yield "Loss and gradients of packed training: `bridgepack prove training` compares them on a tiny model."
        yield "The bytes of the packs against their sources: `bridgepack prove sources --all`."


def sign_off(page: Overview, recipe: SFTRecipe | None, *, is_trusted: bool = False) -> SignOff:
    """Return the page that signs off a run over an artifact; `recipe` is the run's (default: the artifact's own).

    `is_trusted` lets code run that comes with the packs' tokenizer.

    Raises:
        ArtifactError: the packs have no manifest, or differ from it so that it cannot be read.
    """
    manifest = page.facts.manifest
    if manifest is None:
        raise ArtifactError(
            f"--sign-off: {str(page.folder)!r} has no manifest, so nobody knows which rows were read and dropped. "
            "Build the packs with bridgepack, or leave --sign-off out."
        )
    packs = recorded_recipe(Artifact(page.folder), {})
    recipe = recipe or packs
    return SignOff(
        page=page,
        manifest=manifest,
        recipe=recipe,
        masks=_masks(page, is_trusted=is_trusted),
        other_settings=tuple(
            f"{name} {value} (packs: {value_of_packs})" for name, value, value_of_packs in other_settings(recipe, packs)
        ),
        memory=_memory(page.plan, recipe),
    )


def _masks(page: Overview, *, is_trusted: bool) -> MaskReport | str:
    try:
        return check_masks(page.folder, MaskOptions(trust_remote_code=is_trusted))
    except BridgepackError as error:
        return f"not compared: {error}"


def _memory(plan: Plan | str, recipe: SFTRecipe) -> Candidate | str:
    if isinstance(plan, str):
        return plan
    for candidate in plan.candidates:
        candidate_recipe = recipe.override(candidate.changes)
        if candidate_recipe.parallelism == recipe.parallelism and candidate_recipe.packing == recipe.packing:
            return candidate
    return f"`bridgepack plan` does not propose this layout. {plan.headline()}"
