"""Rules on how an artifact was built, from its manifest: rows dropped, cut or changed, and what the template does."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridgepack.records import LOSS_CURES, TOLERATED_LOSSES, Drop, DropReason, LostContent, LostKind, SplitRecord
from bridgepack.rules.engine.context import CannotJudgeError, known, section
from bridgepack.rules.engine.facts import MANIFEST_FILE, ArtifactFacts
from bridgepack.rules.engine.rule import ERROR, EXECUTED, READ, WARNING, Found, artifact_rule, wrong

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
_NO_MASK = (DropReason.NO_ASSISTANT_MASK, DropReason.CONTROL_TOKENS_IN_TEXT)
#: Reasons for drops, without those that the recipe asks for.
_FAULTS = tuple(reason for reason in DropReason if reason not in (DropReason.NOT_SAMPLED, DropReason.DUPLICATE))
_REFUSED = tuple(reason for reason in _FAULTS if reason not in (*_OVER_LONG, *_NO_MASK))

#: Drop reason -> what to do about it.
_CURE = "correct the data or the recipe; the drop ledger lists every dropped row"
_CURES: Mapping[str, str] = {
    DropReason.MISSING_FIELD: "set the columns in preprocessing to columns of the data",
    DropReason.UNKNOWN_ROLE: "name the role in data.role_aliases",
    DropReason.TEMPLATE_ERROR: "leave preprocessing.null_content at auto if content is null, or use another template",
    DropReason.CONTROL_TOKENS_IN_TEXT: "remove the control tokens from the texts",
    DropReason.LOST_CONTENT: "fix the data or the template, or set preprocessing.on_lost_content to keep",
    DropReason.NO_ASSISTANT_MASK: "set preprocessing.assistant_markers, or use another template",
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
    return _dropped(facts, _NO_MASK, DROPPED_FRACTION, "without an assistant mask")


@artifact_rule("BP510", WARNING, "PSB510; bridge/data/packing/algorithms.py:167", evidence=EXECUTED)
def many_rows_over_long(facts: ArtifactFacts) -> Found:
    """More than 1% of a split's rows were dropped because they are over-long, or 5% of 100 or more dropped or cut.

    Why: Silent: the longest answers are missing or end in mid-sentence, and the model learns to be short.
    Bad: 110 rows read, 10 dropped as over_long. Good: 101 rows read, 1 dropped as over_long.
    Fix: Raise packed_sequence_size, max_sequence_length and seq_length, or set preprocessing.over_long to split.
    Noticed: never; the host writes a log line.
    """
    yield from _dropped(facts, _OVER_LONG, DROPPED_FRACTION, "over-long")
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

    Why: Silent here: part of the data is missing. The host's own data preparation fails at the first such row, e.g. a
        row with a missing column, with two schemas, or with fewer than two tokens.
    Bad: 110 rows read, 10 dropped as missing_field. Good: 100 rows read, none dropped.
    Fix: Read the drop ledger; correct the recipe's columns or the data, and build again. Evidence: read in the source.
    """
    return _dropped(facts, _REFUSED, DROPPED_FRACTION, "that could not be used")


@artifact_rule("BP543", ERROR, "bridgepack manifest", noticed="never", evidence=READ)
def most_rows_dropped(facts: ArtifactFacts) -> Found:
    """More than 20% of a split's rows were dropped (duplicates do not count).

    Why: Silent here: a large part of the data is missing, most often because the recipe names the wrong columns.
    Bad: 4 rows read, 1 dropped as missing_field. Good: 4 rows read, none dropped.
    Fix: Do what the finding says for the most frequent reason; the drop ledger lists every dropped row.
    """
    return _dropped(facts, _FAULTS, MOST_DROPPED_FRACTION, "dropped")


