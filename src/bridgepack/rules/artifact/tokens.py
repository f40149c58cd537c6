"""Rules on special tokens, pack by pack: EOS inside sequences, end of turn, BOS, tokens that are never trained."""

import numpy as np

from bridgepack.geometry import IntArray
from bridgepack.rules.judging.context import CannotJudgeError, require_known, require_known_release
from bridgepack.rules.judging.rows import Offenders, Rows, rows_where, rows_with_tokens, sequences_where
from bridgepack.rules.judging.rule import WARNING, row_rule

#: Minimum share of a row's trained labels, 0-1, for labels lost after EOS to be reported.
LOST_FRACTION = 0.01
#: Tokens that the host never trains and that only open a turn: their loss does not matter.
_OPEN_A_TURN = frozenset({"<|im_start|>", "<|start_header_id|>", "<|end_header_id|>", "<|begin_of_text|>"})


@row_rule("BP528", WARNING, "PSB501; bridge/data/packing/gpt_sft.py:269", noticed="never")
def labels_after_eos_lost(rows: Rows) -> Offenders | None:
    """At least 1% of a pack's trained labels follow an EOS inside a trained text, so the host drops them.

    Megatron-Bridge 0.7 trains them. For 0.6, the finding says how many labels of the pack each of them trains. A label
    after EOS that ends a trained run, such as the newline after a turn's end, does not count, nor do conversations
    trained as a whole, where that newline follows every turn; they do if preprocessing.labels_after_eos is train.

    Why: Silent: before 0.7 the host clears the mask wherever the input is EOS, so the first token of each further
        document or answer is never trained and trained-token counts are too high. In 0.7 these packs train otherwise.
    Bad: input_ids [11, 2, 21, 2], loss_mask [1, 1, 1, 0], EOS 2: the label 21 is lost.
    Good: input_ids [11, 2, 21, 2], loss_mask [1, 0, 1, 0], EOS 2, or one sequence per document.
    Fix: To train these labels, store each document as its own sequence, or train with 0.7. Otherwise build with
        preprocessing.labels_after_eos mask, or set the mask after each EOS to 0: then both train the same.
    Evidence: executed with the real collates of 0.6.2 and 0.7.
    """
    eos = require_known(rows.context.eos_token_id, "eos_token_id")
    release = require_known_release(rows.context.release)
    effective, num_trained = rows.per_row(rows.effective_per_sequence), rows.per_row(rows.trained_per_sequence)
    num_lost = num_trained - effective
    if rows.context.labels_after_eos != "train":
        if rows.context.loss_mode == "full":
            return None
        positions = rows.labels_after_eos
        inside = positions[(rows.input_ids[positions + 1] != eos) & (rows.is_trained[positions + 1] != 0)]
        num_lost = np.minimum(num_lost, rows.num_in_rows(inside))
    return rows_where(
        (num_lost > 0) & (num_lost >= LOST_FRACTION * num_trained),
        lambda row: (
            f"{num_lost[row]} of {num_trained[row]} trained labels follow an EOS, {eos}: of this pack "
            f"{release.name} trains {effective[row]} labels, 0.7 trains {num_trained[row]}"
        ),
        f"less than {LOST_FRACTION:.0%}",
    )


@row_rule("BP504", WARNING, "PSB504; bridge/data/packing/gpt_sft.py:230")
def sequence_of_eos_only(rows: Rows) -> Offenders | None:
    """Every input token of a sequence is EOS.

    Why: Silent: nothing of it is trained. If sequences are padded to a multiple, the host strips trailing EOS, and the
        logical length becomes 0, which models that unpack sequences for their positions refuse.
    Bad: input_ids [2, 2, 2], EOS 2. Good: input_ids [11, 12, 2], EOS 2. Fix: Drop empty examples before packing.
    Noticed: never; the first step with models that unpack sequences.
    Evidence: executed with the real 0.6.2 collate; Megatron-Bridge #5610.
    """
    require_known(rows.context.eos_token_id, "eos_token_id")
    sequences = rows.sequence_of(rows.eos_positions)
    is_input = rows.eos_positions + 1 < rows.sequence_end[sequences]
    num_eos = np.bincount(sequences[is_input], minlength=len(rows.starts))
    is_bad = num_eos == rows.runtime_lengths
    return sequences_where(rows, is_bad, lambda _: "EOS in every input position", "at least one other token")


