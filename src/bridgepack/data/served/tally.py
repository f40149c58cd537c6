"""Counts compared answers by kind, with the first answer of each."""

from collections.abc import Iterable

from bridgepack.data.served.compare import ServedAnswer
from bridgepack.records import ServedCount, ServedKind, ServedRecord


class ServedTally:
    """Counts answers row by row."""

    def __init__(self) -> None:
        self.num_rows = 0
        self._counts: dict[ServedKind, list[int]] = {}
        self._first: dict[ServedKind, tuple[str, int, ServedAnswer]] = {}

    @property
    def num_answers(self) -> int:
        """Number of answers so far."""
        return sum(num for num, _ in self._counts.values())

    def add(self, file: str, row: int, answers: Iterable[ServedAnswer]) -> None:
        """Count the answers of a row of a file, from 1."""
        self.num_rows += 1
        for answer in answers:
            count = self._counts.setdefault(answer.kind, [0, 0])
            count[0] += 1
            count[1] += answer.num_trained_tokens
            self._first.setdefault(answer.kind, (file, row, answer))

    def has(self, kind: ServedKind) -> bool:
        """Return whether an answer of a kind was counted."""
        return kind in self._counts

    def record(self, switch: str = "") -> ServedRecord:
        """Return the counts; `switch` is the template's setting that cures a failing answer."""
        counts = []
        for kind in (kind for kind in ServedKind if kind in self._counts):
            file, row, answer = self._first[kind]
            num_answers, num_tokens = self._counts[kind]
            counts.append(
                ServedCount(
                    kind=str(kind),
                    num_answers=num_answers,
                    num_trained_tokens=num_tokens,
                    file=file,
                    row=row,
                    turn=answer.turn,
                    detail=answer.detail,
                )
            )
        return ServedRecord(num_rows=self.num_rows, counts=tuple(counts), switch=switch)
