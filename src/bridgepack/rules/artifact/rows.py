"""Rules on packs: raw columns describe sequences of at least two stored tokens; then widths, alignment, token ids."""

from collections.abc import Callable

import numpy as np

from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import CannotJudgeError, require_known
from bridgepack.rules.judging.rows import BoolArray, Offenders, Rows, rows_where, rows_with_tokens, sequences_where
from bridgepack.rules.judging.rule import ERROR, WARNING, row_rule, structure_rule

#: The unfused rotary embedding loops over a pack's sequences in Python, in every layer.
MAX_SEQUENCES_PER_PACK = 1024


@row_rule("BP330", ERROR, "PSB107")
def pack_exceeds_its_size(rows: Rows) -> Offenders | None:
    """A pack has more runtime tokens than packed_sequence_size.

    Why: Crash later, when the pack is read: the collate fails an assertion without a message, in a DataLoader worker.
    Bad: 7 stored tokens in 2 sequences (5 runtime tokens), packed_sequence_size 4.
    Good: 6 stored tokens in 2 sequences (4 runtime tokens), packed_sequence_size 4.
    Fix: Build again with this packed_sequence_size, or raise it together with the model's seq_length.
    """
    size = require_known(rows.context.packed_sequence_size, "packed_sequence_size")
    return rows_where(
        rows.row_widths > size,
        lambda row: f"{rows.row_widths[row]} runtime tokens",
        f"at most packed_sequence_size, {size}",
    )


@row_rule("BP331", ERROR, "PSB106")
def sequence_not_aligned(rows: Rows) -> Offenders | None:
    """A sequence's physical runtime length is not a multiple of pad_seq_to_mult.

    Why: Crash or silent: context parallelism cuts each sequence into 2 * CP equal parts; unfused RoPE fails at the
        first step, fused RoPE trains on wrong positions.
    Bad: a sequence of 6 stored tokens (5 runtime), pad_seq_to_mult 4.
    Good: a sequence of 9 stored tokens (8 runtime), the last ones EOS with mask 0, pad_seq_to_mult 4.
    Fix: Build again with the pad_seq_to_mult of the topology; runtime length is stored length - 1.
    """
    multiple = require_known(rows.context.pad_seq_to_mult, "pad_seq_to_mult")
    if multiple < 1:
        raise CannotJudgeError("pad_seq_to_mult is less than 1 (BP351)")
    return sequences_where(
        rows,
        rows.runtime_lengths % multiple != 0,
        lambda sequence: f"{rows.runtime_lengths[sequence]} runtime tokens",
        f"a multiple of pad_seq_to_mult, {multiple}",
    )


@row_rule("BP311", ERROR, "PSB311")
def token_out_of_vocabulary(rows: Rows) -> Offenders | None:
    """A token id is negative or not in the vocabulary.

    Why: Silent with tensor parallelism: the embedding and the label's logit are zero. Without it, training stops with a
        CUDA device-side assert.
    Bad: input_ids [11, 100, 2], vocabulary of 100. Good: input_ids [11, 99, 2], vocabulary of 100.
    Fix: Tokenise with the tokenizer that the model is trained with, and build again.
    """
    context = rows.context
    limit = require_known(context.padded_vocab_size or context.vocab_size, "vocab_size")
    ids = rows.input_ids
    if ids.min() >= 0 and ids.max() < limit:
        return None
    bad = np.flatnonzero((ids < 0) | (ids >= limit))
    return rows_with_tokens(rows, bad, lambda position: f"token id {ids[position]}", f"0 to {limit - 1}")


@row_rule("BP312", WARNING, "PSB312")
def token_in_vocabulary_padding(rows: Rows) -> Offenders | None:
    """A token id is beyond the tokenizer's vocabulary, in the padding of the model's embedding.

    Why: Silent: these rows of the embedding were never trained.
    Bad: input_ids [11, 101, 2], vocabulary of 100, padded to 128.
    Good: input_ids [11, 99, 2], vocabulary of 100, padded to 128.
    Fix: Tokenise with the tokenizer that the model is trained with, and build again.
    """
    padded_size = require_known(rows.context.padded_vocab_size, "padded_vocab_size")
    limit = require_known(rows.context.vocab_size, "vocab_size")
    ids = rows.input_ids
    if ids.max() < limit:
        return None
    bad = np.flatnonzero((ids >= limit) & (ids < padded_size))
    return rows_with_tokens(rows, bad, lambda position: f"token id {ids[position]}", f"0 to {limit - 1}")


@row_rule("BP322", WARNING, "PSB322")
def too_many_sequences_in_pack(rows: Rows) -> Offenders | None:
    """A pack has very many sequences.

    Why: Slow: the unfused rotary embedding and some metrics loop over a pack's sequences in Python, in every layer.
    Bad: 4096 sequences of 2 tokens in one pack. Good: 512 sequences of 16 tokens in one pack.
    Fix: Cap max_sequences_per_pack, drop the shortest sequences, or keep the fused rotary embedding on.
    """
    return rows_where(
        rows.sequences_per_row > MAX_SEQUENCES_PER_PACK,
        lambda row: f"{rows.sequences_per_row[row]} sequences",
        f"at most {MAX_SEQUENCES_PER_PACK} sequences",
    )


