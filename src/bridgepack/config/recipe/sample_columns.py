"""Columns that say how a row of token ids is laid out: pads, positions, and where its samples end."""

from bridgepack.records import SEQ_START_ID

MASK = "attention_mask"
#: Columns with each token's position in its sample.
POSITIONS = ("position_ids", "input_pos", "inputs_position")
#: Columns with each token's sample, as a number or a name; one value for the whole row is a row's own name.
NUMBERS = (
    *("segment_ids", "sequence_ids", "sequence_id", "document_ids", "document_id", "doc_ids", "sample_ids", "seq_ids"),
    *("seq_idx", "inputs_segmentation"),
)
#: Columns with the length of each sample, or a single number, the row's.
LENGTHS = (
    *("seq_lengths", "sequence_lengths", "seq_lens", "seqlens", "sample_lengths", "lengths", "packed_seq_lens"),
    *("length", "seq_length", "sequence_length", "seq_len", "num_tokens", "n_tokens", "token_count"),
)
#: Columns with the end of each sample, after a 0.
ENDS = (
    *("cu_seqlens", "cu_seqlens_q", "cu_seqlens_k", "cu_seq_lens", "cu_seq_lens_q", "cu_seq_lens_k"),
    *("cumulative_len", "seq_boundaries"),
)
#: Columns that say how a row of tokens is laid out; all are read.
SAMPLE_COLUMNS = frozenset({SEQ_START_ID, MASK, *POSITIONS, *NUMBERS, *LENGTHS, *ENDS})
