"""A progress bar per stage with rate and time left, on a terminal; silent elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


class TerminalProgress:
    """Shows stages on standard error while it is entered; does nothing where that is no terminal."""

    def __init__(self, *, is_enabled: bool | None = None) -> None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_enabled = is_terminal if is_enabled is None else is_enabled
        self._bars: Progress | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> TerminalProgress:
        """Begin to show."""
        if self._is_enabled:
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, whatever happened."""
        if self._bars is not None:
            self._bars.stop()

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage of `total` work, None where that is not known; it makes things called `unit`."""
        if self._bars is not None:
            self._task = self._bars.add_task(stage, total=total, unit=unit, num_items=0)

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Note that `num_items` more things are made and `work` of the total is done; by default as much."""
        if self._bars is not None and self._task is not None:
            made = self._bars.tasks[self._task].fields["num_items"] + num_items
            self._bars.update(self._task, advance=num_items if work is None else work, num_items=made)

    def finish(self) -> None:
        """End the stage."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, total=1, completed=1)


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeftColumn
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Things made, and how many a second."""

        def render(self, task: Task) -> Text:
            """Return e.g. `7,473 rows  1,204/s`."""
            num_items, seconds = task.fields["num_items"], task.finished_time or task.elapsed or 0.0
            rate = f"  {num_items / seconds:,.0f}/s" if seconds > 1 else ""
            return Text(f"{num_items:,} {task.fields['unit']}{rate}")

    return Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(bar_width=30),
        RateColumn(),
        TimeElapsedColumn(),
        TimeLeftColumn(),
        console=Console(stderr=True),
    )
