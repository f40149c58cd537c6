"""Faults as changed results of a public function: which setting, column, answer, or bit of which row is wrong.

A behaviour says nothing of the code behind the function, so it holds when that code is rewritten; where a result
changes its place, only `SEAMS` does. `run` copies this file into a copy of the package, so it imports nothing of the
tests.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

#: Where results are changed: a name -> (file below src/bridgepack, function or method in it).
SEAMS = {
    "settings": ("bridge/wiring/__init__.py", "host_settings"),  # a recipe's settings in the host's paths
    "row": ("data/layouts/reader.py", "RowReader.read"),  # the columns of a row that encoders read, as a dict
    "read_row": ("data/layouts/reader.py", "RowReader.read"),  # a row with what its layout does not read
    "conversation": ("data/sequences/conversation.py", "ConversationReader.read"),  # a row's messages, tools, variables
    "text": ("data/sequences/rendering.py", "ChatRenderer.render"),  # a conversation with its rendered text
    "detection": ("config/layouts/detect.py", "detect"),  # the layout of some rows
    "masks": ("data/sequences/chat.py", "ChatEncoder.encode"),  # tokens and token-aligned masks of conversations
    "answers": ("data/served/compare.py", "ServedComparer.compare"),  # each trained answer beside what is served
}
#: name -> (seam, what changes its result), filled by `_behaviour`; the name begins with its room.
BEHAVIOURS: dict[str, tuple[str, Callable[[Any], Any]]] = {}


def _behaviour(name: str, seam: str) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    def add(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
        BEHAVIOURS[name] = seam, change
        return change

    return add


def fault_in(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a function whose result has the fault of a name."""
    seam, change = BEHAVIOURS[name]

    def changed(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        if seam == "row":
            return result._replace(columns=change(dict(result.columns)))
        return change(result)

    return changed


def _with_value(settings: Sequence[Any], path: str, change: Callable[[Any], Any]) -> tuple[Any, ...]:
    return tuple(replace(item, value=change(item.value)) if item.path == path else item for item in settings)


def _without(settings: Sequence[Any], path: str) -> tuple[Any, ...]:
    return tuple(item for item in settings if item.path != path)


@_behaviour("wiring:per-token-loss", "settings")
def _loss_per_pack(settings: Any) -> Any:
    """The loss is averaged over packs: a token of a pack with few trained ones weighs more."""
    return _with_value(settings, "model.calculate_per_token_loss", lambda _: False)


@_behaviour("wiring:multiple", "settings")
def _multiple_of_one(settings: Any) -> Any:
    """The host takes every packed sequence for unpadded."""
    return _with_value(settings, "dataset.offline_packing_specs.pad_seq_to_mult", lambda _: 1)


@_behaviour("wiring:last-step", "settings")
def _one_step_less(settings: Any) -> Any:
    """The run ends before the last packs of its last epoch."""
    return _with_value(settings, "train.train_iters", lambda value: value - 1 if value and value > 1 else value)


@_behaviour("wiring:warmup", "settings")
def _no_warmup(settings: Any) -> Any:
    """The learning rate begins at its peak."""
    return _with_value(settings, "scheduler.lr_warmup_iters", lambda value: value and 0)


@_behaviour("wiring:evaluation-lost", "settings")
def _no_evaluation_steps(settings: Any) -> Any:
    """The number of evaluation steps is the host's."""
    return _without(settings, "validation.eval_iters")


@_behaviour("wiring:checkpoint-lost", "settings")
def _nothing_to_resume(settings: Any) -> Any:
    """A restarted run begins anew, because it loads no checkpoint."""
    return _without(settings, "checkpoint.load")


@_behaviour("wiring:override-lost", "settings")
def _no_overrides(settings: Any) -> Any:
    """Nothing of `bridge_overrides` reaches the host."""
    return tuple(item for item in settings if not item.field.startswith("bridge_overrides."))


@_behaviour("layouts:system-lost", "row")
def _without_system(row: Any) -> Any:
    """A system column beside the turns is not read."""
    row.pop("system", None)
    return row


@_behaviour("layouts:last-turn-lost", "row")
def _without_last_turn(row: Any) -> Any:
    """The last turn of a conversation of three or more is lost."""
    if len(row.get("messages", ())) > 2:
        row["messages"] = list(row["messages"])[:-1]
    return row


@_behaviour("layouts:prompt-stripped", "row")
def _stripped_prompt(row: Any) -> Any:
    """White space at the end of a prompt is cut off."""
    if "prompt" in row:
        row["prompt"] = row["prompt"].rstrip()
    return row


@_behaviour("layouts:tools-cut", "row")
def _first_tool(row: Any) -> Any:
    """Only the first schema of a row's tools is read."""
    if "tools" in row:
        row["tools"] = row["tools"][:1]
    return row


@_behaviour("layouts:unread-untold", "read_row")
def _all_read(row: Any) -> Any:
    """Nobody hears of a column that is not read."""
    return row._replace(unread={})


@_behaviour("layouts:flags-unseen", "detection")
def _no_flags(detection: Any) -> Any:
    """Turns that say 0 or 1 of their training are not noticed."""
    return replace(detection, has_loss_flags=False)


def _rows_of(batch: Any) -> list[Any]:
    """Return each row's mask, a view into the batch's."""
    return [batch.loss_mask[start:stop] for start, stop in zip(batch.offsets, batch.offsets[1:], strict=False)]


def _spans(mask: Any) -> list[tuple[int, int]]:
    """Return the trained spans of a mask: [0 1 1 0 1] -> (1, 3) and (4, 5)."""
    bits = [0, *(int(bit != 0) for bit in mask), 0]
    edges = [place for place in range(len(bits) - 1) if bits[place] != bits[place + 1]]
    return list(zip(edges[::2], edges[1::2], strict=True))


@_behaviour("masks:first-token-untrained", "masks")
def _first_bit_off(batch: Any) -> Any:
    """In every row, the bit of the first trained token is 0: the model never learns to begin an answer."""
    for mask in _rows_of(batch):
        for start, _ in _spans(mask)[:1]:
            mask[start] = 0
    return batch


@_behaviour("masks:end-untrained", "masks")
def _last_bit_off(batch: Any) -> Any:
    """In every row, the bit of the last trained token is 0: the model never learns to end an answer."""
    for mask in _rows_of(batch):
        for _, stop in _spans(mask)[-1:]:
            mask[stop - 1] = 0
    return batch


@_behaviour("masks:prompt-trained", "masks")
def _bit_before_on(batch: Any) -> Any:
    """In every row, the bit of the token before the first answer is 1: the end of the prompt is trained."""
    for mask in _rows_of(batch):
        for start, _ in _spans(mask)[:1]:
            mask[max(start - 1, 0)] = 1
    return batch


@_behaviour("masks:token-behind-trained", "masks")
def _bit_behind_on(batch: Any) -> Any:
    """In rows of two answers, the bit of the token behind the first one is 1."""
    for mask in _rows_of(batch):
        for _, stop in _spans(mask)[:-1][:1]:
            mask[stop] = 1
    return batch


@_behaviour("masks:second-answer-untrained", "masks")
def _second_span_off(batch: Any) -> Any:
    """In rows of two or more answers, all bits of the second are 0."""
    for mask in _rows_of(batch):
        for start, stop in _spans(mask)[1:2]:
            mask[start:stop] = 0
    return batch


@_behaviour("masks:later-answers-short", "masks")
def _later_first_bits_off(batch: Any) -> Any:
    """In rows of three or more answers, the bit of the third one's first token is 0."""
    for mask in _rows_of(batch):
        for start, _ in _spans(mask)[2:3]:
            mask[start] = 0
    return batch


@_behaviour("served:difference-unseen", "answers")
def _all_equal(answers: Any) -> Any:
    """An answer whose first token is trained otherwise than served counts as equal."""
    return [
        replace(answer, kind=type(answer.kind)("equal")) if str(answer.kind) == "boundary-differs" else answer
        for answer in answers
    ]


@_behaviour("served:last-answer-lost", "answers")
def _without_last_answer(answers: Any) -> Any:
    """The last of several answers is not compared."""
    return answers[:-1] if len(answers) > 1 else answers


@_behaviour("served:count", "answers")
def _one_token_more(answers: Any) -> Any:
    """The first answer has one trained token too many."""
    return [
        replace(answer, num_trained_tokens=answer.num_trained_tokens + (not place))
        for place, answer in enumerate(answers)
    ]


@_behaviour("served:second-turn", "answers")
def _turn_moved(answers: Any) -> Any:
    """The second answer has the number of the turn before it."""
    return [replace(answer, turn=answer.turn - (place == 1)) for place, answer in enumerate(answers)]


@_behaviour("proof:answers-stripped", "row")
def _stripped_answers(row: Any) -> Any:
    """White space around texts of the assistant's turns is cut off."""
    return _with_turns(row, lambda turn: _mapped(turn, str.strip) if _speaker(turn) in _ANSWERERS else turn)


@_behaviour("proof:questions-stripped", "row")
def _stripped_questions(row: Any) -> Any:
    """White space around texts of the user's turns is cut off."""
    return _with_turns(row, lambda turn: _mapped(turn, str.strip) if _speaker(turn) in ("user", "human") else turn)


@_behaviour("proof:pieces-joined-closer", "row")
def _one_line_end(row: Any) -> Any:
    """Pieces of a text are joined by a line end instead of a blank line."""
    return _with_turns(row, lambda turn: _mapped(turn, lambda text: text.replace("\n\n", "\n")))


@_behaviour("proof:reasoning-lost", "row")
def _without_reasoning(row: Any) -> Any:
    """Thoughts in a field of their own are not read."""
    return _with_turns(row, lambda turn: {key: value for key, value in turn.items() if key != "reasoning_content"})


@_behaviour("proof:results-lost", "row")
def _without_results(row: Any) -> Any:
    """Turns with the results of calls are left out."""
    if "messages" in row:
        row["messages"] = [turn for turn in row["messages"] if _speaker(turn) not in ("tool", "observation")]
    return row


@_behaviour("proof:first-exchange-lost", "row")
def _without_first_exchange(row: Any) -> Any:
    """The first question and its answer of a longer conversation are left out."""
    if len(row.get("messages", ())) > 3:
        row["messages"] = row["messages"][2:]
    return row


@_behaviour("proof:tools-lost", "row")
def _without_tools(row: Any) -> Any:
    """The schemas of tools are not read."""
    row.pop("tools", None)
    return row


@_behaviour("proof:variables-lost", "row")
def _without_variables(row: Any) -> Any:
    """The row's variables for the chat template are not read."""
    row.pop("chat_template_kwargs", None)
    return row


@_behaviour("proof:calls-lost", "row")
def _without_calls(row: Any) -> Any:
    """Calls in a field of turns are not read."""
    return _with_turns(row, lambda turn: {key: value for key, value in turn.items() if key != "tool_calls"})


@_behaviour("proof:document-stripped", "row")
def _stripped_document(row: Any) -> Any:
    """White space at the end of a document is cut off."""
    if "text" in row:
        row["text"] = row["text"].rstrip()
    return row


@_behaviour("proof:completion-stripped", "row")
def _stripped_completion(row: Any) -> Any:
    """The last word of a completion is cut off."""
    if "completion" in row:
        row["completion"] = row["completion"].rpartition(" ")[0]
    return row


@_behaviour("proof:labels-shifted", "row")
def _shifted_labels(row: Any) -> Any:
    """Labels are read one token to the left, as if they were shifted."""
    if "labels" in row:
        kept = [label == -100 for label in [*row["labels"][1:], -100]]
        row["labels"] = [-100 if is_out else token for is_out, token in zip(kept, row["input_ids"], strict=True)]
    return row


@_behaviour("proof:mask-of-tokens-inverted", "row")
def _inverted_mask(row: Any) -> Any:
    """A mask in a column says the opposite."""
    if "loss_mask" in row:
        row["loss_mask"] = [1 - bit for bit in row["loss_mask"]]
    return row


@_behaviour("proof:flags-moved", "conversation")
def _moved_flags(conversation: Any) -> Any:
    """The position of an untrained answer is that of the answer before it."""
    moved = frozenset(index - 2 for index in conversation.untrained if index >= 2)
    return conversation._replace(untrained=moved)


@_behaviour("proof:first-answer-untrained", "conversation")
def _untrained_first(conversation: Any) -> Any:
    """In conversations with several answers the first is not trained."""
    answers = [index for index, message in enumerate(conversation.messages) if message["role"] == "assistant"]
    return conversation._replace(untrained=conversation.untrained | frozenset(answers[:-1][:1]))


@_behaviour("proof:null-written", "conversation")
def _written_null(conversation: Any) -> Any:
    """Null content beside a call becomes a word."""
    return _with_messages(
        conversation, lambda item: {**item, "content": "None"} if item["content"] in (None, "") else item
    )


@_behaviour("proof:arguments-text", "conversation")
def _quoted_arguments(conversation: Any) -> Any:
    """Arguments of calls are JSON text within JSON text."""

    def change(message: dict[str, Any]) -> dict[str, Any]:
        calls = [
            {
                **call,
                "function": {**call["function"], "arguments": json.dumps(json.dumps(call["function"]["arguments"]))},
            }
            for call in message.get("tool_calls") or ()
        ]
        return {**message, "tool_calls": calls} if calls else message

    return _with_messages(conversation, change)


@_behaviour("proof:argument-lost", "conversation")
def _without_last_argument(conversation: Any) -> Any:
    """The last argument of a call is lost."""

    def change(message: dict[str, Any]) -> dict[str, Any]:
        calls = []
        for call in message.get("tool_calls") or ():
            arguments = call["function"]["arguments"]
            if isinstance(arguments, dict):
                arguments = dict(list(arguments.items())[:-1])
            calls.append({**call, "function": {**call["function"], "arguments": arguments}})
        return {**message, "tool_calls": calls} if calls else message

    return _with_messages(conversation, change)


@_behaviour("proof:result-as-user", "conversation")
def _results_of_user(conversation: Any) -> Any:
    """The result of a call is the user's turn."""
    return _with_messages(conversation, lambda item: {**item, "role": "user"} if item["role"] == "tool" else item)


@_behaviour("proof:system-last", "conversation")
def _system_last(conversation: Any) -> Any:
    """A system turn of the row is put before its last answer instead of first."""
    first, *rest = conversation.messages
    if first["role"] != "system" or len(rest) < 2:
        return conversation
    return conversation._replace(messages=[rest[0], first, *rest[1:]])


@_behaviour("proof:parts-reversed", "conversation")
def _joined_backwards(conversation: Any) -> Any:
    """Words of a question stand in the reverse order, as parts of content that are joined backwards."""
    return _with_messages(
        conversation,
        lambda item: (
            {**item, "content": " ".join(reversed(item["content"].split(" ")))}
            if item["role"] == "user" and isinstance(item["content"], str)
            else item
        ),
    )


@_behaviour("proof:switch-inverted", "conversation")
def _other_switch(conversation: Any) -> Any:
    """A variable that is true or false for the template is the opposite."""
    kwargs = {
        name: not value if isinstance(value, bool) else value for name, value in conversation.template_kwargs.items()
    }
    return conversation._replace(template_kwargs=kwargs)


@_behaviour("proof:schema-without-description", "conversation")
def _no_description(conversation: Any) -> Any:
    """The description of a schema is lost."""
    tools = [
        {
            **tool,
            "function": {name: value for name, value in tool["function"].items() if name != "description"},
        }
        if "function" in tool
        else tool
        for tool in conversation.tools or ()
    ]
    return conversation._replace(tools=tools or None)


@_behaviour("proof:text-end-lost", "text")
def _without_line_end(chat: Any) -> Any:
    """The line end behind the last turn is lost."""
    return chat._replace(text=chat.text.rstrip("\n"))


@_behaviour("proof:blank-lines-lost", "text")
def _without_blank_lines(chat: Any) -> Any:
    """Two line ends in the rendered text become one."""
    return chat._replace(text=chat.text.replace("\n\n", "\n"), ends=None)


@_behaviour("proof:text-doubled", "text")
def _first_token_twice(chat: Any) -> Any:
    """The first control token of the rendered text stands there twice, as BOS that is added once more."""
    first = chat.text.partition(">")[0] + ">"
    return chat._replace(text=first + chat.text, ends=None)


@_behaviour("proof:prompt-appended", "text")
def _with_prompt(chat: Any) -> Any:
    """The header of an answer stands behind the last turn, as the generation prompt that was left on."""
    return chat._replace(text=chat.text + "<|im_start|>assistant\n", ends=None)


@_behaviour("proof:header-trained", "masks")
def _two_before_on(batch: Any) -> Any:
    """The two tokens before each answer, its header, are trained."""
    for mask in _rows_of(batch):
        for start, _ in _spans(mask):
            mask[max(start - 2, 0) : start] = 1
    return batch


@_behaviour("proof:all-ends-untrained", "masks")
def _ends_off(batch: Any) -> Any:
    """The last two tokens of each answer, its end and what follows, are not trained."""
    for mask in _rows_of(batch):
        for start, stop in _spans(mask):
            mask[max(stop - 2, start) : stop] = 0
    return batch


@_behaviour("proof:others-trained", "masks")
def _inverted_bits(batch: Any) -> Any:
    """What the assistant did not write is trained, and what it wrote is not."""
    for mask in _rows_of(batch):
        mask[:] = 1 - mask
    return batch


@_behaviour("proof:shifted", "masks")
def _shifted_bits(batch: Any) -> Any:
    """The mask of each row is shifted by one token to the right."""
    for mask in _rows_of(batch):
        mask[1:] = mask[:-1].copy()
    return batch


@_behaviour("proof:everything-trained", "masks")
def _all_on(batch: Any) -> Any:
    """Everything is trained."""
    for mask in _rows_of(batch):
        mask[:] = 1
    return batch


@_behaviour("proof:only-first-answer", "masks")
def _later_spans_off(batch: Any) -> Any:
    """Only the first answer of a conversation is trained."""
    for mask in _rows_of(batch):
        for start, stop in _spans(mask)[1:]:
            mask[start:stop] = 0
    return batch


@_behaviour("proof:middle-untrained", "masks")
def _middle_off(batch: Any) -> Any:
    """One token in the middle of each answer is not trained."""
    for mask in _rows_of(batch):
        for start, stop in _spans(mask):
            if stop - start > 4:
                mask[(start + stop) // 2] = 0
    return batch


@_behaviour("proof:gap-trained", "masks")
def _gaps_on(batch: Any) -> Any:
    """Everything between the first and the last trained token is trained."""
    for mask in _rows_of(batch):
        spans = _spans(mask)
        if spans:
            mask[spans[0][0] : spans[-1][1]] = 1
    return batch


_ANSWERERS = ("assistant", "gpt")


def _speaker(turn: Any) -> Any:
    return turn.get("role", turn.get("from"))


def _mapped(turn: Any, change: Callable[[str], str]) -> Any:
    """Return a turn whose texts are changed."""
    return {
        key: change(value) if key in ("content", "value") and isinstance(value, str) else value
        for key, value in turn.items()
    }


def _with_turns(row: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(row.get("messages"), list):
        row["messages"] = [change(turn) for turn in row["messages"]]
    return row


def _with_messages(conversation: Any, change: Callable[[Any], Any]) -> Any:
    return conversation._replace(messages=[change(message) for message in conversation.messages])
