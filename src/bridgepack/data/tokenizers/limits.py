"""Limits on the time, the memory and the text that a chat template may take for a row."""

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bridgepack.errors import DataError, RowError, TokenizerError
from bridgepack.records import DropReason

if TYPE_CHECKING:
    from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
if sys.platform != "win32":
    import resource

#: Maximum CPU time for rendering a row.
MAX_ROW_S = 10.0
#: Times that a row's CPU time is looked at until that is over.
_TICKS = 10
#: Private memory that preparing a row may take, beside what the process has. Memory pools of other threads take a
#: gigabyte of it at once, and some libraries abort where they cannot. A row of 32 MiB takes less than an eighth.
MAX_ROW_BYTES = 1 << 32
#: Characters that a template may write for any row, and times the row's own characters that it may write beyond that.
_MAX_CHARACTERS, _MAX_TIMES = 1_000_000, 100
#: Reasons of rows that a limit stopped: if there are many, the rows are not the cause.
STOPPED = frozenset({DropReason.TIME_OUT, DropReason.OUT_OF_MEMORY})
#: Maximum calls that one limit stops; if there are more, the rows are not the cause.
MAX_STOPPED = 10
_SIZES = Path("/proc/self/statm")
#: Its column of pages that the process can write to and shares with no other.
_PRIVATE = 5


#: The memory that a build may use, where its user says so.
_ALLOWED: ContextVar[int] = ContextVar("allowed", default=MAX_ROW_BYTES)


def within_memory[R](num_bytes: int | None, function: Callable[..., R], *arguments: Any) -> R:
    """Return `function(*arguments)`, in which preparing a row takes at most so much memory; None: MAX_ROW_BYTES."""
    token = _ALLOWED.set(MAX_ROW_BYTES if num_bytes is None else num_bytes)
    try:
        return function(*arguments)
    finally:
        _ALLOWED.reset(token)


class MemoryLimit:
    """Lets functions ask for MAX_ROW_BYTES of memory at most; without a limit where the system does not say its size.

    A build that may use less lets them ask for that (`within_memory`).

    The limit holds for the whole process while a function runs. It is not one on address space, of which libraries
    reserve far more than they use.
    """

    def __init__(self) -> None:
        self._given = resource.getrlimit(resource.RLIMIT_DATA) if _num_private_bytes() else None
        self._num_bytes = self._limited = 0
        self._max_row_bytes = min(MAX_ROW_BYTES, _ALLOWED.get())
        if self._given is not None:
            self._measure()

    def __call__[T, R](self, function: Callable[[T], R], argument: T) -> R:
        """Return `function(argument)`; raises RowError if it asks for too much memory; reason `out_of_memory`."""
        if self._given is None:
            return function(argument)
        try:
            return self._limited_call(function, argument)
        except MemoryError:
            pass  # not handled here: the error holds what was allocated
        if self._has_grown():  # for another reason: texts were encoded since it was measured
            try:
                return self._limited_call(function, argument)
            except MemoryError:
                pass
        detail = f"the chat template takes more than {self._max_row_bytes >> 20:,} MiB of memory"
        raise RowError(DropReason.OUT_OF_MEMORY, detail)

    def _limited_call[T, R](self, function: Callable[[T], R], argument: T) -> R:
        assert self._given is not None
        resource.setrlimit(resource.RLIMIT_DATA, (self._limited, self._given[1]))
        try:
            return function(argument)
        finally:
            resource.setrlimit(resource.RLIMIT_DATA, self._given)

    def _has_grown(self) -> bool:
        """Measure again and return whether the process has become so much larger that a function had less memory."""
        before = self._num_bytes
        self._measure()
        return self._num_bytes > before + self._max_row_bytes // 8

    def _measure(self) -> None:
        """Set the limit by the memory that the process has now."""
        assert self._given is not None
        self._num_bytes = _num_private_bytes()
        max_bytes, soft = self._num_bytes + self._max_row_bytes, self._given[0]
        self._limited = max_bytes if soft == resource.RLIM_INFINITY else min(max_bytes, soft)


