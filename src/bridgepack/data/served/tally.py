"""Counts compared answers by kind, with the first answer of each."""

from collections.abc import Iterable, Mapping

from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.masked_prompts import Tried
from bridgepack.data.served.switches import Switches
from bridgepack.records import ServedCount, ServedKind, ServedRecord


class ServedTally:
    """Counts answers row by row."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._counts: dict[ServedKind, list[int]] = {}
        self._splitting_helps = False
        self._first: dict[ServedKind, tuple[int, int, bool, ServedAnswer]] = {}

    @property
    def num_answers(self) -> int:
        """Number of answers so far."""
        return sum(num for num, _ in self._counts.values())

    def add(self, file_index: int, row: int, answers: Iterable[ServedAnswer], *, is_row_exact: bool = True) -> None:
        """Count the answers of a row, from 1, of one of the inputs."""
        self.num_rows += 1
        for answer in answers:
            count = self._counts.setdefault(answer.kind, [0, 0])
            count[0] += 1
            count[1] += answer.num_trained_tokens
            self._splitting_helps |= answer.kind == ServedKind.CONTEXT and not answer.is_never_shown
            self._first.setdefault(answer.kind, (file_index, row, is_row_exact, answer))

    def record(self, switches: Switches, masked_prompts: Tried, settings: Mapping[str, object]) -> ServedRecord:
        """Return the counts.

        `switches` are as `find_switches` returns them, `masked_prompts` as `PromptRows.try_setting`, `settings` as of
        `ServedRows.settings`.
        """
        counts = []
        for kind in (kind for kind in ServedKind if kind in self._counts):
            file_index, row, is_exact, answer = self._first[kind]
            num_answers, num_tokens = self._counts[kind]
            counts.append(
                ServedCount(
                    kind=str(kind),
                    num_answers=num_answers,
                    num_trained_tokens=num_tokens,
                    file_index=file_index,
                    row=row,
                    turn=answer.turn,
                    detail=answer.detail,
                    is_row_exact=is_exact,
                )
            )
        return ServedRecord(
            num_rows=self.num_rows,
            counts=tuple(counts),
            switch=switches.texts.name,
            switch_value=switches.texts.value,
            is_switch_partial=switches.texts.is_partial,
            prompt_switch=switches.prompt.name,
            prompt_switch_value=switches.prompt.value,
            is_prompt_switch_partial=switches.prompt.is_partial,
            is_never_shown=ServedKind.CONTEXT in self._counts and not self._splitting_helps,
            settings=settings,
            num_rows_tried=masked_prompts.num_rows,
            num_rows_dropped=masked_prompts.num_dropped,
        )
