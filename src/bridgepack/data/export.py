"""Writes an artifact in the format of another version of Megatron-Bridge; the rows stay the same.

Every version since 0.3 reads the same layout of rows: the runtime length, stored - 1, is a multiple of pad_seq_to_mult
and each reader takes runtime tokens in the same way. Only the container differs: one `.npy` file per split before
0.4, Parquet shards since.
"""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bridgepack.data import output as staging
from bridgepack.data.artifact.artifact import PLAN_FOLDER, Artifact, refuse_npy
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.manifest import write_manifest
from bridgepack.data.files import make_folders, replaced_when_whole
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.shards.npy import write_npy_rows
from bridgepack.data.tasks import Progress, SilentProgress
from bridgepack.errors import ArtifactError
from bridgepack.host import packed_file_name, release_of
from bridgepack.records import Manifest, RowBatch, ShardRecord, SplitRecord
from bridgepack.records.results import Result

#: Version of the bytes that an export writes for the same rows; part of an export's fingerprint.
_EXPORT_VERSION = 1
#: Stored tokens in memory at once; as Python objects they take about 40 bytes each.
_BATCH_TOKENS = 1 << 18


@dataclass(frozen=True, kw_only=True, slots=True)
class Export(Result):
    """An artifact in the format of another version of Megatron-Bridge."""

    DERIVED: ClassVar = ("is_written",)

    output: Path  #: folder of the export
    bridge_version: str  #: target version of megatron-bridge
    pack_format: str  #: `parquet`, the artifact unchanged, or `npy`
    source: Path  #: folder of the exported artifact
    source_fingerprint: str  #: fingerprint of that artifact
    manifest: Manifest | None = None  #: manifest of the export; None if nothing has been written

    def table(self) -> list[dict[str, Any]]:
        """Return the statistics of each split that was written."""
        splits = self.manifest.splits if self.manifest is not None else ()
        return [{"split": split.name, **asdict(split.statistics)} for split in splits]

    @property
    def is_written(self) -> bool:
        """Whether the export is written; otherwise this is a plan."""
        return self.manifest is not None


def plan_export(artifact: Path, output: Path, bridge_version: str) -> Export:
    """Return what an export would write, without writing it.

    Raises:
        ConfigError: the version is invalid, or older than 0.3.
        ArtifactError: `artifact` is not an artifact, or the output lies in it or holds other files.
    """
    release = release_of(bridge_version)
    manifest = Artifact(artifact).manifest
    for split in manifest.splits:
        refuse_npy(artifact, split.shards)
    inside, around = output.resolve(), artifact.resolve()
    if inside.is_relative_to(around) or around.is_relative_to(inside):
        raise ArtifactError(
            f"output is {str(output)!r}, which is the artifact {str(artifact)!r} or a folder in or around it. Choose a "
            "folder outside it."
        )
    staging.refuse_foreign_folder(output)
    return Export(
        output=output,
        bridge_version=bridge_version,
        pack_format=release.pack_format,
        source=artifact,
        source_fingerprint=manifest.fingerprint,
    )


def export_artifact(artifact: Path, output: Path, bridge_version: str, *, progress: Progress | None = None) -> Export:
    """Return the export of an artifact for a version of Megatron-Bridge, after writing it.

    Every shard is checked against its manifest first. An existing artifact at the output is replaced once the new one
    is complete. The export is also an artifact: its manifest names its source.

    Raises:
        ConfigError: the version is invalid, or older than 0.3.
        ArtifactError: the artifact is invalid or damaged, or the output cannot be written or holds other files.
    """
    plan, source = plan_export(artifact, output, bridge_version), Artifact(artifact)
    try:
        with staging.staging(output) as working:
            folder = working / staging.ARTIFACT
            manifest = _write(source, folder, plan, progress or SilentProgress())
            staging.move_into_place(folder, output)
    except OSError as error:
        raise ArtifactError(
            f"{str(output)!r} cannot be written: {error.strerror or error}. No partial files remain; free space or "
            "choose another --output."
        ) from error
    return replace(plan, manifest=manifest)


def _write(source: Artifact, folder: Path, plan: Export, progress: Progress) -> Manifest:
    manifest = source.manifest
    progress.start(f"Writing {plan.pack_format}", sum(split.statistics.num_packs for split in manifest.splits), "packs")
    # Provenance and the host's metadata, whose lengths mean the same in every version.
    for path in [source.folder / BRIDGE_METADATA_FILE, *(source.folder / PLAN_FOLDER).glob("*")]:
        _copy(path, folder / path.relative_to(source.folder))
    splits = tuple(_write_split(source, split, folder, plan, progress) for split in manifest.splits)
    progress.finish()
    note = {
        "value": plan.bridge_version,
        "because": f"exported from the artifact with fingerprint {plan.source_fingerprint}",
    }
    fingerprint = manifest.fingerprint
    if plan.pack_format != "parquet":  # other bytes have another fingerprint
        text = f"{manifest.fingerprint} as {plan.pack_format}, export version {_EXPORT_VERSION}"
        fingerprint = hashlib.sha256(text.encode()).hexdigest()
    resolved = {**manifest.resolved, "bridge_version": note}
    return write_manifest(folder, replace(manifest, fingerprint=fingerprint, splits=splits, resolved=resolved))


def _write_split(source: Artifact, split: SplitRecord, folder: Path, plan: Export, progress: Progress) -> SplitRecord:
    if plan.pack_format == "parquet":
        for shard in split.shards:
            _copy(source.path_of(shard), folder / shard.path)
            progress.advance(shard.num_rows)
        return split
    name = f"{split.name}/{packed_file_name(split.name, source.manifest.packed_sequence_size)}"
    path, num_rows = folder / name, sum(shard.num_rows for shard in split.shards)
    path.parent.mkdir()
    write_npy_rows(path, _watched(source, split, progress), num_rows)
    record = ShardRecord(path=name, num_rows=num_rows, num_bytes=path.stat().st_size, sha256=hash_file(path))
    return replace(split, shards=(record,))


def _watched(source: Artifact, split: SplitRecord, progress: Progress) -> Iterator[RowBatch]:
    for batch in source.iter_batches(split.name, max_tokens=_BATCH_TOKENS):
        yield batch
        progress.advance(batch.num_rows)


def _copy(source: Path, target: Path) -> None:
    make_folders(target.parent)
    with replaced_when_whole(target) as temporary:
        shutil.copyfile(source, temporary)
