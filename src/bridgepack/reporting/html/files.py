"""Writes the page and the card of an artifact atomically, and never over files that are read."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.bridge.targets import Target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.editing.yaml_text import block_lines
from bridgepack.data.artifact.artifact import CARD_FILE, REPORT_FILE
from bridgepack.data.artifact.discovery import find_shards
from bridgepack.data.artifact.manifest import MANIFEST_FILE
from bridgepack.data.reading.remote import CloudPath
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records import INPUT_IDS, LOSS_MASK, SEQ_START_ID, TRAIN, Manifest, SplitRecord
from bridgepack.records.results import Result
from bridgepack.reporting.checks import staged_report
from bridgepack.reporting.html.page import artifact_page
from bridgepack.reporting.html.render import render_template
from bridgepack.reporting.html.sign_off import sign_off
from bridgepack.rules.judging.report import CheckReport

#: Bytes per number of each column; `datasets` adds four per list for its offset.
_ITEM_BYTES = {INPUT_IDS: 4, LOSS_MASK: 1, SEQ_START_ID: 4}
_OFFSET_BYTES = 4


def dataset_card(folder: Path, manifest: Manifest | None) -> str:
    """Return a card: `configs` and `dataset_info` in YAML, then a description of the artifact and its use.

    Raises:
        ArtifactError: the packs have no manifest, which the card needs.
    """
    if manifest is None:
        raise ArtifactError(f"{str(folder)!r} has no manifest, which a dataset card needs. Remove --card.")
    metadata = [line for name, value in _metadata(manifest).items() for line in block_lines(name, value, "  ")]
    return render_template("card.md.jinja", metadata="\n".join(metadata), name=folder.resolve().name, manifest=manifest)


def _metadata(manifest: Manifest) -> dict[str, Any]:
    splits = [_split(split) for split in manifest.splits]
    pairs = zip(manifest.splits, splits, strict=True)
    files = [{"split": named["name"], "path": f"{split.name}/*.parquet"} for split, named in pairs]
    return {
        "tags": ["sft", "packed", "megatron-bridge", "bridgepack"],
        "configs": [{"config_name": "default", "data_files": files}],
        "dataset_info": {
            "features": [
                {"name": INPUT_IDS, "list": "int32"},
                {"name": LOSS_MASK, "list": "int8"},
                {"name": SEQ_START_ID, "list": "int32"},
            ],
            "splits": splits,
            "download_size": sum(shard.num_bytes for split in manifest.splits for shard in split.shards),
            "dataset_size": sum(split["num_bytes"] for split in splits),
        },
    }


def _split(split: SplitRecord) -> dict[str, Any]:
    numbers = split.statistics
    stored = numbers.num_tokens + numbers.num_alignment_tokens + numbers.num_sequences
    num_bytes = stored * (_ITEM_BYTES[INPUT_IDS] + _ITEM_BYTES[LOSS_MASK])
    num_bytes += (
        numbers.num_sequences * _ITEM_BYTES[SEQ_START_ID] + len(_ITEM_BYTES) * _OFFSET_BYTES * numbers.num_packs
    )
    name = "train" if split.name == TRAIN else split.name
    return {"name": name, "num_bytes": num_bytes, "num_examples": numbers.num_packs}


@dataclass(frozen=True, kw_only=True, slots=True)
class WrittenReport(Result):
    """The result of writing a report.

    Attributes:
        report: the report of `check` on the artifact.
        files: `output`, `card` and `sign_off` -> paths of the page, the dataset card and the sign-off page; None if
            not requested.
        num_doubted: sequences of the sign-off's sample whose loss mask another derivation contradicts.
    """

    report: CheckReport
    files: Mapping[str, Path | None]
    num_doubted: int = 0

    @property
    def fails(self) -> bool:
        """Whether the run is not ready: an error of `check`, or a loss mask in doubt."""
        return self.report.fails() or self.num_doubted > 0

    def headline(self) -> str:
        """Return what came out, in one line."""
        files = " and ".join(str(path) for path in self.files.values() if path is not None)
        return f"{files}; {self.report.headline()}"

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON."""
        files = {name: None if path is None else str(path) for name, path in self.files.items()}
        return {**files, "num_doubted": self.num_doubted, "check": self.report.to_dict()}

    def table(self) -> Iterable[Mapping[str, Any]]:
        """Return the findings."""
        return self.report.table()


def write_report(
    artifact: Path,
    options: CheckOptions,
    *,
    output: Path | None = None,
    card: Path | None = None,
    signed: Path | None = None,
    target: Target | None = None,
) -> WrittenReport:
    """Write an artifact's page, dataset card and sign-off page; return their paths and the report of the rules.

    `artifact` may be packed files of another tool, too: a folder, a file or a pattern; `output` is by default
    `report.html` in the artifact, `target` as of `artifact_page`.

    Raises:
        ConfigError: a file cannot be written, or would overwrite the artifact.
        ArtifactError: the folder is not an artifact.
        RuleCrashError: a rule raised.
    """
    check_place("--output", output, artifact, suffix=".html", own=REPORT_FILE)
    check_place("--card", card, artifact, suffix=".md", own=CARD_FILE)
    check_place("--sign-off", signed, artifact, suffix=".html")
    if output is None and isinstance(artifact, CloudPath):
        raise ConfigError(f"--output is not given; a report cannot be written to {str(artifact)!r}. Give a local file.")
    has_manifest = (artifact / MANIFEST_FILE).exists()
    if output is None and not has_manifest and find_shards(artifact).paths:
        raise ConfigError("--output is not given; for packs without a manifest it is required. Give a file.")
    if card is not None and not has_manifest:
        raise ConfigError(f"--card needs {MANIFEST_FILE}, which {str(artifact)!r} does not have. Remove --card.")
    output = output or artifact / REPORT_FILE
    if signed is not None and signed.resolve() == output.resolve():
        raise ConfigError(f"--sign-off is {str(signed)!r}, as --output is. Choose another name for one of them.")
    page = artifact_page(artifact, options, target)
    text = None if card is None else dataset_card(artifact, page.facts.manifest)
    run = None if signed is None else sign_off(page, None if target is None else target.recipe)
    with (
        staged_report(output, page.html()),
        staged_report(card, text or "", option="--card"),
        staged_report(signed, "" if run is None else run.html(), option="--sign-off"),
    ):
        pass
    files = {"output": output, "card": card, "sign_off": signed}
    return WrittenReport(report=page.report, files=files, num_doubted=0 if run is None else run.num_doubted)


def check_place(option: str, path: Path | None, artifact: Path, *, suffix: str, own: str | None = None) -> None:
    """Check that a file to write is not one that is read; inside an artifact only the name `own` is allowed.

    Raises:
        ConfigError: the file is not allowed.
    """
    if path is None:
        return
    if path.suffix.lower() != suffix:
        raise ConfigError(f"{option} is {str(path)!r}; allowed: a name that ends with {suffix}. Choose another.")
    folder, place = artifact.resolve(), path.resolve()
    if folder.is_dir() and place.is_relative_to(folder) and (own is None or place != folder / own):
        allowed = f"allowed there: {own}" if own else "no file may be written there"
        raise ConfigError(f"{option} is {str(path)!r}, inside the folder that is read; {allowed}. Choose another.")