@structure_rule("BP328", ERROR, "PSB302")
def pack_empty(rows: Rows) -> Offenders:
    """A pack has no tokens.

    Why: Crash later: the host's collate concatenates zero sequences, in a DataLoader worker, when the pack is read.
    Bad: input_ids [], loss_mask [], seq_start_id [].
    Good: input_ids [11, 12, 2], loss_mask [1, 1, 0], seq_start_id [0].
    Fix: Remove packs without tokens and build the artifact again.
    """
    is_empty = rows.row_lengths == 0
    return rows_where(is_empty, lambda _: "0 stored tokens", "at least 2 stored tokens")


@structure_rule("BP327", ERROR, "PSB304")
def pack_without_sequence(rows: Rows) -> Offenders:
    """A pack has tokens and an empty seq_start_id.

    Why: Crash later: the host's collate concatenates zero sequences, in a DataLoader worker, when the pack is read.
    Bad: input_ids [11, 12, 2], seq_start_id []. Good: input_ids [11, 12, 2], seq_start_id [0].
    Fix: Store the first token of every sequence; a pack of one sequence has seq_start_id [0].
    """
    is_bare = (rows.sequences_per_row == 0) & (rows.row_lengths > 0)
    return rows_where(is_bare, lambda _: "seq_start_id []", "at least one start, the first 0")


@structure_rule("BP303", ERROR, "PSB303")
def loss_mask_length_differs(rows: Rows) -> Offenders:
    """loss_mask and input_ids of a pack have different lengths.

    Why: Silent: a short mask is padded at the pack's end, so later sequences train wrong labels. A mask that is too
        long is a crash.
    Bad: input_ids [11, 12, 2], loss_mask [1, 0]. Good: input_ids [11, 12, 2], loss_mask [1, 1, 0].
    Fix: Store one mask element per stored token, and build the artifact again.
    """
    differs = rows.mask_lengths != rows.row_lengths
    return rows_where(
        differs,
        lambda row: f"{rows.mask_lengths[row]} mask elements for {rows.row_lengths[row]} tokens",
        "one mask element per stored token",
    )


@structure_rule("BP304", ERROR, "PSB304")
def first_start_not_zero(rows: Rows) -> Offenders:
    """The first seq_start_id of a pack is not 0.

    Why: Silent: tokens before the first start are dropped from inputs and labels.
    Bad: seq_start_id [1, 4]. Good: seq_start_id [0, 4]. Fix: Begin seq_start_id with 0 and build the artifact again.
    """
    has_start = rows.sequences_per_row > 0
    first = np.zeros(rows.num_rows, dtype=np.int64)
    first[has_start] = rows.starts[rows.start_offsets[:-1][has_start]]
    return rows_where(first != 0, lambda row: f"first start {first[row]}", "0")


@structure_rule("BP305", ERROR, "PSB305")
def final_boundary_stored(rows: Rows) -> Offenders:
    """seq_start_id ends with the pack's length, as cu_seqlens do.

    Why: Silent: the host appends the boundary itself, so cu_seqlens decrease at the end; some kernels crash on it.
    Bad: 7 stored tokens, seq_start_id [0, 4, 7]. Good: 7 stored tokens, seq_start_id [0, 4].
    Fix: Remove the last boundary from seq_start_id.
    """
    is_bad = rows.is_last_start & (rows.starts == rows.row_lengths[rows.row_of_sequence]) & (rows.starts > 0)
    return _sequences(rows, is_bad, lambda start: f"last start {rows.starts[start]}, the pack's length")


@structure_rule("BP307", ERROR, "PSB307")
def start_outside_pack(rows: Rows) -> Offenders:
    """A seq_start_id is negative or beyond the pack's end.

    Why: Crash or silent: position ids and inputs differ in length; the host compares them in a batch's first pack only.
    Bad: 7 stored tokens, seq_start_id [0, 9]. Good: 7 stored tokens, seq_start_id [0, 4].
    Fix: Store starts in stored tokens of the same pack and build the artifact again.
    """
    lengths = rows.row_lengths[rows.row_of_sequence]
    is_bad = (rows.starts < 0) | (rows.starts > lengths)
    return _sequences(
        rows, is_bad, lambda start: f"start {rows.starts[start]} in a pack of {lengths[start]} stored tokens"
    )


@structure_rule("BP306", ERROR, "PSB306")
def sequence_too_short(rows: Rows) -> Offenders:
    """A sequence has fewer than two stored tokens, or starts do not increase.

    Why: Silent: a gap of 0 makes cu_seqlens decrease; a gap of 1 makes a sequence without runtime tokens.
    Bad: seq_start_id [0, 4, 4], or [0, 4, 5]. Good: seq_start_id [0, 4, 6].
    Fix: Drop sequences of fewer than two tokens and store starts in increasing order.
    """
    is_final_boundary = rows.is_last_start & (rows.gaps <= 0)
    is_bad = (rows.gaps < 2) & ~is_final_boundary
    return _sequences(
        rows,
        is_bad,
        lambda start: f"start {rows.starts[start]} and {count_text(int(rows.gaps[start]), 'token')} to the next",
    )


def _sequences(rows: Rows, is_bad: BoolArray, say_actual: Callable[[int], str]) -> Offenders:
    return sequences_where(
        rows, is_bad, say_actual, "starts from 0, each at least 2 before the next and the pack's end"
    )
