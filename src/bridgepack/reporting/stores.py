"""Renders token stores as text."""

import time
from collections import Counter

from bridgepack.data.store.upkeep import Pruned, StoreListing, Verified
from bridgepack.records.words import counted
from bridgepack.reporting.text import printable

_SHOWN_FILES = 20
_SPANS = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


def describe_store(listing: StoreListing) -> str:
    """Return the contents of a store as text."""
    total = sum(entry.num_bytes for entry in listing.tokenizations) + listing.num_row_bytes
    lines = [f"{listing.folder}: {_size(total)}", "", "tokenisations"]
    for entry in listing.tokenizations:
        broken = f", {entry.num_broken:,} broken (see `store verify`)" if entry.num_broken else ""
        lines.append(
            f"  {entry.key[:12]}  {entry.tokenizer}, {entry.preprocessing}: {counted(entry.num_ranges, 'range')}, "
            f"{counted(entry.num_sequences, 'sequence')}, {counted(entry.num_tokens, 'token')}, "
            f"{_size(entry.num_bytes)}, last used "
            f"{_ago(entry.last_used_s)}{broken}"
        )
    lines += [] if listing.tokenizations else ["  none"]
    if listing.num_row_files:
        lines += [
            "",
            f"rows of datasets from Python: {counted(listing.num_row_files, 'file')}, {_size(listing.num_row_bytes)}",
        ]
    lines += ["", "artifacts built from them"]
    for artifact in listing.artifacts:
        state = "exists" if artifact.is_there else "deleted"
        missing = f", {artifact.num_missing:,} of them missing" if artifact.num_missing else ""
        lines.append(
            f"  {artifact.fingerprint[:12]}  {artifact.output} ({state}): "
            f"{counted(artifact.num_ranges, 'range')}{missing}"
        )
    return printable("\n".join([*lines, *([] if listing.artifacts else ["  none"])]))


def describe_pruned(pruned: Pruned) -> str:
    """Return the number and size of the files that were removed from a store, or would be, as text."""
    verb = "would remove" if pruned.is_dry_run else "removed"
    lines = [
        f"{verb} {counted(len(pruned.removed), 'file')}, {_size(pruned.num_bytes)}; "
        f"{_size(pruned.num_bytes_kept)} remain in "
        f"{pruned.folder}"
    ]
    reasons = Counter(reason for _, _, reason in pruned.removed)
    lines += [f"  {reason:<12}{count:>8,}" for reason, count in reasons.most_common()]
    return printable("\n".join(lines))


def describe_verified(verified: Verified) -> str:
    """Return the result of verifying every file of a store, as text."""
    lines = [f"{verified.folder}: {counted(verified.num_files, 'file')} verified, {len(verified.broken):,} broken"]
    lines += [f"  {reason}" for _, reason in verified.broken[:_SHOWN_FILES]]
    if len(verified.broken) > _SHOWN_FILES:
        lines.append(f"  ... and {len(verified.broken) - _SHOWN_FILES:,} more")
    if verified.were_removed:
        lines.append("They were removed; the next build makes them again.")
    return printable("\n".join(lines))


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 10**8 else f"{num_bytes / 1e6:,.1f} MB"


def _ago(moment_s: float) -> str:
    seconds = max(time.time() - moment_s, 0.0)
    for length_s, name in _SPANS:
        if seconds >= length_s:
            count = int(seconds // length_s)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