@row_rule("BP506", WARNING, "PSB506, PSB505", noticed="never", evidence="inferred; the host keeps EOS as a label")
def end_of_turn_not_trained(rows: Rows) -> Offenders | None:
    """No answer of a pack trains the token that ends it, although the token before it is trained.

    Why: Silent: the model never learns to stop. Causes: masks made by token id while padding is EOS, or
        `{% generation %}` blocks that close before the end of the turn.
    Bad: input_ids [11, 12, 13, 2], loss_mask [1, 1, 0, 0], answers end with 2.
    Good: input_ids [11, 12, 13, 2], loss_mask [1, 1, 1, 0], answers end with 2.
    Fix: Mask padding by position, not by token id; move the end of turn inside the `{% generation %}` block.
    """
    ends = require_known(rows.context.end_of_turn_ids, "the token that ends an answer")
    if not ends:
        raise CannotJudgeError("answers end with plain text")
    positions = _inside(rows, _positions_of(rows, ends), distance=2)
    mask = rows.is_trained
    after_trained, after_untrained = positions[mask[positions - 1] != 0], positions[mask[positions - 1] == 0]
    after_untrained = after_untrained[mask[after_untrained - 2] != 0]
    num_trained, num_untrained = rows.num_in_rows(after_trained), rows.num_in_rows(after_untrained)
    return rows_where(
        (num_untrained > 0) & (num_trained == 0),
        lambda row: f"{num_untrained[row]} answers, none of which trains the token that ends it",
        f"answers whose last trained label is {' or '.join(map(str, ends))}",
    )


@row_rule("BP509", WARNING, "PSB509; bridge/data/token_utils.py:26", noticed="never", evidence="read in the source")
def control_token_of_answer_not_trained(rows: Rows) -> Offenders | None:
    """An answer contains a token that the host never trains, e.g. the `<|python_tag|>` of a Llama 3 tool call.

    Why: Silent: the model never learns to write it, so it never opens a tool call.
    Bad: input_ids [11, 9, 13, 2], loss_mask [0, 1, 1, 0], 9 being `<|python_tag|>`: its own label is masked.
    Good: input_ids [11, 9, 13, 2], loss_mask [1, 1, 1, 0].
    Fix: Set preprocessing.masks_control_tokens to false and build again.
    """
    if rows.context.loss_mode == "full":
        raise CannotJudgeError("loss_mode is full: control tokens around turns are masked as well")
    never_trained = require_known(rows.context.never_trained, "which tokens are never trained")
    texts = {index: text for text, index in never_trained.items() if text not in _OPEN_A_TURN}
    positions = _inside(rows, _positions_of(rows, tuple(texts)), distance=1)
    bad = positions[(rows.is_trained[positions - 1] == 0) & (rows.is_trained[positions] != 0)]
    return rows_with_tokens(
        rows, bad, lambda position: f"untrained {texts[int(rows.input_ids[position])]} before a trained token", "mask 1"
    )


@row_rule("BP531", WARNING, "PSB516", noticed="never", evidence="inferred")
def bos_twice(rows: Rows) -> Offenders | None:
    """A sequence begins with two BOS tokens.

    Why: Silent: pre-training and inference have one BOS; a template and a tokenizer that both write BOS give two.
    Bad: input_ids [1, 1, 11, 2], BOS 1. Good: input_ids [1, 11, 2], BOS 1.
    Fix: Encode rendered chats without special tokens, or set add_bos to false.
    """
    bos = require_known(rows.context.bos_token_id, "bos_token_id")
    if bos == rows.context.eos_token_id:
        raise CannotJudgeError("BOS and EOS are the same token")
    begin = rows.sequence_begin
    is_bad = (rows.input_ids[begin] == bos) & (rows.input_ids[begin + 1] == bos)
    return sequences_where(rows, is_bad, lambda _: f"two tokens {bos} at the start", f"one BOS, {bos}")


@row_rule("BP532", WARNING, "PSB516; bridge/data/sft_processing.py:393", noticed="never")
def bos_missing(rows: Rows) -> Offenders | None:
    """A prompt begins without BOS, although the tokenizer puts BOS before every text.

    Why: Silent: inference with this tokenizer begins with BOS, training did not; Gemma models degrade badly.
    Bad: input_ids [11, 12, 2], BOS 1, a tokenizer that encodes "x" as [1, 15]. Good: input_ids [1, 11, 12, 2], BOS 1.
    Fix: Set preprocessing.add_bos to true and build again. Evidence: read in the source: add_bos is false by default.
    """
    if not require_known(rows.context.expects_bos, "whether the tokenizer begins a text with BOS"):
        return None
    bos = require_known(rows.context.bos_token_id, "bos_token_id")
    is_bad = rows.input_ids[rows.sequence_begin] != bos
    return sequences_where(rows, is_bad, lambda _: "no BOS at the start", f"BOS, {bos}")


def _positions_of(rows: Rows, tokens: tuple[int, ...]) -> IntArray:
    return np.flatnonzero(np.isin(rows.input_ids, tokens))


def _inside(rows: Rows, positions: IntArray, *, distance: int) -> IntArray:
    """Return the positions at least `distance` tokens after the start of their sequence."""
    return positions[positions - rows.sequence_begin[rows.sequence_of(positions)] >= distance]
