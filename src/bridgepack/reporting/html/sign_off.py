"""The page that signs a run off: what a lead reads before the GPUs are given, on one or two printed pages."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from bridgepack import __version__
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.recorded import other_settings
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.inspection import SequenceView, TextSpan
from bridgepack.errors import ArtifactError, BridgepackError
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.plan import Plan
from bridgepack.proof.masks.masks import MaskOptions, check_masks
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.packs import recorded_recipe
from bridgepack.records import Manifest
from bridgepack.records.words import counted
from bridgepack.reporting.html.page import ArtifactPage
from bridgepack.reporting.html.render import render_template
from bridgepack.reporting.text import without_middle

#: Rule on settings other than the packs', which the verdict counts by themselves.
_OTHER_SETTINGS = "BP117"
#: Maximum stretches of the sequence that is shown, and characters of each, so that two pages are enough.
_SPANS, _SPAN_CHARACTERS = 8, 300


@dataclass(frozen=True, kw_only=True, slots=True)
class SignOff:
    """What the page says of a run and its packs."""

    page: ArtifactPage
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
        shown = ", ".join(f"{name} {size}" for name, size in names.items())
        return {"GPUs": "not stated" if sizes.num_gpus is None else f"{sizes.num_gpus:,}", "parallel sizes": shown}

    @property
    def num_doubted(self) -> int:
        """Sequences of the sample whose loss mask another derivation contradicts."""
        return 0 if isinstance(self.masks, str) else self.masks.num_with_findings

    @property
    def verdict(self) -> tuple[str, str]:
        """How bad it is (`good`, `warn` or `bad`), and the verdict."""
        report, doubts = self.page.report, []
        if report.num_errors:
            doubts.append(counted(report.num_errors, "error"))
        if self.num_doubted:
            doubts.append(f"{counted(self.num_doubted, 'loss mask')} in doubt")
        num_told = sum(finding.code == _OTHER_SETTINGS for finding in report.findings) if self.other_settings else 0
        num_warnings = report.num_warnings - num_told
        warned = [counted(num_warnings, "warning")] if num_warnings else []
        if self.other_settings:
            warned.append(f"{counted(len(self.other_settings), 'setting')} other than the packs'")
        if doubts:
            return "bad", f"Not ready: {', '.join([*doubts, *warned])}"
        accept = f", with {' and '.join(warned)} to accept" if warned else ""
        if not self.page.has_recipe:
            return "warn", f"The packs are ready{accept}; the run was not judged"
        return ("warn", f"Ready{accept}") if warned else ("good", "Ready: no errors, no warnings")

    @property
    def example(self) -> SequenceView | None:
        """A sequence of the first pack, short enough for the page; None if its packs could not be read."""
        shown = self.page.splits[0].excerpts if self.page.splits else ()
        if not shown or not shown[0].view.sequences:
            return None
        sequence = shown[0].view.sequences[0]
        spans = tuple(replace(one, text=without_middle(one.text, _SPAN_CHARACTERS)) for one in sequence.spans[:_SPANS])
        hidden = sequence.spans[_SPANS:]
        if hidden:
            text = f"[... {len(hidden):,} more stretches ...]"
            spans += (TextSpan(text=text, is_trained=False, num_tokens=sum(one.num_tokens for one in hidden)),)
        return replace(sequence, spans=spans)

    @property
    def unchecked(self) -> list[str]:
        """What nobody has checked, in the reader's words."""
        return list(self._unchecked())

    def _unchecked(self) -> Iterator[str]:
        report, served = self.page.report, self.manifest.served
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
            yield f"Loss masks of {counted(self.masks.num_not_judged, 'sequence')} that no derivation could judge."
        if served is None:
            yield "Answers as a server shows them: the build recorded no sample of them."
        else:
            yield "Answers beyond the sample: `bridgepack prove served --all` compares all with what is served."
        yield "Loss and gradients of packed training: `bridgepack prove training` compares them on a tiny model."
        yield "The bytes of the packs against their sources: `bridgepack prove sources --all`."

    def html(self) -> str:
        """Return the page as HTML."""
        return render_template("sign_off.html.jinja", signed=self, page=self.page, version=__version__)


def sign_off(page: ArtifactPage, recipe: SFTRecipe | None) -> SignOff:
    """Return the page that signs off a run over an artifact; `recipe` is the run's (default: the artifact's own).

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
        masks=_masks(page),
        other_settings=tuple(f"{name} {here} (packs: {there})" for name, here, there in other_settings(recipe, packs)),
        memory=_memory(page.plan, recipe),
    )


def _masks(page: ArtifactPage) -> MaskReport | str:
    try:
        return check_masks(page.folder, MaskOptions())
    except BridgepackError as error:
        return f"not compared: {error}"


def _memory(plan: Plan | str, recipe: SFTRecipe) -> Candidate | str:
    if isinstance(plan, str):
        return plan
    for one in plan.candidates:
        planned = recipe.override(one.changes)
        if planned.parallelism == recipe.parallelism and planned.packing == recipe.packing:
            return one
    return f"`bridgepack plan` does not propose this layout. {plan.headline()}"
