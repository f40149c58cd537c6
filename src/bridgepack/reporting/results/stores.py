"""The blocks of token stores."""

import time
from collections import Counter
from collections.abc import Iterator

from bridgepack.data.store.upkeep import Pruned, StoreListing, Verified
from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Line, Section, Table, Title
from bridgepack.reporting.results import shows

_SHOWN_FILES = 20
_SPANS = ((86400.0, "day"), (3600.0, "hour"), (60.0, "minute"))


@shows
def store_blocks(listing: StoreListing) -> Iterator[Block]:
    """Yield the contents of a store."""
    total = sum(entry.num_bytes for entry in listing.tokenizations) + listing.num_row_bytes
    yield Title(f"{listing.folder}: {_size(total)}")
    yield Section("", (_tokenizations(listing),) if listing.tokenizations else (Line("tokenisations", ("none",)),))
    if listing.num_row_files:
        files = f"{count_text(listing.num_row_files, 'file')}, {_size(listing.num_row_bytes)}"
        yield Section("", (Line(f"rows of datasets from Python: {files}"),))
    title = "artifacts built from them"
    yield Section("", (_artifacts(listing, title),) if listing.artifacts else (Line(title, ("none",)),))


def _tokenizations(listing: StoreListing) -> Table:
    columns = (
        Column("", "{}"),
        Column("Key"),
        Column("Tokenizer", "  {}"),
        Column("Preprocessing", ", {}"),
        Column("Ranges", ": {}"),
        Column("Sequences", ", {}"),
        Column("Tokens", ", {}"),
        Column("", ", {}"),
        Column("Bytes", is_number=True),
        Column("Last used", ", last used {}"),
        Column("Broken", ", {} broken (see `store verify`)", is_number=True),
    )
    rows = [
        (
            entry.key[:12],
            entry.key,
            entry.tokenizer,
            entry.preprocessing,
            count_text(entry.num_ranges, "range"),
            count_text(entry.num_sequences, "sequence"),
            count_text(entry.num_tokens, "token"),
            _size(entry.num_bytes),
            f"{entry.num_bytes:,}",
            _ago(entry.last_used_s),
            f"{entry.num_broken:,}" if entry.num_broken else "",
        )
        for entry in listing.tokenizations
    ]
    return Table(title="Tokenisations", columns=columns, rows=rows, head="tokenisations")


def _artifacts(listing: StoreListing, title: str) -> Table:
    columns = (
        Column("Fingerprint", "{}"),
        Column("Artifact", "  {}"),
        Column("State", " ({})"),
        Column("Ranges", ": {}"),
        Column("Missing", ", {} of them missing", is_number=True),
    )
    rows = [
        (
            artifact.fingerprint[:12],
            str(artifact.output),
            "exists" if artifact.is_there else "deleted",
            count_text(artifact.num_ranges, "range"),
            f"{artifact.num_missing:,}" if artifact.num_missing else "",
        )
        for artifact in listing.artifacts
    ]
    return Table(title="Artifacts built from them", columns=columns, rows=rows, head=title)


@shows
def pruned_blocks(outcome: Pruned) -> Iterator[Block]:
    """Yield the number and size of the files that were removed from a store, or would be."""
    verb = "would remove" if outcome.is_dry_run else "removed"
    yield Line(
        f"{verb} {count_text(len(outcome.removed), 'file')}, {_size(outcome.num_bytes)}; "
        f"{_size(outcome.num_bytes_kept)} remain in {outcome.folder}"
    )
    reasons = Counter(reason for _, _, reason in outcome.removed)
    rows = [(reason, f"{count:,}") for reason, count in reasons.most_common()]
    columns = (Column("Reason", "{:<12}"), Column("Files", "{:>8}", is_number=True))
    if rows:
        yield Table(title="Files by reason", columns=columns, rows=rows)


@shows
def verified_blocks(outcome: Verified) -> Iterator[Block]:
    """Yield the result of verifying every file of a store."""
    items = [reason for _, reason in outcome.broken[:_SHOWN_FILES]]
    if len(outcome.broken) > _SHOWN_FILES:
        items.append(f"... and {len(outcome.broken) - _SHOWN_FILES:,} more")
    files = f"{count_text(outcome.num_files, 'file')} verified, {len(outcome.broken):,} broken"
    yield Line(f"{outcome.folder}: {files}", tuple(items))
    if outcome.were_removed:
        yield Line("They were removed; the next build makes them again.")


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 10**8 else f"{num_bytes / 1e6:,.1f} MB"


def _ago(moment_s: float) -> str:
    seconds = max(time.time() - moment_s, 0.0)
    for length_s, name in _SPANS:
        if seconds >= length_s:
            count = int(seconds // length_s)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
