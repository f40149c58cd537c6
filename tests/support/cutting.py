"""Rows through an encoder and through what a recipe does to sequences that are too long."""

from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.errors import RowError
from tests.support.small_builds import small_recipe


def policy_for(preprocessing: Mapping[str, Any], max_sequence_length: int, eos_token_id: int) -> SequencePolicy:
    """Return what a recipe with these settings does to long sequences."""
    packing = {"packed_sequence_size": 1 << 20, "max_sequence_length": max_sequence_length}
    recipe = small_recipe("unused.jsonl", "unused", preprocessing=dict(preprocessing), packing=packing)
    return SequencePolicy.of(recipe.resolve(), eos_token_id)


def cut(policy: SequencePolicy, encoded: Sequence[Encoded | RowError]) -> list[Encoded | RowError]:
    """Return sequences as they are cut, whether or not anything that stays is trained."""
    return [item if isinstance(item, RowError) else _cut(policy, item) for item in encoded]


def _cut(policy: SequencePolicy, item: Encoded) -> Encoded:
    if len(item.ids) - 1 <= policy.max_runtime_length:
        return item
    kept = policy.kept_parts(len(item.ids), item.num_context)
    ids, mask = ([value for part in kept for value in values[part]] for values in (item.ids, item.mask))
    return Encoded(ids, mask, item.num_context)
