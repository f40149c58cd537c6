"""Rules on the loss mask: its values and alignment pack by pack, and the tokens it trains over a whole split."""

import numpy as np

from bridgepack.records.words import count_text
from bridgepack.rules.judging.context import CannotJudgeError, require_known
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.rows import Offenders, Rows, rows_where, rows_with_tokens, sequences_where
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, artifact_rule, row_rule, wrong

#: Minimum trained runs to infer the alignment of a mask from.
MIN_RUNS = 8
#: Share of runs with the same token, 0-1: above the first it is the end of a prompt, below the second it is not.
CONSTANT_FRACTION = 0.9
VARIED_FRACTION = 0.5
#: Share of a split's sequences, 0-1, that must end with the same repeated token for it to count as padding.
PADDING_FRACTION = 0.01


@row_rule("BP310", ERROR, "PSB310")
def loss_mask_not_zero_or_one(rows: Rows) -> Offenders | None:
    """A mask element is neither 0 nor 1.

    Why: Silent: the host casts the mask to integers, so 0.5 trains nothing and 2 counts twice.
    Bad: loss_mask [0, 0.5, 0]. Good: loss_mask [0, 1, 0]. Fix: Store 0 or 1; the packed format has no weights.
    """
    if rows.has_binary_mask:
        return None
    mask = rows.stored_mask
    bad = np.flatnonzero((mask != 0) & (mask != 1))
    return rows_with_tokens(rows, bad, lambda position: f"mask element {mask[position]}", "0 or 1")


@row_rule("BP309", ERROR, "PSB309")
def loss_mask_not_shifted(rows: Rows) -> Offenders | None:
    """The mask at the last stored token of a sequence is not 0.

    Why: Silent: masks are stored rolled left by one, as labels are; without the roll the first token of every answer
        is not trained, and the token after its end is.
    Bad: input_ids [11, 12, 2], loss_mask [0, 1, 1]. Good: input_ids [11, 12, 2], loss_mask [1, 1, 0].
    Fix: Roll the mask inside each sequence: mask[1:] + [0].
    """
    is_bad = rows.is_trained[rows.sequence_end - 1] != 0
    return sequences_where(rows, is_bad, lambda _: "mask 1 at the last stored token", "0: nothing follows it")


@row_rule("BP335", WARNING, "PSB506")
def padding_trained(rows: Rows) -> Offenders | None:
    """The mask trains an EOS that follows an EOS: alignment padding.

    Why: Silent: trained-token counts are too high. Since Megatron-Bridge 0.7 the model learns to write EOS after EOS;
        before, the host drops these labels because their input is EOS.
    Bad: input_ids [11, 12, 2, 2, 2], loss_mask [1, 1, 1, 1, 0], EOS 2.
    Good: input_ids [11, 12, 2, 2, 2], loss_mask [1, 1, 0, 0, 0], EOS 2. Fix: Pad with mask 0 and build again.
    """
    eos = require_known(rows.context.eos_token_id, "eos_token_id")
    positions = rows.labels_after_eos
    bad = positions[rows.input_ids[positions + 1] == eos]
    return rows_with_tokens(rows, bad, lambda _: f"mask 1 between two tokens {eos}", "mask 0 in padding")


@row_rule("BP337", ERROR, "bridge/data/packing/gpt_sft.py:269", noticed="never")
def label_after_eos_trained(rows: Rows) -> Offenders | None:
    """The mask trains a label after an EOS, although the artifact's recipe masks these labels.

    Why: Silent: the packs are not those that bridgepack built, most often because the mask was not rolled left or was
        written again; the first token of every answer is then not trained.
    Bad: input_ids [11, 2, 5], loss_mask [0, 1, 0], EOS 2, preprocessing.labels_after_eos mask.
    Good: input_ids [11, 2, 5], loss_mask [1, 0, 0]. Fix: Build the artifact again.
    """
    if rows.context.labels_after_eos != "mask":
        return None
    eos = require_known(rows.context.eos_token_id, "eos_token_id")
    return rows_with_tokens(rows, rows.labels_after_eos, lambda _: f"mask 1 after {eos}", "mask 0 after EOS")


@row_rule("BP318", WARNING, "PSB318")
def pack_without_trained_token(rows: Rows) -> Offenders | None:
    """No token of a pack is trained (EOS inputs do not count).

    Why: Silent: the pack costs a full forward and adds nothing; a whole step of such packs logs a loss of 0 or NaN.
    Bad: input_ids [11, 12, 2], loss_mask [0, 0, 0]. Good: input_ids [11, 12, 2], loss_mask [0, 1, 0].
    Fix: Drop sequences without a trained token before packing.
    """
    is_bad = rows.per_row(rows.effective_per_sequence) == 0
    return rows_where(is_bad, lambda _: "0 trained tokens", "at least 1 trained token")


@row_rule("BP319", WARNING, "PSB319")
def sequence_without_trained_token(rows: Rows) -> Offenders | None:
    """No token of a sequence is trained (EOS inputs do not count), while other sequences of its pack are.

    Why: Silent: the sequence costs compute and trains nothing; often its answer was cut off.
    Bad: loss_mask [1, 0, 0, 0], seq_start_id [0, 2]. Good: loss_mask [1, 0, 1, 0], seq_start_id [0, 2].
    Fix: Drop sequences without a trained token before packing.
    """
    row_has_trained = rows.per_row(rows.effective_per_sequence)[rows.row_of_sequence] > 0
    is_bad = (rows.effective_per_sequence == 0) & row_has_trained
    return sequences_where(rows, is_bad, lambda _: "0 trained tokens", "at least 1 trained token")


