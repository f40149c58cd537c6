"""Rules on how an artifact was built, from its manifest: rows dropped, cut or changed, and what the template does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridgepack.records import DropReason, SplitRecord
from bridgepack.rules.artifact.contents import example_of
from bridgepack.rules.judging.context import CannotJudgeError, require_known, section, section_of_kind
from bridgepack.rules.judging.facts import MANIFEST_FILE, ArtifactFacts
from bridgepack.rules.judging.rule import ADVICE, ERROR, EXECUTED, READ, WARNING, Found, artifact_rule, wrong

_PER_ROW = "executed, with each row at build time"
#: Minimum input rows for a share of cut rows to be meaningful.
MIN_ROWS = 100
#: Share of a split's input rows, 0-1: dropped rows are reported above it, cut rows from it on.
DROPPED_FRACTION = 0.01
CUT_FRACTION = 0.01
CUT_CHATS_FRACTION = 0.05
#: Share of a split's input rows, 0-1, above which dropping them is an error.
MOST_DROPPED_FRACTION = 0.2

_OVER_LONG = (DropReason.OVER_LONG, DropReason.TRUNCATED_NO_TRAINED_TOKEN)
_NO_MASK = (DropReason.NO_ASSISTANT_MASK, DropReason.BOUNDARY_IN_TOKEN, DropReason.CONTROL_TOKENS_IN_TEXT)
#: Reasons for drops, without those that the recipe asks for.
FAULTS = tuple(reason for reason in DropReason if reason not in (DropReason.NOT_SAMPLED, DropReason.DUPLICATE))
_REFUSED = tuple(reason for reason in FAULTS if reason not in (*_OVER_LONG, *_NO_MASK))

_ASSISTANT = "assistant"

_IN_THE_LEDGER = "correct the data or the recipe; the drop ledger lists every dropped row"
#: Drop reason that is a fault -> what to do about it.
CURES: Mapping[DropReason, str] = {
    DropReason.INVALID_JSON: _IN_THE_LEDGER,
    DropReason.NOT_AN_OBJECT: _IN_THE_LEDGER,
    DropReason.INVALID_FIELD: _IN_THE_LEDGER,
    DropReason.EMPTY_CONVERSATION: _IN_THE_LEDGER,
    DropReason.TOO_SHORT: _IN_THE_LEDGER,
    DropReason.TRUNCATED_NO_TRAINED_TOKEN: _IN_THE_LEDGER,
    DropReason.TOKEN_OUT_OF_VOCABULARY: _IN_THE_LEDGER,
    DropReason.ROW_TOO_LARGE: _IN_THE_LEDGER,
    DropReason.TOKENIZER_FAILED: _IN_THE_LEDGER,
    DropReason.OUT_OF_MEMORY: _IN_THE_LEDGER,
    DropReason.TIME_OUT: _IN_THE_LEDGER,
    DropReason.MISSING_FIELD: "name the columns in data.layout; give each shape of rows a source with its layout",
    DropReason.UNKNOWN_ROLE: "name the role in data.role_aliases",
    DropReason.TEMPLATE_ERROR: "correct what the template's message names in the rows (Mistral's templates want ids of "
    "nine letters and digits in calls and results); leave preprocessing.null_content at auto if content is null, or "
    "use another template",
    DropReason.CONTROL_TOKENS_IN_TEXT: "remove the control tokens from the texts",
    DropReason.LOST_CONTENT: "fix the data or the template, or set preprocessing.on_lost_content to keep",
    DropReason.NO_ASSISTANT_MASK: "set preprocessing.assistant_markers, or use another template; where the reason is "
    "that there is no assistant turn, add the answer or remove the row; where it names the generation prompt, set "
    "preprocessing.mask_generation_prompt to false",
    DropReason.BOUNDARY_IN_TOKEN: "give turns without a thought the one that the generation prompt begins, or train "
    "and serve them with the template's switch, such as enable_thinking: false, if it has one; or give them weight 0 "
    "with preprocessing.message_weights mask, set preprocessing.mask_generation_prompt to false, or use a tokenizer "
    "that has the template's markers as tokens",
    DropReason.OVER_LONG: "raise packing.max_sequence_length, or set preprocessing.over_long to truncate or split",
    DropReason.NO_TRAINED_TOKEN: "check that the rows have answers",
}


@artifact_rule("BP508", WARNING, "PSB508; bridge/data/datasets/utils.py:957", noticed="dataset build", evidence=READ)
def many_chats_without_mask(facts: ArtifactFacts) -> Found:
    """More than 1% of a split's rows were dropped because their assistant tokens are unknown.

    Why: Silent here: their answers are missing. The host's own data preparation fails at the first such row.
    Bad: 110 rows read, 10 dropped as no_assistant_mask. Good: 100 rows read, none dropped.
    Fix: Give the chat template `{% generation %}` blocks, or set preprocessing.assistant_markers.
    """
    return _find_drops(facts, _NO_MASK, DROPPED_FRACTION, "without an assistant mask")


@artifact_rule("BP510", WARNING, "PSB510; bridge/data/packing/algorithms.py:167", evidence=EXECUTED)
def many_rows_over_long(facts: ArtifactFacts) -> Found:
    """More than 1% of a split's rows were dropped because they are over-long, or 5% of 100 or more dropped or cut.

    Why: Silent: the longest answers are missing or end in mid-sentence, and the model learns to be short.
    Bad: 110 rows read, 10 dropped as over_long. Good: 101 rows read, 1 dropped as over_long.
    Fix: Raise packed_sequence_size, max_sequence_length and seq_length, or set preprocessing.over_long to
        split_exchanges for conversations, and to split for other rows.
    Noticed: never; the host writes a log line.
    """
    yield from _find_drops(facts, _OVER_LONG, DROPPED_FRACTION, "over-long")
    yield from _dropped_pieces(facts, _OVER_LONG, DROPPED_FRACTION, "over-long")
    yield from _shares(facts, _num_cut_alone, CUT_CHATS_FRACTION, "over-long rows, dropped or cut")


@artifact_rule("BP511", WARNING, "PSB511; bridge/data/sft_processing.py:445", noticed="never", evidence=READ)
def cut_completions_end_with_eos(facts: ArtifactFacts) -> Found:
    """At least 1% of a split's sequences were cut, and EOS was added after completions that lost their end.

    Why: Silent: the model learns to stop in mid-sentence.
    Bad: 20 of 100 sequences cut, add_eos true, ends_cut_completions true.
    Good: 20 of 100 sequences cut, ends_cut_completions false.
    Fix: Set preprocessing.ends_cut_completions to false, or over_long to drop, and build again.
    """
    preprocessing = _prompt_completion(facts)
    if preprocessing.get("add_eos") is False or preprocessing.get("ends_cut_completions") is False:
        return ()
    return _shares(facts, _num_cut, CUT_FRACTION, "cut sequences that end with EOS")


@artifact_rule("BP514", WARNING, "PSB514; bridge/data/sft_processing.py:94", noticed="never", evidence=READ)
def prompts_lose_their_end(facts: ArtifactFacts) -> Found:
    """At least 1% of a split's sequences were cut at the end of the prompt, where the question often is.

    Why: Silent: the model is trained to answer questions that it does not see.
    Bad: 20 of 100 sequences cut, truncation_method right. Good: 20 of 100 sequences cut, truncation_method left.
    Fix: Set preprocessing.truncation_method to left, or over_long to drop, and build again.
    """
    if _prompt_completion(facts).get("truncation_method") != "right":
        return ()
    return _shares(facts, _num_cut, CUT_FRACTION, "sequences lost the end of their prompt")


@artifact_rule("BP519", WARNING, "PSB518, PSB519; bridge/data/sft_processing.py:177", noticed="dataset build")
def many_rows_refused(facts: ArtifactFacts) -> Found:
    """More than 1% of a split's rows were dropped because they do not match the recipe.

    Why: Silent here: part of the data is missing. The host's own data preparation fails at the first such row, e.g. at
        a row with a missing column, with two schemas, or with fewer than two tokens.
    Bad: 110 rows read, 10 dropped as missing_field. Good: 100 rows read, none dropped.
    Fix: Read the drop ledger; correct data.layout or the data, and build again. Evidence: read in the source.
    """
    return _find_drops(facts, _REFUSED, DROPPED_FRACTION, "that could not be used")


@artifact_rule("BP543", ERROR, "bridgepack manifest", noticed="never", evidence=READ)
def many_rows_dropped(facts: ArtifactFacts) -> Found:
    """More than 20% of a split's rows were dropped (duplicates do not count).

    Why: Silent here: a large part of the data is missing, most often because the recipe names the wrong columns.
    Bad: 4 rows read, 1 dropped as missing_field. Good: 4 rows read, none dropped.
    Fix: Correct the setting or the data behind the most frequent reason; the drop ledger lists every dropped row.
    """
    return _find_drops(facts, FAULTS, MOST_DROPPED_FRACTION, "dropped")


@artifact_rule("BP329", ADVICE, "bridgepack manifest", noticed="never", evidence=READ)
def files_not_read(facts: ArtifactFacts) -> Found:
    """The folders of the data have files that no build reads: hidden ones, and those of other kinds by their names.

    Why: Silent: the rows of such a file, e.g. of `part.txt` or `part.jsonl.bak`, are missing, and no drop counts them.
    Bad: skipped_files has 1 file of another kind. Good: no skipped_files.
    Fix: Rename files with rows so that they end in .jsonl, .json, .csv, .tsv, .parquet or .arrow; move the rest away,
        or name the files in data.train instead of their folder.
    """
    for split in facts.require_manifest().splits:
        if split.skipped_files is not None:
            yield wrong(f"{MANIFEST_FILE} {split.name} skipped_files", split.skipped_files.describe(), "none")


@artifact_rule("BP537", WARNING, "tokenizer probe", noticed="never")
def template_drops_tool_names(facts: ArtifactFacts) -> Found:
    """The chat template writes the arguments of a tool call without the function's name.

    Why: Silent: the model learns to call tools without naming them. Templates that write a call's id instead of its
        name, such as Kimi K2's, need ids like `functions.lookup:0`.
    Bad: a template that renders a call of `lookup` with id `call00001` as `<|tool_call_begin|>call00001`.
    Good: a template that renders it as `<|tool_call_begin|>lookup`.
    Fix: Set tokenizer.chat_template to a template that writes the name; or put the name into the ids of the calls, and
        ignore this finding, as you do if the data has no tool calls. Evidence: executed with a probe conversation at
        build time.
    """
    if require_known(
        facts.require_manifest().tokenizer.get("drops_tool_names"), "how the chat template writes tool calls"
    ):
        yield wrong(MANIFEST_FILE, "tokenizer.drops_tool_names is true", "false")


@artifact_rule("BP545", WARNING, "bridgepack manifest", noticed="never", evidence=READ)
def template_writes_day_of_build(facts: ArtifactFacts) -> Found:
    """The chat template writes today's date, and the recipe does not set a date.

    Why: Silent: every row has the day of the build, so the same recipe gives different rows tomorrow.
    Bad: tokenizer.template_date is 2025-06-30 in the manifest and null in its recipe. Good: it is 2025-06-30 in both.
    Fix: Set tokenizer.template_date, or the template's date variable in tokenizer.chat_template_kwargs.
    """
    manifest = facts.require_manifest()
    day, settings = manifest.tokenizer.get("template_date"), section(manifest.recipe, "tokenizer")
    variables = settings.get("chat_template_kwargs") or {}
    if day and settings.get("template_date") is None and not any("date" in name for name in variables):
        yield wrong(MANIFEST_FILE, f"the template writes the day of the build, {day}", "tokenizer.template_date set")


def _prompt_completion(facts: ArtifactFacts) -> Mapping[str, Any]:
    """Return the recipe's preprocessing; raises `CannotJudgeError` unless the rows are prompts with completions."""
    preprocessing = section_of_kind(facts.require_manifest().recipe, "prompt_completion")
    if preprocessing is None:
        raise CannotJudgeError("the rows were not built from prompts and completions")
    return preprocessing


