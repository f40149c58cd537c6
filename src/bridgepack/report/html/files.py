"""Writes the page and the card of an artifact, in their places as wholes, and never over what is read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.arguments import checked
from bridgepack.data.artifact.contents import CARD_FILE, REPORT_FILE
from bridgepack.data.artifact.discovery import find_shards
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.reading.cloud_path import CloudPath, artifact_place
from bridgepack.errors import ConfigError
from bridgepack.records.results import Result
from bridgepack.report.checks import staged_report
from bridgepack.report.html.card import dataset_card
from bridgepack.report.html.page import artifact_page
from bridgepack.rules.engine.report import CheckReport


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenReport(Result):
    """What was written.

    Attributes:
        report: what `check` says of the artifact.
        files: `output` and `card` -> where the page and the dataset card are; None where none was asked for.
    """

    report: CheckReport
    files: Mapping[str, Path | None]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for JSON."""
        files = {name: None if path is None else str(path) for name, path in self.files.items()}
        return {**files, "check": self.report.to_dict()}

    def table(self) -> Iterable[Mapping[str, Any]]:
        """Return the findings."""
        return self.report.table()


@checked
def report(
    artifact: str | Path,
    *,
    output: str | Path | None = None,
    card: str | Path | None = None,
    given: Mapping[str, Any] | None = None,
) -> WrittenReport:
    """Write an artifact as one page of HTML; return where it is, and what the rules say.

    Example: `bridgepack.report("packed").files["output"]`.

    Args:
        artifact: its folder, or its URL in an object store; or packed files of another tool.
        output: file of the page; by default `report.html` in the artifact, which a URL does not take.
        card: file of a dataset card; none is written by default.
        given: facts about packs without a manifest, e.g. `{"packed_sequence_size": 4096}`.

    Raises:
        BridgepackError: ConfigError or ArtifactError, each saying what to do; RuleCrashError where a rule raised.
    """
    return write_report(
        artifact_place(artifact),
        CheckOptions(given=given or {}),
        output=None if output is None else Path(output),
        card=None if card is None else Path(card),
    )


def write_report(
    artifact: Path,
    options: CheckOptions,
    *,
    output: Path | None = None,
    card: Path | None = None,
    target: Target | None = None,
) -> WrittenReport:
    """Return what was written of an artifact: its page, and its dataset card.

    Args:
        artifact: its folder; or packed files of another tool: a folder, a file or a pattern.
        options: how it is judged.
        output: file of the page; by default `report.html` in the artifact.
        card: file of the card; none is written by default.
        target: the recipe to judge it with, where `options` have the artifact; it is judged alone by default.

    Raises:
        ConfigError: a file cannot be written there, or the artifact could not be read any more.
        ArtifactError: it is no artifact.
        RuleCrashError: a rule raised.
    """
    check_place("--output", output, artifact, suffix=".html", own=REPORT_FILE)
    check_place("--card", card, artifact, suffix=".md", own=CARD_FILE)
    if output is None and isinstance(artifact, CloudPath):
        raise ConfigError(
            f"--output is not given; nothing is written to {str(artifact)!r}. Give a file of this machine."
        )
    has_manifest = (artifact / MANIFEST_FILE).exists()
    if output is None and not has_manifest and find_shards(artifact).paths:
        raise ConfigError("--output is not given; packs without a manifest get no file beside them. Give a file.")
    if card is not None and not has_manifest:
        raise ConfigError(f"--card needs {MANIFEST_FILE}, which {str(artifact)!r} does not have. Leave it out.")
    output = output or artifact / REPORT_FILE
    page = artifact_page(artifact, options, target)
    text = None if card is None else dataset_card(artifact, page.facts.manifest)
    with staged_report(output, page.html()), staged_report(card, text or "", option="--card"):
        pass
    return WrittenReport(report=page.report, files={"output": output, "card": card})


def check_place(option: str, path: Path | None, artifact: Path, *, suffix: str, own: str | None = None) -> None:
    """Accept a file that cannot be one of those that are read; in an artifact there may be one of the name `own`.

    Raises:
        ConfigError: it could be.
    """
    if path is None:
        return
    if path.suffix.lower() != suffix:
        raise ConfigError(f"{option} is {str(path)!r}; allowed: a name that ends with {suffix}. Choose another.")
    folder, place = artifact.resolve(), path.resolve()
    if folder.is_dir() and place.is_relative_to(folder) and (own is None or place != folder / own):
        allowed = f"allowed there: {own}" if own else "nothing is written there"
        raise ConfigError(f"{option} is {str(path)!r}, in what is read; {allowed}. Choose another.")
