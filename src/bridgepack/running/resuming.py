"""Records the order of a run's packs beside its checkpoints, so that a resumed job reads them in the same order.

Megatron-Bridge resumes by skipping as many packs as the checkpoint counted. With another artifact or order, it skips
packs that were never read, without an error.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from bridgepack.bridge.replay_settings import replay_settings
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.files import write_text
from bridgepack.errors import ConfigError
from bridgepack.records import Finding, RunConfig
from bridgepack.records.guarded import DataOrder, ResumeFacts
from bridgepack.rules.engine.report import findings_of
from bridgepack.rules.registry import RESUME_RULES

#: File beside the checkpoints.
ORDER_FILE = "bridgepack.json"
#: Increased when older files could be misread.
FORMAT_VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class Resumption:
    """What a job finds that may resume from a checkpoint."""

    order: DataOrder | None = None  #: order of this job; None for a run that reads no packs
    checkpoint: Path | None = None  #: folder that the host resumes from; None for a new run
    before: DataOrder | None = None  #: order of the run that wrote the checkpoint; None if unknown
    findings: tuple[Finding, ...] = ()  #: reasons not to resume


def data_order(config: RunConfig, artifact: Path, *, world_size: int, version: str) -> DataOrder:
    """Return the order in which a run reads its packs; without a manifest only the artifact's path is known.

    Raises:
        ArtifactError: the manifest cannot be read.
    """
    if not (artifact / MANIFEST_FILE).is_file():
        return DataOrder(fingerprint="", artifact=str(artifact))
    manifest = read_manifest(artifact)
    known = DataOrder(fingerprint=manifest.fingerprint, artifact=str(artifact))
    num_packs = {split.name: split.statistics.num_packs for split in manifest.splits}
    try:
        settings = replay_settings(config, num_packs=num_packs, world_size=world_size, version=version)
    except ConfigError:  # a loader that cannot be replayed; the fingerprint is still compared
        return known
    return replace(
        known,
        global_batch_size=settings.global_batch_size,
        data_parallel_size=settings.topology.data_parallel_size,
        seed=settings.seed,
        num_packs=settings.num_samples,
    )


def resumption(checkpoint: Any, order: DataOrder, *, ignored: Mapping[str, str]) -> Resumption:
    """Return the checkpoint that a job resumes from by the host's CheckpointConfig, and conflicts with its order.

    Source: megatron/bridge/training/setup.py (load_checkpoint_exists) of 0.6.2.
    """
    from megatron.bridge.training.utils.checkpoint_utils import checkpoint_exists

    begins_anew = checkpoint.load is None or checkpoint.finetune or not checkpoint_exists(checkpoint.load)
    folder = None if begins_anew else Path(checkpoint.load)
    before = None if folder is None else read_order(folder)
    if folder is None or before is None:
        return Resumption(order=order, checkpoint=folder)
    facts = ResumeFacts(checkpoint=str(folder), before=before, now=order)
    findings = [
        finding
        for rule in RESUME_RULES
        if not ignored.get(rule.code, "").strip()
        for finding in findings_of(rule, list(rule.check(facts)), max_examples=1)
    ]
    return Resumption(order=order, checkpoint=folder, before=before, findings=tuple(findings))


def read_order(folder: Path) -> DataOrder | None:
    """Return the order of the run whose checkpoints are in a folder or its parent; None if not recorded.

    Raises:
        ConfigError: the file cannot be read.
    """
    for path in (folder / ORDER_FILE, folder.parent / ORDER_FILE):
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if not isinstance(content, dict) or content.get("format_version") != FORMAT_VERSION:
                raise ValueError("it has another format version")
            return TypeAdapter(DataOrder).validate_python(content)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"{path} cannot be read: {error}. It records the packs of the checkpoints beside it. "
                "Restore it, or remove it if you know that the packs are the same."
            ) from None
    return None


def write_order(folder: Path, order: DataOrder) -> None:
    """Write the order of a run beside its checkpoints.

    Raises:
        ConfigError: the folder cannot be written.
    """
    content = {"format_version": FORMAT_VERSION, **asdict(order)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / ORDER_FILE, json.dumps(content, indent=2) + "\n")
    except OSError as error:
        raise ConfigError(
            f"checkpoint.folder is {str(folder)!r}; nothing can be written there: {error}. Set a folder that can be "
            "written."
        ) from None
