"""Faults as changed results of a public function: which setting, column, answer, or bit of which row is wrong.

A behaviour says nothing of the code behind the function, so it holds when that code is rewritten; where a result
changes its place, only `SEAMS` does. `run` copies this file into a copy of the package, so it imports nothing of the
tests.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

#: Where results are changed: a name -> (file below src/bridgepack, function or method in it).
SEAMS = {
    "settings": ("bridge/wiring/__init__.py", "host_settings"),  # a recipe's settings in the host's paths
    "row": ("data/layouts/reader.py", "RowReader.read"),  # a row with the columns that encoders read
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
    _, change = BEHAVIOURS[name]
    return lambda *arguments, **options: change(function(*arguments, **options))


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


@_behaviour("layouts:unread-untold", "row")
def _all_read(row: Any) -> Any:
    """Nobody hears of a column that is not read."""
    row.unread = {}
    return row


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
