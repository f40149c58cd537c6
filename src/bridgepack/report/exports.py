"""Renders the result of an export as text."""

from bridgepack.data.export import Export
from bridgepack.report.text import printable


def describe_export(export: Export) -> str:
    """Return the text of an export: format, source and files."""
    form = "one .npy file for each split" if export.pack_format == "npy" else "Parquet, the artifact as it is"
    lines = [
        f"{'Exported' if export.manifest else 'Would export'} {export.source} to {export.output}",
        "",
        f"{'for':<22}megatron-bridge {export.bridge_version}: {form}",
        f"{'made from':<22}{export.source_fingerprint[:12]}",
    ]
    if export.manifest is not None:
        lines.append(f"{'fingerprint':<22}{export.manifest.fingerprint[:12]}")
        for split in export.manifest.splits:
            num_bytes = sum(shard.num_bytes for shard in split.shards)
            files = f"{len(split.shards)} file{'s' if len(split.shards) > 1 else ''}"
            lines.append(f"{split.name:<22}{split.statistics.num_packs:,} packs in {files}, {num_bytes:,} bytes")
    return printable("\n".join(lines))