@artifact_rule("BP537", WARNING, "tokenizer probe", noticed="never")
def template_drops_tool_names(facts: ArtifactFacts) -> Found:
    """The chat template writes the arguments of a tool call without the function's name.

    Why: Silent: the model learns to call tools without naming them. Templates that write a call's id instead of its
        name, such as Kimi K2's, need ids like `functions.lookup:0`.
    Bad: a template that renders a call of `lookup` with id `call00001` as `<|tool_call_begin|>call00001`.
    Good: a template that renders it as `<|tool_call_begin|>lookup`.
    Fix: Put the name into the ids of the calls, or set tokenizer.chat_template to a template that writes the name.
        Ignore this finding if the data has no tool calls. Evidence: executed with a probe conversation at build time.
    """
    if known(facts.require_manifest().tokenizer.get("drops_tool_names"), "how the chat template writes tool calls"):
        yield wrong(MANIFEST_FILE, "tokenizer.drops_tool_names is true", "false")


@artifact_rule("BP540", ERROR, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def content_lost_in_render(facts: ArtifactFacts) -> Found:
    """The chat template leaves out content of the rows, or writes it in an unintended form.

    Why: Silent: tool calls, results, schemas or whole turns are missing, or the model learns to write `None`, Python
        list syntax, or arguments as JSON inside JSON strings. Megatron-Bridge would produce the same tokens.
    Bad: lost_content has 3 for tool_call. Good: lost_content is empty.
    Fix: Do what the finding says, or set preprocessing.on_lost_content to drop; then build again.
    """
    return _lost(facts, [kind for kind in LostKind if kind not in TOLERATED_LOSSES and kind != LostKind.UNREAD])


@artifact_rule("BP541", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def thoughts_lost_in_render(facts: ArtifactFacts) -> Found:
    """The chat template leaves out the reasoning in answers to the last user turn.

    Why: Silent: the reasoning is never trained. For reasoning of earlier answers see BP551.
    Bad: lost_content has 3 for reasoning. Good: lost_content is empty.
    Fix: Set tokenizer.chat_template to a template that reads the column, or put the reasoning into the content.
    """
    return _lost(facts, [LostKind.REASONING])


@artifact_rule("BP542", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def assistant_text_holds_turns(facts: ArtifactFacts) -> Found:
    """The text of assistant turns contains control tokens or markers that begin or end a turn in the chat template.

    Why: Silent: the model learns to end its turn and to write the user's turn.
    Bad: lost_content has 3 for injected_turn. Good: lost_content is empty.
    Fix: Remove the control tokens from the texts, or set preprocessing.control_tokens to drop; then build again.
    """
    return _lost(facts, [LostKind.INJECTED_TURN])


@artifact_rule("BP545", WARNING, "bridgepack manifest", noticed="never", evidence=READ)
def template_writes_day_of_build(facts: ArtifactFacts) -> Found:
    """The chat template writes today's date, and the recipe does not set a date.

    Why: Silent: every row has the day of the build, so the same recipe gives different rows tomorrow.
    Bad: tokenizer.template_date is 2025-06-30 in the manifest and null in its recipe. Good: it is 2025-06-30 in both.
    Fix: Set tokenizer.template_date, or the template's date variable in tokenizer.chat_template_kwargs.
    """
    manifest = facts.require_manifest()
    day, given = manifest.tokenizer.get("template_date"), section(manifest.recipe, "tokenizer")
    variables = given.get("chat_template_kwargs") or {}
    if day and given.get("template_date") is None and not any("date" in name for name in variables):
        yield wrong(MANIFEST_FILE, f"the template writes the day of the build, {day}", "tokenizer.template_date set")


@artifact_rule("BP546", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def row_settings_not_read(facts: ArtifactFacts) -> Found:
    """Rows have variables of the chat template that the recipe does not read.

    Why: Silent: the template's variables are not set, e.g. whether to think.
    Bad: lost_content has 3 for template_kwargs. Good: lost_content is empty.
    Fix: Name the column in chat_template_kwargs of data.layout, and build again.
    """
    return _lost(facts, [LostKind.TEMPLATE_KWARGS])


@artifact_rule("BP548", ERROR, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def text_not_read(facts: ArtifactFacts) -> Found:
    """A column, or a field of turns, holds text that nobody reads.

    Why: Silent: a part of what the rows say is neither trained nor context, such as the input of an instruction.
    Bad: unread has 3 of 4 rows with text for the column context. Good: unread is empty.
    Fix: Read it by data.layout, or name it in the layout's ignore; `bridgepack recipes new` writes a layout.
    """
    for split in facts.require_manifest().splits:
        for field in split.unread:
            if field.holds == "text":
                where = f"{MANIFEST_FILE} {split.name} unread.{field.name}"
                first = _place(split, field.file_index, field.row)
                found = f"text in {field.num_rows} of {field.num_rows_read} rows, e.g.{first} {field.example}"
                yield wrong(where, found, f"none; {LOSS_CURES[LostKind.UNREAD]}", group=where)


@artifact_rule("BP549", ERROR, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def loss_flags_not_obeyed(facts: ArtifactFacts) -> Found:
    """Rows or turns say that they are not trained, and are trained.

    Why: Silent: the model learns answers that the data excludes, e.g. by `weight: 0`, `loss: false`, `train: false`.
    Bad: lost_content has 3 for weight. Good: lost_content is empty.
    Fix: Set preprocessing.message_weights to mask, or name the field in the layout's ignore, and build again.
    """
    return _lost(facts, [LostKind.WEIGHT])


@artifact_rule("BP547", WARNING, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def nothing_of_thoughts_masked(facts: ArtifactFacts) -> Found:
    """The recipe masks reasoning, but no row's text has a reasoning marker.

    Why: Silent: the rows have no reasoning, or the template writes it between unknown markers and it is trained.
    Bad: lost_content has 2 for no_reasoning, 2 sequences. Good: lost_content has 1 for no_reasoning, 2 sequences.
    Fix: Set tokenizer.chat_template to one with known reasoning markers, or preprocessing.reasoning_loss to keep.
    """
    for split in facts.require_manifest().splits:
        if 0 < _num_made(split) <= split.lost_content.get(LostKind.NO_REASONING, 0):
            yield from _lost(facts, [LostKind.NO_REASONING], [split])


@artifact_rule("BP550", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def answers_without_end(facts: ArtifactFacts) -> Found:
    """The chat template writes no end marker after trained answers, often after the last of every conversation.

    Why: Silent: the model does not learn to stop there. Megatron-Bridge does not even train such an answer.
    Bad: lost_content has 3 for no_end. Good: lost_content is empty.
    Fix: Set tokenizer.chat_template to a template that ends every answer with a token at which serving stops, and name
        that token in preprocessing.assistant_markers.
    """
    return _lost(facts, [LostKind.NO_END])


@artifact_rule("BP551", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def earlier_answers_without_thoughts(facts: ArtifactFacts) -> Found:
    """The chat template leaves out the reasoning of answers before the last user turn, and they are trained.

    Why: Silent: the model is trained to answer there without thinking, although the rows have its thoughts.
    Bad: lost_content has 3 for earlier_reasoning. Good: lost_content is empty.
    Fix: Set preprocessing.loss_mode to last_turn, or tokenizer.chat_template to a template that keeps the reasoning.
    """
    return _lost(facts, [LostKind.EARLIER_REASONING])


@artifact_rule("BP552", WARNING, "bridge/data/sft_processing.py", noticed="never", evidence=_PER_ROW)
def special_tokens_doubled(facts: ArtifactFacts) -> Found:
    """The rows hold the text of BOS, EOS or an end of turn where the recipe or the chat template writes it too.

    Why: Silent: sequences begin with two BOS, which the model never sees when it is served, or a turn ends twice, and
        the second end is trained after the first.
    Bad: lost_content has 3 for doubled_token. Good: lost_content is empty.
    Fix: Set preprocessing.add_eos (or add_bos) to false, or remove the text from the rows; then build again.
    """
    return _lost(facts, [LostKind.DOUBLED_TOKEN])


@artifact_rule("BP553", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def calls_without_schemas(facts: ArtifactFacts) -> Found:
    """The rows call tools whose schemas are neither in the row nor in the recipe.

    Why: Silent: the model learns to call tools that nobody offers, and to guess their arguments.
    Bad: lost_content has 3 for no_schemas. Good: lost_content is empty.
    Fix: Name the column of the schemas in tools of data.layout, or set preprocessing.tool_schemas. Schemas that
        stand in the text of a system turn count.
    """
    return _lost(facts, [LostKind.NO_SCHEMAS])


@artifact_rule("BP554", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def tool_schemas_of_another_form(facts: ArtifactFacts) -> Found:
    """The parameters of tools are no JSON Schema.

    Why: Silent: servers send tools as JSON Schema, so the model is trained on prompts that it never gets; templates
        that read types or properties leave the parameters out.
    Bad: lost_content has 3 for tool_schema. Good: lost_content is empty.
    Fix: Write the parameters as an object schema, e.g. `{type: object, properties: {city: {type: string}}}`.
    """
    return _lost(facts, [LostKind.TOOL_SCHEMA])


def _lost(facts: ArtifactFacts, kinds: Sequence[LostKind], splits: Sequence[SplitRecord] | None = None) -> Found:
    for split in facts.require_manifest().splits if splits is None else splits:
        for kind in kinds:
            count = split.lost_content.get(kind, 0)
            if count:
                first = next((lost for lost in split.lost_examples if lost.kind == kind), None)
                where = f"{MANIFEST_FILE} {split.name} lost_content.{kind}"
                found = f"{count} of {_num_made(split)} sequences{_example(split, first)}"
                yield wrong(where, found, f"none; {LOSS_CURES[kind]}", group=where)


def _num_made(split: SplitRecord) -> int:
    """Return the number of rows that became sequences, including those that the mixture did not sample."""
    return split.statistics.num_rows_packed + split.drops.get(DropReason.NOT_SAMPLED, 0)


def _prompt_completion(facts: ArtifactFacts) -> Mapping[str, Any]:
    """Return the recipe's preprocessing; raises `CannotJudgeError` unless the rows are prompts with completions."""
    preprocessing = section(facts.require_manifest().recipe, "preprocessing")
    if preprocessing.get("kind") != "prompt_completion":
        raise CannotJudgeError("the rows were not built from prompts and completions")
    return preprocessing


def _num_dropped(split: SplitRecord, reasons: Sequence[DropReason]) -> int:
    return sum(split.drops.get(reason, 0) for reason in reasons)


def _num_cut_alone(split: SplitRecord) -> int:
    """Return the number of over-long rows, dropped or cut; 0 if the dropped ones alone are already reported."""
    num_dropped = _num_dropped(split, _OVER_LONG)
    return 0 if num_dropped > DROPPED_FRACTION * split.statistics.num_rows_in else num_dropped + _num_cut(split)


def _num_cut(split: SplitRecord) -> int:
    return split.statistics.num_truncated


def _shares(facts: ArtifactFacts, count: Callable[[SplitRecord], int], limit: float, what: str) -> Found:
    for split in facts.require_manifest().splits:
        num_rows, num_all = count(split), split.statistics.num_rows_in
        if num_all >= MIN_ROWS and num_rows >= limit * num_all:
            found = f"{num_rows} of {num_all} rows: {what}"
            yield wrong(f"{MANIFEST_FILE} {split.name}", found, f"less than {limit:.0%}")


def _dropped(facts: ArtifactFacts, reasons: Sequence[DropReason], limit: float, what: str) -> Found:
    """Yield a finding per split that dropped more than `limit` of its rows, with the most frequent reason and a fix."""
    for split in facts.require_manifest().splits:
        num_rows, num_all = _num_dropped(split, reasons), split.statistics.num_rows_in
        if num_rows <= limit * num_all:
            continue
        reason = max(reasons, key=lambda reason: split.drops.get(reason, 0))
        first = next((drop for drop in split.drop_examples if drop.reason == reason), None)
        found = f"{num_rows} of {num_all} rows {what}; {split.drops[reason]} as {reason}{_example(split, first)}"
        yield wrong(f"{MANIFEST_FILE} {split.name}", found, f"at most {limit:.0%}; {_CURES.get(reason, _CURE)}")


def _example(split: SplitRecord, example: Drop | LostContent | None) -> str:
    if example is None or not (place := _place(split, example.file_index, example.row)):
        return ""
    return f", e.g.{place} {example.detail}"


def _place(split: SplitRecord, file_index: int, row: int) -> str:
    return f" {split.inputs[file_index].path} row {row}:" if file_index < len(split.inputs) else ""
