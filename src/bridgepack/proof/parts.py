"""Proves a target by every part that can be asked of it: its sources, its masks, what is served of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.remote import CloudPath, artifact_place
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.errors import BridgepackError
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import DEFAULT_SAMPLE as DEFAULT_ROWS
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.masks.records import MaskReport
from bridgepack.proof.packs import opened_artifact, recorded_recipe
from bridgepack.proof.served.records import ServedReport
from bridgepack.proof.served.served import SERVING, check_served
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.proof.verify.verify import DEFAULT_SAMPLE as DEFAULT_PACKS
from bridgepack.proof.verify.verify import DEFAULT_SEED, VerifyOptions, verify_artifact
from bridgepack.records.results import Result

PartOutcome = Literal["passed", "findings", "could not run", "not asked"]
PartReport = VerifyReport | MaskReport | ServedReport
#: Outcome of a part's report -> outcome of the part.
_OUTCOMES: Mapping[str, PartOutcome] = {
    **dict.fromkeys(("same", "agree", "equal"), "passed"),
    **dict.fromkeys(("differs", "disagree"), "findings"),
    "could not run": "could not run",
}
_NO_PACKS = "a recipe has no packs: build it, then prove the artifact"
_IN_A_STORE = "it reads the artifact's folder, and this is a URL: copy the artifact here"
_TAKES_MINUTES = "it trains a tiny model for minutes: `bridgepack prove training {}`"


@dataclass(frozen=True, kw_only=True)
class ProofOptions:
    """How a target is proved."""

    num_packs: int | None = DEFAULT_PACKS  #: packs to rebuild of an artifact; None for all
    num_rows: int | None = DEFAULT_ROWS  #: rows whose masks and answers are compared; None for all
    seed: int = DEFAULT_SEED  #: of the samples
    #: overrides of the recipe; for an artifact's recipe, only the locations of its sources and the section `serving`
    overrides: Mapping[str, Any] = field(default_factory=dict)
    num_workers: int = 1  #: maximum processes where all packs are rebuilt
    trust_remote_code: bool = False  #: run code that comes with the tokenizer, if the recipe names such a one
    scratch: Path | None = None  #: folder for rebuilding all packs (default: the system's temporary folder)
    progress: Progress = field(default_factory=SilentProgress)  #: is told about progress


@dataclass(frozen=True, kw_only=True, slots=True)
class PartProof:
    """How one part came out."""

    outcome: PartOutcome
    detail: str  #: what came out, or why the part was not asked or could not run
    report: PartReport | None = None  #: of a part that ran


@dataclass(frozen=True, kw_only=True, slots=True)
class Proof(Result):
    """How a target came out, by part.

    Attributes:
        target: the artifact or the recipe.
        parts: `sources`, `masks`, `served` and `training` -> how the part came out.
    """

    DERIVED: ClassVar = ("outcome",)

    target: str
    parts: Mapping[str, PartProof]

    @property
    def outcome(self) -> PartOutcome:
        """The worst of the parts; `not asked` only if no part was asked."""
        outcomes = {part.outcome for part in self.parts.values()}
        order: tuple[PartOutcome, ...] = ("findings", "could not run", "passed")
        return next((outcome for outcome in order if outcome in outcomes), "not asked")

    def headline(self) -> str:
        """Return what came out, in one line."""
        return f"{self.target}: " + ", ".join(f"{name} {part.outcome}" for name, part in self.parts.items())

    def to_dict(self) -> dict[str, Any]:
        """Return the target, the outcome, and each part by its name, as plain values."""
        return {"target": self.target, "outcome": self.outcome, **{row.pop("part"): row for row in self.table()}}

    def table(self) -> list[dict[str, Any]]:
        """Return the parts; each has the `report` that its own command prints, or None."""
        return [
            {
                "part": name,
                "outcome": part.outcome,
                "detail": part.detail,
                "report": None if part.report is None else part.report.to_dict(),
            }
            for name, part in self.parts.items()
        ]


def prove_target(target: Path | str | SFTRecipe, options: ProofOptions) -> Proof:
    """Return how the parts of a target came out that can be asked of it; the others say why they were not asked.

    `target` is an artifact's folder or its URL, a recipe or its location.

    Raises:
        ConfigError: the recipe does not exist, or an override is invalid.
        ArtifactError: the folder is not an artifact.
    """
    folder = None if isinstance(target, SFTRecipe) else _folder(target)
    if folder is not None:
        recipe = recorded_recipe(opened_artifact(folder, may_be_changed=True), options.overrides, may_change=SERVING)
        parts = _of_artifact(folder, recipe, options)
    else:
        recipe = load_recipe(target, options.overrides)
        parts = _of_recipe(recipe, options)
    name = target.name if isinstance(target, SFTRecipe) else str(target)
    training = PartProof(outcome="not asked", detail=_TAKES_MINUTES.format(name))
    return Proof(target=name, parts={**dict(parts), "training": training})


def _folder(target: Path | str) -> Path | None:
    """Return the folder of an artifact, which may be in an object store; None for a recipe."""
    place = artifact_place(target)
    is_folder = isinstance(place, CloudPath) or (bool(str(target)) and place.is_dir())
    return place if is_folder else None


def _of_artifact(folder: Path, recipe: SFTRecipe, options: ProofOptions) -> Iterator[tuple[str, PartProof]]:
    places = {path: value for path, value in options.overrides.items() if path.split(".")[0] != SERVING}
    verify = VerifyOptions(
        num_packs=options.num_packs,
        seed=options.seed,
        overrides=places,
        num_workers=options.num_workers,
        scratch=options.scratch,
        trust_remote_code=options.trust_remote_code,
        progress=options.progress,
    )
    yield "sources", _part_of(lambda: verify_artifact(folder, verify))
    if isinstance(folder, CloudPath):
        yield from ((name, PartProof(outcome="not asked", detail=_IN_A_STORE)) for name in ("masks", "served"))
        return
    yield "masks", _part_of(lambda: check_masks(folder, _of_rows(options, places)))
    yield "served", _served_part(folder, recipe, _of_rows(options, options.overrides))


def _of_recipe(recipe: SFTRecipe, options: ProofOptions) -> Iterator[tuple[str, PartProof]]:
    yield "sources", PartProof(outcome="not asked", detail=_NO_PACKS)
    yield "masks", _part_of(lambda: check_masks(recipe, _of_rows(options, {})))
    yield "served", _served_part(recipe, recipe, _of_rows(options, {}))


def _of_rows(options: ProofOptions, overrides: Mapping[str, Any]) -> MaskOptions:
    return MaskOptions(
        num_rows=options.num_rows,
        seed=options.seed,
        overrides=overrides,
        trust_remote_code=options.trust_remote_code,
        progress=options.progress,
    )


def _served_part(target: Path | SFTRecipe, recipe: SFTRecipe, options: MaskOptions) -> PartProof:
    if recipe.chat_preprocessing is None:
        kind = recipe.preprocessing.kind
        why = f"preprocessing.kind is {kind}; a server's text is known of conversations only"
        return PartProof(outcome="not asked", detail=why)
    return _part_of(lambda: check_served(target, options))


def _part_of(prove: Callable[[], PartReport]) -> PartProof:
    """Return how a part came out; an error of the target is an outcome here, as other parts may still run."""
    try:
        report = prove()
    except BridgepackError as error:
        return PartProof(outcome="could not run", detail=str(error))
    return PartProof(outcome=_OUTCOMES[report.outcome], detail=report.summary(), report=report)