def _num_private_bytes() -> int:
    """Return how much memory the process can write to and shares with no other; 0 if unknown."""
    if not _SIZES.exists():
        return 0
    return int(_SIZES.read_text().split()[_PRIVATE]) * os.sysconf("SC_PAGE_SIZE")


def check_length(text: str, *sources: Any) -> None:
    """Check that a text, rendered from `sources` such as messages, is not out of proportion to them.

    Raises:
        RowError: it is, so that encoding it would take too much memory; reason `out_of_memory`.
    """
    if len(text) <= _MAX_CHARACTERS:
        return
    num_given = sum(len(json.dumps(source, ensure_ascii=False, default=str)) for source in sources)
    if len(text) > _MAX_CHARACTERS + _MAX_TIMES * num_given:
        detail = f"the chat template writes {len(text):,} characters from {num_given:,}"
        raise RowError(DropReason.OUT_OF_MEMORY, detail)


class TimeLimit:
    """Stops rendering a row after MAX_ROW_S of CPU time, or a tenth later, or when it asks for too much memory.

    Wall time would depend on other processes. There is no limit outside the main thread, and a library call is stopped
    only after it returns. One timer ticks for all rows, as setting one for each takes longer than many a row's
    rendering.
    """

    def __enter__(self) -> Self:
        self._is_on = threading.current_thread() is threading.main_thread()
        self._is_running, self._num_ticks = False, 0
        self._num_stopped = 0
        if self._is_on:
            self._memory = MemoryLimit()
            self._before = signal.signal(signal.SIGVTALRM, self._tick)
            interval = MAX_ROW_S / _TICKS
            self._timer = signal.setitimer(signal.ITIMER_VIRTUAL, interval, interval)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_on:
            signal.setitimer(signal.ITIMER_VIRTUAL, *self._timer)
            signal.signal(signal.SIGVTALRM, self._before or signal.SIG_DFL)

    def __call__[T, R](self, function: Callable[[T], R], argument: T) -> R:
        """Return `function(argument)`.

        Raises:
            RowError: it takes too much; reason `time_out` or `out_of_memory`.
            DataError: the same, after MAX_STOPPED others.
        """
        if not self._is_on:
            return function(argument)
        self._num_ticks, self._is_running = 0, True
        try:
            return self._memory(function, argument)
        except _TooSlowError:
            detail = f"the chat template takes more than {MAX_ROW_S:g} seconds of CPU time"
            raise self._error_of_stop(RowError(DropReason.TIME_OUT, detail)) from None
        except RowError as error:
            if error.reason in STOPPED:
                raise self._error_of_stop(error) from None
            raise
        finally:
            self._is_running = False

    def _error_of_stop(self, error: RowError) -> RowError | DataError:
        """Return a row's error, or the one for too many rows."""
        self._num_stopped += 1
        if self._num_stopped <= MAX_STOPPED:
            return error
        return DataError(
            f"{self._num_stopped} rows took too much time or memory ({error.detail}), so the rows are not the "
            "cause. Correct the template, or set tokenizer.chat_template to another."
        )

    def _tick(self, *_: object) -> None:
        self._num_ticks += 1
        if self._is_running and self._num_ticks > _TICKS:
            raise _TooSlowError


class _TooSlowError(BaseException):
    """The time limit was reached; a BaseException, so that no `except Exception` catches it as a rejection."""


def run_limited[T, R](tokenizer: "ChatTokenizer", render: Callable[[T], R], argument: T) -> R:
    """Return `render(argument)`, which renders small conversations.

    Raises:
        RowError: the template rejects one.
        TokenizerError: the template takes too much time or memory.
    """
    try:
        with TimeLimit() as limit:
            return limit(render, argument)
    except RowError as error:
        if error.reason not in STOPPED:
            raise
        raise TokenizerError(
            f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}; {error.detail} for a small conversation. "
            "Correct the template, or set tokenizer.chat_template to another.",
            field="tokenizer.name_or_path",
        ) from None
