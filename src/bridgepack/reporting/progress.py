"""Shows the progress of stages: on a terminal a bar with rate and time left, otherwise a line every ten seconds.

Notebooks get bars of their own.
"""

from __future__ import annotations

import contextlib
import sys
import time
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID


#: Seconds between two lines without a terminal.
_LINE_S = 10.0


class TerminalProgress:
    """Context manager that shows stages on standard error: bars on a terminal, otherwise lines."""

    def __init__(self, *, is_enabled: bool | None = None) -> None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()
        self._is_enabled = is_terminal if is_enabled is None else is_enabled
        self._bars: Progress | None = None
        self._task: TaskID | None = None
        self._lines = _Lines() if is_enabled is None and sys.stderr is not None and not is_terminal else None

    def __enter__(self) -> TerminalProgress:
        """Start showing progress."""
        if self._is_enabled:
            self._bars = _bars()
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing progress."""
        if self._bars is not None:
            self._bars.stop()

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Start a stage of `total` work (None if unknown) that produces items called `unit`."""
        if self._bars is not None:
            self._task = self._bars.add_task(stage, total=total, unit=unit, num_items=0)
        if self._lines is not None:
            self._lines.start(stage, total, unit)

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Add `num_items` items and `work` of the total (default: num_items)."""
        amount = num_items if work is None else work
        if self._bars is not None and self._task is not None:
            progress = self._bars.tasks[self._task].fields["num_items"] + num_items
            self._bars.update(self._task, advance=amount, num_items=progress)
        if self._lines is not None:
            self._lines.advance(num_items, amount)

    def finish(self) -> None:
        """End the stage."""
        if self._bars is not None and self._task is not None:
            self._bars.update(self._task, total=1, completed=1)


class NotebookProgress:
    """Context manager that shows stages in a notebook: tqdm's widgets, or one line where ipywidgets is missing."""

    def __init__(self) -> None:
        self._bar: Any = None
        self._num_items, self._unit = 0, ""

    def __enter__(self) -> NotebookProgress:
        """Start showing progress."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing progress."""
        if self._bar is not None:
            self._bar.close()

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Start a stage of `total` work (None if unknown) that produces items called `unit`."""
        self._num_items, self._unit = 0, unit
        bar_format = "{desc} {percentage:3.0f}% |{bar}| {elapsed}<{remaining}{postfix}" if total else None
        if self._bar is not None and not _has_widgets():  # one line of text, which the stages share
            self._bar.total, self._bar.bar_format = total, bar_format
            self._bar.set_description_str(stage, refresh=False)
            self._bar.set_postfix_str("", refresh=False)
            self._bar.reset(total)
            return
        if self._bar is not None:
            self._bar.close()
        self._bar = _notebook_bar()(desc=stage, total=total, bar_format=bar_format)

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Add `num_items` items and `work` of the total (default: num_items)."""
        if self._bar is not None:
            self._num_items += num_items
            self._bar.set_postfix_str(f"{self._num_items:,} {self._unit}", refresh=False)
            self._bar.update(num_items if work is None else work)

    def finish(self) -> None:
        """End the stage."""
        if self._bar is not None:
            self._bar.total = self._bar.n
            self._bar.refresh()


def _has_widgets() -> bool:
    return find_spec("ipywidgets") is not None


def _notebook_bar() -> Any:
    if _has_widgets():
        from tqdm.notebook import tqdm as bar
    else:
        from tqdm.std import tqdm as bar
    return bar


class _Lines:
    def __init__(self) -> None:
        self._told_s: float | None = None  # before the first stage, which imports come before
        self._began_s = 0.0
        self._stage, self._unit = "", ""
        self._total: int | None = None
        self._num_items = self._amount = 0

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage."""
        self._stage, self._total, self._unit = stage, total, unit
        self._num_items = self._amount = 0
        self._began_s = time.monotonic()
        if self._told_s is None:
            self._told_s = self._began_s
        self._tell()

    def advance(self, num_items: int, amount: int) -> None:
        """Add progress."""
        self._num_items += num_items
        self._amount += amount
        self._tell()

    def _tell(self) -> None:
        now_s = time.monotonic()
        if self._told_s is None or now_s - self._told_s < _LINE_S:
            return
        self._told_s = now_s
        percent = f"{100 * self._amount / self._total:.0f}%, " if self._total else ""
        rate = self._num_items / max(now_s - self._began_s, 1.0)
        line = f"{self._stage}: {percent}{self._num_items:,} {self._unit}, {rate:,.0f}/s\n"
        with contextlib.suppress(OSError, ValueError):  # a closed log must not stop a build
            sys.stderr.write(line)
            sys.stderr.flush()


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
    from rich.progress import TimeRemainingColumn as TimeLeftColumn
    from rich.text import Text

    class RateColumn(ProgressColumn):
        """Number of items, and items per second."""

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