@artifact_rule("BP332", WARNING, "PSB309")
def loss_mask_looks_unshifted(facts: ArtifactFacts) -> Found:
    """Trained runs begin right after a token that is nearly always the same, and end on EOS.

    Prompts nearly always end with the same token, e.g. the newline after `assistant`. In a label-aligned mask a run
    begins on that token, because its label is the answer's first token, and ends one token before EOS. In a mask
    that was not rolled, a run begins on the answer's first token and ends on EOS.

    Why: Silent: the first token of every answer is not trained.
    Bad: eight sequences such as input_ids [11, 9, 31, 2, 5], loss_mask [0, 0, 1, 1, 0]: runs begin after 9.
    Good: the same with loss_mask [0, 1, 1, 0, 0]: runs begin on 9.
    Fix: Roll the mask inside each sequence: mask[1:] + [0].
    """
    require_known(facts.context.eos_token_id, "eos_token_id")
    truths = [truth for truth in facts.require_truths() if truth.trained_begins.total() >= MIN_RUNS]
    if not truths:
        raise CannotJudgeError(f"fewer than {MIN_RUNS} trained runs begin inside a sequence")
    for truth in truths:
        runs = (truth.before_trained, truth.trained_begins)
        after_same, on_same = (max(tokens.values()) / tokens.total() for tokens in runs)
        ends_on_eos = truth.num_trained_ends_on_eos >= CONSTANT_FRACTION * max(truth.num_trained_ends, 1)
        if after_same >= CONSTANT_FRACTION and on_same < VARIED_FRACTION and ends_on_eos:
            actual = f"{after_same:.0%} of the trained runs begin after the same token"
            yield wrong(truth.split, actual, "runs that begin on a prompt's last token")


@artifact_rule("BP333", WARNING, "PSB526")
def loss_mask_trains_everything(facts: ArtifactFacts) -> Found:
    """Every sequence of a split trains all its labels, prompts included.

    Why: Silent: the model learns prompts. Old hosts give masks of ones for templates without `{% generation %}` blocks.
    Bad: loss_mask [1, 1, 1, 0] in every sequence of 4 stored tokens.
    Good: loss_mask [0, 1, 1, 0] if the first label belongs to the prompt.
    Fix: Mask the prompts, or set preprocessing.loss_mode to full if everything should be trained.
    """
    truths = facts.require_truths()
    if facts.context.loss_mode == "full":
        raise CannotJudgeError("loss_mode is full: every label is trained on purpose")
    for truth in truths:
        if truth.num_fully_trained == truth.num_sequences:
            yield wrong(
                truth.split,
                f"{count_text(truth.num_sequences, 'sequence')}, every label trained",
                "prompts with mask 0",
            )


@artifact_rule("BP334", WARNING, "PSB503")
def padding_not_eos(facts: ArtifactFacts) -> Found:
    """Sequences end with a repeated, untrained token that is not EOS: padding with another id.

    Why: Silent: the host finds alignment padding by the EOS id; other padding is attended to and counted as tokens.
    Bad: input_ids [11, 12, 2, 0, 0], loss_mask [1, 1, 0, 0, 0], EOS 2, pad_seq_to_mult 4.
    Good: input_ids [11, 12, 2, 2, 2], loss_mask [1, 1, 0, 0, 0], EOS 2, pad_seq_to_mult 4.
    Fix: Pad sequences with the tokenizer's EOS id and build again.
    """
    if require_known(facts.context.pad_seq_to_mult, "pad_seq_to_mult") == 1:
        raise CannotJudgeError("pad_seq_to_mult is 1: sequences have no padding")
    eos = require_known(facts.context.eos_token_id, "eos_token_id")
    for truth in facts.require_truths():
        for token, num_sequences in truth.repeated_tails.items():
            if num_sequences >= PADDING_FRACTION * truth.num_sequences:
                actual = (
                    f"{num_sequences} of {truth.num_sequences} sequences end with token {token} repeated, untrained"
                )
                yield wrong(truth.split, actual, f"padding with EOS, {eos}")


@artifact_rule("BP336", WARNING, "PSB505, PSB506")
def end_of_turn_never_trained(facts: ArtifactFacts) -> Found:
    """No trained label of a split is EOS.

    If the manifest says that answers end with another token, e.g. `<|eot_id|>`, this rule is skipped and
    `end-of-turn-not-trained` judges.

    Why: Silent: the model never learns to stop, unless its turns end with another token.
    Bad: input_ids [11, 12, 2], loss_mask [1, 0, 0], EOS 2. Good: input_ids [11, 12, 2], loss_mask [1, 1, 0], EOS 2.
    Fix: Let the mask cover the token that ends an answer; check the chat template and the tokenizer's eos_token.
    """
    eos = require_known(facts.context.eos_token_id, "eos_token_id")
    ends = facts.context.end_of_turn_ids
    if ends and eos not in ends:
        raise CannotJudgeError(f"answers end with {' or '.join(map(str, ends))}, not with EOS, {eos}")
    for truth in facts.require_truths():
        if truth.num_trained_tokens and not truth.num_trained_eos:
            actual = f"0 of {truth.num_trained_tokens} trained labels are EOS, {eos}"
            yield wrong(truth.split, actual, "answers that end with a trained EOS")
