"""Rules on rows with valid structure: widths, alignment, token ids."""

import numpy as np

from bridgepack.rules.engine.context import CannotJudgeError, known
from bridgepack.rules.engine.rows import Offenders, Rows, rows_where, rows_with_tokens, sequences_where
from bridgepack.rules.engine.rule import ERROR, WARNING, row_rule

#: The unfused rotary embedding loops over a row's sequences in Python, in every layer.
MAX_SEQUENCES_PER_ROW = 1024


@row_rule("BP330", ERROR, "PSB107")
def row_wider_than_pack(rows: Rows) -> Offenders | None:
    """A row has more runtime tokens than packed_sequence_size.

    Why: Crash, later, when the row is read: the collate fails an assertion without a message, in a DataLoader worker.
    Bad: 7 stored tokens in 2 sequences (5 runtime tokens), packed_sequence_size 4.
    Good: 6 stored tokens in 2 sequences (4 runtime tokens), packed_sequence_size 4.
    Fix: Build again with this packed_sequence_size, or raise it together with the model's seq_length.
    """
    size = known(rows.context.packed_sequence_size, "packed_sequence_size")
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
    multiple = known(rows.context.pad_seq_to_mult, "pad_seq_to_mult")
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

    Why: Silent with tensor parallelism: embedding and label's logit are zero. Crash without: CUDA device-side assert.
    Bad: input_ids [11, 100, 2], vocabulary of 100. Good: input_ids [11, 99, 2], vocabulary of 100.
    Fix: Tokenise with the tokenizer that the model is trained with, and build again.
    """
    context = rows.context
    limit = known(context.padded_vocab_size or context.vocab_size, "vocab_size")
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
    padded = known(rows.context.padded_vocab_size, "padded_vocab_size")
    limit = known(rows.context.vocab_size, "vocab_size")
    ids = rows.input_ids
    if ids.max() < limit:
        return None
    bad = np.flatnonzero((ids >= limit) & (ids < padded))
    return rows_with_tokens(rows, bad, lambda position: f"token id {ids[position]}", f"0 to {limit - 1}")


@row_rule("BP322", WARNING, "PSB322")
def too_many_sequences_in_row(rows: Rows) -> Offenders | None:
    """A row has very many sequences.

    Why: Slow: the unfused rotary embedding and some metrics loop over a row's sequences in Python, in every layer.
    Bad: 4096 sequences of 2 tokens in one row. Good: 512 sequences of 16 tokens in one row.
    Fix: Cap max_sequences_per_pack, drop the shortest sequences, or keep the fused rotary embedding on.
    """
    return rows_where(
        rows.sequences_per_row > MAX_SEQUENCES_PER_ROW,
        lambda row: f"{rows.sequences_per_row[row]} sequences",
        f"at most {MAX_SEQUENCES_PER_ROW} sequences",
    )