def _num_dropped(split: SplitRecord, reasons: Sequence[DropReason]) -> int:
    return sum(split.drops.get(reason, 0) for reason in reasons)


def _most_frequent(split: SplitRecord, reasons: Sequence[DropReason]) -> DropReason:
    return max(reasons, key=lambda reason: split.drops.get(reason, 0))


def _main_fault(split: SplitRecord) -> DropReason | None:
    """Return the reason that BP543 names; None if it reports nothing of a split."""
    is_reported = _num_dropped(split, FAULTS) > MOST_DROPPED_FRACTION * split.statistics.num_rows_in
    return _most_frequent(split, FAULTS) if is_reported else None


def _cure(facts: ArtifactFacts, reason: DropReason) -> str:
    """Return what to do about a reason; for over-long conversations, how to cut them between exchanges."""
    chat = section_of_kind(facts.require_manifest().recipe, "chat")
    if reason not in _OVER_LONG or chat is None:
        return CURES[reason]
    longer = "raise packing.max_sequence_length"
    if chat.get("over_long") in ("split_exchanges", "truncate_history"):
        return f"{longer}: one exchange alone, with the system prompt and the tools, is longer"
    is_split = chat.get("split_conversations", "never") == "never" and chat.get("loss_mode", _ASSISTANT) == _ASSISTANT
    action = "split_exchanges" if is_split else "truncate_history"
    return f"{longer}, or set preprocessing.over_long to {action}, which cuts conversations between exchanges"


