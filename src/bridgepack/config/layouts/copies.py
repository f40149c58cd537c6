"""Whether a column repeats what a layout reads, such as the first question beside its conversation."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bridgepack.config.layouts.candidates import Candidate, Columns, candidate_with
from bridgepack.config.layouts.forms import texts_in

#: Characters of a text that can be part of a longer word.
_SHORT = 20


def is_repeated(name: str, candidate: Candidate, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether the text of a column stands in the columns that a candidate reads, in every row that has it.

    `prompt` of `{"prompt": "Hi", "messages": [{"role": "user", "content": "Hi"}, ...]}` -> True
    """
    has_text = False
    for row in rows:
        texts = [*texts_in(row.get(name))]
        if not texts:
            continue
        has_text = True
        read = "\n\n".join(text for column in sorted(candidate.read) for text in texts_in(row.get(column)))
        if not all(_stands_in(text.strip(), read) for text in texts):
            return False
    return has_text


def ends_with_answer(candidate: Candidate, rows: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether every question of a candidate ends with the row's answer, as a text rendered from both does."""
    questions, answers = candidate.columns.get("question"), candidate.columns.get("answer")
    if not questions or not answers:
        return False
    pairs = [(row.get(questions[0]), row.get(answers[0])) for row in rows]
    texts = [
        (question, answer.strip())
        for question, answer in pairs
        if isinstance(question, str) and isinstance(answer, str)
    ]
    return any(answer for _, answer in texts) and all(question.rstrip().endswith(answer) for question, answer in texts)


def without_second_thought(candidate: Candidate, columns: Columns, rows: Sequence[Mapping[str, Any]]) -> Candidate:
    """Return a candidate that does not read reasoning which every answer holds, too, before something else."""
    thoughts, answers = candidate.columns.get("thoughts"), candidate.columns.get("answer")
    if not thoughts or not answers:
        return candidate
    pairs = [(row.get(thoughts[0]), row.get(answers[0])) for row in rows]
    texts = [(thought.strip(), answer) for thought, answer in pairs if isinstance(thought, str) and thought.strip()]
    for thought, answer in texts:
        if not isinstance(answer, str) or answer.strip() == thought or not _stands_in(thought, answer):
            return candidate
    other_slots = {slot: names for slot, names in candidate.columns.items() if slot != "thoughts"}
    return candidate_with(candidate.entry, other_slots, columns) if texts else candidate


def _stands_in(text: str, container: str) -> bool:
    if text not in container:
        return False
    return len(text) >= _SHORT or re.search(rf"(?<!\w){re.escape(text)}(?!\w)", container) is not None
