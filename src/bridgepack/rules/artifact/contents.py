"""Rules on the contents of rows, from an artifact's manifest: what is lost, unread, or trained against the rows."""

from collections.abc import Sequence

from bridgepack.config.layouts.contents import is_media
from bridgepack.records import LOSS_CURES, TOLERATED_LOSSES, Drop, DropReason, LostContent, LostKind, SplitRecord
from bridgepack.rules.judging.facts import MANIFEST_FILE, ArtifactFacts
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, artifact_rule, wrong

_PER_ROW = "executed, with each row at build time"


@artifact_rule("BP540", ERROR, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def content_lost_in_render(facts: ArtifactFacts) -> Found:
    """The chat template leaves out content of the rows, or writes it in an unintended form.

    Why: Silent: tool calls, results, schemas or whole turns are missing, or the model learns to write `None`, Python
        list syntax, or arguments as JSON inside JSON strings. Megatron-Bridge would produce the same tokens.
    Bad: lost_content has 3 for tool_call. Good: lost_content is empty.
    Fix: Set the field or correct the rows that lose it, or set preprocessing.on_lost_content to drop; then build again.
    """
    return _find_losses(facts, [kind for kind in LostKind if kind not in TOLERATED_LOSSES and kind != LostKind.UNREAD])


@artifact_rule("BP541", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def thoughts_lost_in_render(facts: ArtifactFacts) -> Found:
    """The chat template leaves out the reasoning in answers to the last user turn.

    Why: Silent: the reasoning is never trained. For reasoning of earlier answers see BP551.
    Bad: lost_content has 3 for reasoning. Good: lost_content is empty.
    Fix: Set the template's variable for thoughts, such as enable_thinking: true, in tokenizer.chat_template_kwargs
        and at the server, if it has one; or set tokenizer.chat_template to a template that reads the column, or put the
        reasoning into the content.
    """
    return _find_losses(facts, [LostKind.REASONING])


@artifact_rule("BP542", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def assistant_text_holds_turns(facts: ArtifactFacts) -> Found:
    """The text of assistant turns contains control tokens or markers that begin or end a turn in the chat template.

    Why: Silent: the model learns to end its turn and to write the user's turn.
    Bad: lost_content has 3 for injected_turn. Good: lost_content is empty.
    Fix: Remove the control tokens from the texts, or set preprocessing.control_tokens to drop; then build again.
    """
    return _find_losses(facts, [LostKind.INJECTED_TURN])


@artifact_rule("BP546", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def row_settings_not_read(facts: ArtifactFacts) -> Found:
    """Rows have variables of the chat template that the recipe, or the template, does not read.

    Why: Silent: the template's variables are not set, e.g. the one that says whether to think.
    Bad: lost_content has 3 for template_kwargs. Good: lost_content is empty.
    Fix: Name the column in chat_template_kwargs of data.layout, or correct the variable's name; then build again.
    """
    return _find_losses(facts, [LostKind.TEMPLATE_KWARGS, LostKind.UNREAD_VARIABLE])


@artifact_rule("BP548", ERROR, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def text_not_read(facts: ArtifactFacts) -> Found:
    """A column, or a field of turns, holds text that the recipe does not read.

    Why: Silent: a part of what the rows say is neither trained nor context, such as the input of an instruction.
    Bad: unread has 3 of 4 rows with text for the column context. Good: unread is empty.
    Fix: Read it by data.layout, or name it in the layout's ignore; `bridgepack new` writes a layout.
    """
    for split in facts.require_manifest().splits:
        for field in split.unread:
            if field.holds == "text" and not is_media(field.name):  # of these BP540 says what to do
                where = f"{MANIFEST_FILE} {split.name} unread.{field.name}"
                first = place_of(split, field.file_index, field.row)
                text = f"text in {field.num_rows} of {field.num_rows_read} rows, e.g.{first} {field.example}"
                yield wrong(where, text, f"none; {LOSS_CURES[LostKind.UNREAD]}", group=where)


@artifact_rule("BP549", ERROR, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def loss_flags_not_obeyed(facts: ArtifactFacts) -> Found:
    """Rows or turns say that they are not trained, and are trained.

    Why: Silent: the model learns answers that the data excludes, e.g. by `weight: 0`, `loss: false`, `train: false`.
    Bad: lost_content has 3 for weight. Good: lost_content is empty.
    Fix: Set preprocessing.message_weights to mask, or name the field in the layout's ignore, and build again.
    """
    return _find_losses(facts, [LostKind.WEIGHT])


@artifact_rule("BP547", WARNING, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def nothing_of_thoughts_masked(facts: ArtifactFacts) -> Found:
    """The recipe masks reasoning, but no row's text has a reasoning marker.

    Why: Silent: the rows have no reasoning, or the template writes it between unknown markers and it is trained.
    Bad: lost_content has 2 for no_reasoning, 2 sequences. Good: lost_content has 1 for no_reasoning, 2 sequences.
    Fix: Set tokenizer.chat_template to one with known reasoning markers, or preprocessing.reasoning_loss to keep.
    """
    for split in facts.require_manifest().splits:
        if 0 < _num_made(split) <= split.lost_content.get(LostKind.NO_REASONING, 0):
            yield from _find_losses(facts, [LostKind.NO_REASONING], [split])


@artifact_rule("BP550", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def answers_without_end(facts: ArtifactFacts) -> Found:
    """The chat template writes no end marker after trained answers, often after the last of every conversation.

    Why: Silent: the model does not learn to stop there. Megatron-Bridge does not even train such an answer.
    Bad: lost_content has 3 for no_end. Good: lost_content is empty.
    Fix: Set tokenizer.chat_template to a template that ends every answer with a token at which serving stops, and name
        that token in preprocessing.assistant_markers.
    """
    return _find_losses(facts, [LostKind.NO_END])


@artifact_rule("BP551", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def earlier_answers_without_thoughts(facts: ArtifactFacts) -> Found:
    """The chat template leaves out the reasoning of answers before the last user turn, and they are trained.

    Why: Silent: the model is trained to answer there without thinking, although the rows have its thoughts.
    Bad: lost_content has 3 for earlier_reasoning. Good: lost_content is empty.
    Fix: Set preprocessing.split_conversations to when_context_differs, preprocessing.loss_mode to last_turn, or
        tokenizer.chat_template to a template that keeps the reasoning; where BP541 is found too, do first what it says.
    """
    return _find_losses(facts, [LostKind.EARLIER_REASONING])


@artifact_rule("BP552", WARNING, "bridge/data/sft_processing.py", noticed="never", evidence=_PER_ROW)
def special_tokens_doubled(facts: ArtifactFacts) -> Found:
    """The rows hold the text of BOS, EOS or an end of turn where the recipe or the chat template writes it too.

    Why: Silent: sequences begin with two BOS, which the model never sees when it is served, or a turn ends twice, and
        the second end is trained after the first.
    Bad: lost_content has 3 for doubled_token. Good: lost_content is empty.
    Fix: Set preprocessing.add_eos (or add_bos) to false, or remove the text from the rows; then build again.
    """
    return _find_losses(facts, [LostKind.DOUBLED_TOKEN])


@artifact_rule("BP553", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def calls_without_schemas(facts: ArtifactFacts) -> Found:
    """The rows call tools whose schemas are neither in the row nor in the recipe.

    Why: Silent: the model learns to call tools that nobody offers, and to guess their arguments.
    Bad: lost_content has 3 for no_schemas. Good: lost_content is empty.
    Fix: Name the column of the schemas in tools of data.layout, or set preprocessing.tool_schemas. Schemas that
        stand in the text of a system turn count.
    """
    return _find_losses(facts, [LostKind.NO_SCHEMAS])


@artifact_rule("BP554", WARNING, "bridge/data/conversation_processing.py", noticed="never", evidence=_PER_ROW)
def tool_schemas_of_another_form(facts: ArtifactFacts) -> Found:
    """The parameters of a tool are not a JSON Schema.

    Why: Silent: servers send tools as JSON Schema, so the model is trained on prompts that it never gets; templates
        that read types or properties leave the parameters out.
    Bad: lost_content has 3 for tool_schema. Good: lost_content is empty.
    Fix: Write the parameters as an object schema, e.g. `{type: object, properties: {city: {type: string}}}`.
    """
    return _find_losses(facts, [LostKind.TOOL_SCHEMA])


@artifact_rule("BP559", WARNING, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def chats_trained_as_documents(facts: ArtifactFacts) -> Found:
    """Rows that are read as plain documents hold the turns of a chat, as a chat template writes them.

    Why: Silent: all of a document is trained, so the model learns to write the user's turns and the tools' results.
    Bad: lost_content has 3 for rendered_chat. Good: lost_content is empty.
    Fix: Cut the texts at their turns into a column messages, and read it with a layout of kind chat.
    """
    return _find_losses(facts, [LostKind.RENDERED_CHAT])


@artifact_rule("BP512", WARNING, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def empty_answers_trained(facts: ArtifactFacts) -> Found:
    """Answers without a text, calls or a refusal are trained.

    Why: Silent: the model learns to end at once, where a template has thoughts after an empty one.
    Bad: lost_content has 3 for empty_answer. Good: lost_content is empty.
    Fix: Set preprocessing.empty_answers to drop, or correct the rows; then build again.
    """
    return _find_losses(facts, [LostKind.EMPTY_ANSWER])


@artifact_rule("BP518", WARNING, "bridgepack manifest", noticed="never", evidence=_PER_ROW)
def thoughts_under_other_markers(facts: ArtifactFacts) -> Found:
    """Answers begin with thoughts under markers that the chat template does not know.

    Why: Silent: the model learns to write these markers as text, after the empty thought of a template that has
        thoughts; a server shows them to users.
    Bad: lost_content has 3 for inline_thoughts. Good: lost_content is empty.
    Fix: Set preprocessing.inline_thoughts to move, or correct the rows; then build again.
    """
    return _find_losses(facts, [LostKind.INLINE_THOUGHTS])


def _find_losses(facts: ArtifactFacts, kinds: Sequence[LostKind], splits: Sequence[SplitRecord] | None = None) -> Found:
    for split in facts.require_manifest().splits if splits is None else splits:
        for kind in kinds:
            count = split.lost_content.get(kind, 0)
            if count:
                first = next((example for example in split.lost_examples if example.kind == kind), None)
                where = f"{MANIFEST_FILE} {split.name} lost_content.{kind}"
                text = f"{count} of {_num_made(split)} sequences{example_of(split, first)}"
                cure = LOSS_CURES[kind] if len(kinds) > 1 else ""  # a rule on one kind says it itself
                fix = f"{cure[0].upper()}{cure[1:]}; then build again." if cure else ""
                yield wrong(where, text, "none", group=where, fix=fix)


def _num_made(split: SplitRecord) -> int:
    """Return the number of rows that became sequences, including those that the mixture did not sample."""
    return split.statistics.num_rows_packed + split.drops.get(DropReason.NOT_SAMPLED, 0)


def example_of(split: SplitRecord, example: Drop | LostContent | None) -> str:
    """Return the first dropped row, or row with a loss, as the end of a finding; empty if there is none."""
    if example is None or not (place := place_of(split, example.file_index, example.row)):
        return ""
    return f", e.g.{place} {example.detail}"


def place_of(split: SplitRecord, file_index: int, row: int) -> str:
    """Return ` FILE row N:`, or nothing if the file is unknown."""
    return f" {split.inputs[file_index].path} row {row}:" if file_index < len(split.inputs) else ""
