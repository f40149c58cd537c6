"""What all commands share: exit codes, printing, and how a command ends on a signal."""

import logging
import math
import os
import select
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread, current_thread, main_thread
from types import FrameType
from typing import Any

import click

from bridgepack import api
from bridgepack.errors import ConfigError
from bridgepack.reporting.text import json_text, printable

CLEAN, FINDINGS, COULD_NOT_RUN, INTERRUPTED = 0, 1, 2, 130
#: Signals within this time of one another count as one.
_BURST_S = 0.2
#: After a signal: when a command that still works says so, and when it is ended.
_ANSWER_S, _END_S = 0.8, 4.5
_STDERR = 2
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def echo(text: str, *, err: bool = False) -> None:
    """Print; a reader that closed the pipe, as `head` does, is no error.

    Raises:
        ConfigError: the stream cannot be written, e.g. the disk is full.
    """
    try:
        click.echo(text, err=err, color=has_colour())
    except OSError as error:
        silence(sys.stderr if err else sys.stdout)
        if not isinstance(error, BrokenPipeError):
            raise ConfigError(f"the output cannot be written: {error.strerror}. Redirect it to another file.") from None


def tell_if_newer(bridge_version: str | None) -> None:
    """Say on standard error that a version of megatron-bridge is newer than all that is known."""
    newer = api.note_of_newer(bridge_version) if bridge_version else ""
    if newer:
        echo(newer, err=True)


class _Notes(logging.Handler):
    """Prints what the package says of its work on standard error."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a record."""
        echo(printable(record.getMessage()), err=True)


@contextmanager
def shown_notes() -> Iterator[None]:
    """Print notes and warnings of the package meanwhile."""
    log, handler = logging.getLogger("bridgepack"), _Notes(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


@contextmanager
def complete_on_interrupt(place: Path | str) -> Iterator[None]:
    """Say of a Ctrl-C that an artifact is complete; `main` prints it."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"the artifact is complete at {str(place)!r}") from None


def silence(stream: Any) -> None:
    """Discard what a stream still buffers, so that the exit does not fail on it."""
    if stream is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def print_json(value: Any) -> None:
    """Print plain values as one JSON document."""
    echo(json_text(value))


def has_colour() -> bool:
    """Return whether to print colours: on a terminal, unless NO_COLOR or FORCE_COLOR decides."""
    is_forced = os.environ.get("FORCE_COLOR", "") not in ("", "0")
    is_terminal = sys.stdout is not None and sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    return (is_terminal or is_forced) and not os.environ.get("NO_COLOR")


def _write(text: bytes) -> None:
    with suppress(OSError):
        os.write(_STDERR, text)


class StopSignals:
    """Makes SIGTERM (sent by schedulers) and SIGHUP end a command like Ctrl-C, with nothing left behind.

    A KeyboardInterrupt that leaves `main` would end the process with SIGINT, whatever signal came. Schedulers and
    terminals send several signals at once, so those right after another one raise none.

    A library that computes lets no KeyboardInterrupt through. So a thread gets the signals, too: it says after a second
    that the command is ending, and ends the process after five, or at once on a second signal. Whenever that is, files
    are whole, as they get their names last.

    Attributes:
        code: exit code of an interrupted command: 130, 143 after SIGTERM, 129 after SIGHUP.
    """

    def __init__(self) -> None:
        self.code, self.is_over, self._last_s = INTERRUPTED, False, -math.inf

    def listen(self, *, ends_process: bool = False) -> None:
        """Make signals raise KeyboardInterrupt from now on, unless they are ignored, as under nohup.

        `ends_process`: the process is the command's own, which a signal ends within five seconds.
        """
        if current_thread() is main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) in (signal.SIG_DFL, signal.default_int_handler):
                    signal.signal(number, self._interrupt)
            if ends_process:
                self._watch()

    def ignore(self) -> None:
        """Ignore further signals: the work is done, and Python exits slowly."""
        self.is_over = True  # takes effect before the handlers are replaced
        if current_thread() is main_thread():
            for number in _SIGNALS:
                signal.signal(number, signal.SIG_IGN)

    def _watch(self) -> None:
        """Start the thread; the system writes the number of each signal into a pipe, whatever the main thread does."""
        numbers, writing_end = os.pipe()
        os.set_blocking(writing_end, False)
        signal.set_wakeup_fd(writing_end, warn_on_full_buffer=False)
        os.register_at_fork(after_in_child=lambda: signal.set_wakeup_fd(-1))
        Thread(target=self._guard, args=(numbers,), daemon=True).start()

    def _guard(self, numbers: int) -> None:
        """End the process if it outlives a signal that is answered by `_interrupt`, or gets a second one."""
        while True:
            number = os.read(numbers, 1)[0]
            if not self.is_over and number in _SIGNALS and signal.getsignal(number) == self._interrupt:
                break  # others are for those who handle them: a launch, which ends its jobs first
        code, begin_s, has_said, end = 128 + number, time.monotonic(), False, b"ended after 5 seconds"
        while (left_s := begin_s + _END_S - time.monotonic()) > 0:
            until_answer_s = begin_s + _ANSWER_S - time.monotonic()
            wait_s = left_s if has_said else max(until_answer_s, 0.0)
            if select.select([numbers], [], [], wait_s)[0]:
                is_new = os.read(numbers, 1)[0] in _SIGNALS and time.monotonic() - begin_s > _BURST_S
                if is_new and not self.is_over:
                    end = b"ended at once"
                    break
            elif not has_said:
                has_said = True
                if not self.is_over:
                    _write(b"interrupted: ends within 5 seconds; once more ends it now\n")
        _write(b"interrupted; " + end + b": files are whole, and a build resumes\n")
        os._exit(code)

    def _interrupt(self, number: int, _frame: FrameType | None) -> None:
        now_s = time.monotonic()
        if self.is_over or now_s - self._last_s < _BURST_S:
            return
        self.code, self._last_s = 128 + number, now_s
        raise KeyboardInterrupt
