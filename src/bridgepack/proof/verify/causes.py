"""Why a sequence is not what the sources give: what changed of those things that it depends on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from bridgepack.proof.verify.ingredients import describe_ingredient
from bridgepack.proof.verify.integrity import Integrity
from bridgepack.proof.verify.records import Cause, Ingredient, RowDifference


def with_causes(
    differences: Sequence[RowDifference],
    integrity: Integrity,
    changed: Sequence[Ingredient],
    *,
    is_rebuilt: bool,
    no_other: str,
) -> list[RowDifference]:
    """Return the differences, each with what can be its cause.

    Args:
        differences: as found.
        integrity: of the artifact's files.
        changed: ingredients that are not what they were.
        is_rebuilt: everything was built anew, so that any input can move any sequence to another pack.
        no_other: what is left where nothing else explains a difference.
    """
    found = []
    for item in differences:
        reasons = list(_reasons(item, integrity, changed, is_rebuilt=is_rebuilt))
        if not reasons:
            reasons = [("artifact changed", no_other)]
        causes = tuple(dict.fromkeys(cause for cause, _ in reasons))
        found.append(replace(item, causes=causes, cause="; or ".join(dict.fromkeys(text for _, text in reasons))))
    return found


def _reasons(
    item: RowDifference, integrity: Integrity, changed: Sequence[Ingredient], *, is_rebuilt: bool
) -> Iterator[tuple[Cause, str]]:
    if item.shard in integrity.changed_shards:
        yield "artifact changed", f"{item.shard} is not the file that the build wrote"
    if integrity.is_manifest_changed:
        yield "artifact changed", "manifest.json is not the one that the build wrote"
    for one in changed:
        if one.cause != "input changed" or is_rebuilt or item.file is None or one.name == item.file:
            yield one.cause, describe_ingredient(one)