def _num_cut_alone(split: SplitRecord) -> int:
    """Return the number of over-long rows, dropped or cut; 0 if the dropped ones alone are already reported."""
    num_dropped = _num_dropped(split, _OVER_LONG)
    return 0 if num_dropped > DROPPED_FRACTION * split.statistics.num_rows_in else num_dropped + _num_cut(split)


def _num_cut(split: SplitRecord) -> int:
    return split.statistics.num_truncated


def _dropped_pieces(facts: ArtifactFacts, reasons: Sequence[DropReason], limit: float, outcome: str) -> Found:
    """Yield a finding per split that dropped more than `limit` of the pieces of rows that are packed in part."""
    for split in facts.require_manifest().splits:
        num_dropped = sum(split.dropped_pieces.get(reason, 0) for reason in reasons)
        num_all = split.statistics.num_pieces + sum(split.dropped_pieces.values())
        if num_dropped > limit * num_all:
            first = next((drop for drop in split.piece_examples if drop.reason in reasons), None)
            counts = f"{num_dropped} of {num_all} pieces of split rows {outcome}{example_of(split, first)}"
            yield wrong(f"{MANIFEST_FILE} {split.name}", counts, f"at most {limit:.0%}; {_cure(facts, reasons[0])}")


def _shares(facts: ArtifactFacts, count: Callable[[SplitRecord], int], limit: float, outcome: str) -> Found:
    for split in facts.require_manifest().splits:
        num_rows, num_all = count(split), split.statistics.num_rows_in
        if num_all >= MIN_ROWS and num_rows >= limit * num_all:
            counts = f"{num_rows} of {num_all} rows: {outcome}"
            yield wrong(f"{MANIFEST_FILE} {split.name}", counts, f"less than {limit:.0%}")


def _find_drops(facts: ArtifactFacts, reasons: Sequence[DropReason], limit: float, outcome: str) -> Found:
    """Yield a finding per split that dropped more than `limit` of its rows, with the most frequent reason and a fix.

    None where BP543 names one of the reasons, so that the same rows are reported once.
    """
    for split in facts.require_manifest().splits:
        num_rows, num_all = _num_dropped(split, reasons), split.statistics.num_rows_in
        if num_rows <= limit * num_all or (reasons != FAULTS and _main_fault(split) in reasons):
            continue
        reason = _most_frequent(split, reasons)
        first = next((drop for drop in split.drop_examples if drop.reason == reason), None)
        counts = f"{num_rows} of {num_all} rows {outcome}; {split.drops[reason]} as {reason}{example_of(split, first)}"
        place, cure = f"{MANIFEST_FILE} {split.name}", _cure(facts, reason)
        yield wrong(place, counts, f"at most {limit:.0%}", fix=f"{cure[0].upper()}{cure[1:]}.")
