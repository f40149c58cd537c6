"""Computes how much memory a build may use, and from it the number of workers and the size of batches."""

import gc
import math
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from bridgepack.errors import ConfigError

#: Fraction of the free memory that a build uses by default.
_SHARE = 0.75
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", re.IGNORECASE | re.ASCII)
#: Longest part of a text that is no size which a message repeats.
_MAX_SHOWN = 80
#: Memory of the build without its workers: the plan of some million sequences, and ranges in flight.
_OWN_BYTES = 256 << 20
#: Memory of a worker beyond what it shares with the others: a batch in template and tokenizer.
MIN_WORKER_BYTES = 192 << 20
MIN_MEMORY_BYTES = _OWN_BYTES + MIN_WORKER_BYTES
#: Memory that tokenising needs per byte of text: texts, tokens with positions, ids and masks.
_BYTES_PER_TEXT_BYTE = 96
_MIN_TEXT_BYTES, _MAX_TEXT_BYTES = 1 << 18, 1 << 22
#: New objects before Python collects garbage; its default of 700 costs a repack about 4% of its time.
_COLLECTED_AFTER = 50_000
_CGROUP_LIMITS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class MemoryPlan:
    """How a build's memory is divided."""

    num_workers: int  #: number of workers, at most as many as requested
    workers_bytes: int  #: memory of all workers together beyond what they share
    text_bytes: int  #: maximum text per batch of rows


def parse_size(text: str, option: str) -> int:
    """Return a size in bytes: `8G`, `512MiB`, `1.5T`; raises ConfigError if it is not a size."""
    match = _SIZE.fullmatch(text.strip())
    num_bytes = math.inf if match is None else float(match[1]) * _UNITS[match[2].upper()]
    if math.isinf(num_bytes):
        shown_text = repr(text[:_MAX_SHOWN])
        raise ConfigError(f"{option} is {shown_text}; allowed: a number with K, M, G or T, e.g. 8G. Correct it.")
    return int(num_bytes)


def parse_memory(text: str) -> int:
    """Return the memory that a build may use, in bytes: `8G`.

    Raises:
        ConfigError: it is not a size, or too small for any build.
    """
    size = parse_size(text, "--memory")
    if size < MIN_MEMORY_BYTES:
        raise ConfigError(
            f"--memory is {text!r}; allowed: at least {MIN_MEMORY_BYTES >> 20}M. Raise it or omit the option."
        )
    return size


def plan_memory(memory_bytes: int | None, num_workers: int) -> MemoryPlan:
    """Return how a build divides its memory, by default a share of the free memory, among its workers."""
    available = memory_share(memory_bytes)
    for_workers = available - max(_OWN_BYTES, available // 8)
    num_fitting = max(1, min(num_workers, for_workers // MIN_WORKER_BYTES))
    text_bytes = for_workers // num_fitting // _BYTES_PER_TEXT_BYTE
    return MemoryPlan(
        num_workers=num_fitting,
        workers_bytes=for_workers,
        text_bytes=min(max(text_bytes, _MIN_TEXT_BYTES), _MAX_TEXT_BYTES),
    )


def memory_share(memory_bytes: int | None) -> int:
    """Return the bytes that a build may use on this machine: the requested memory, or a share of the free memory."""
    return max(memory_bytes or int(free_bytes() * _SHARE), MIN_MEMORY_BYTES)


def free_bytes() -> int:
    """Return the free memory in bytes, of the machine and within this process's control group."""
    available = re.search(r"MemAvailable:\s+(\d+)", Path("/proc/meminfo").read_text(encoding="utf-8"))
    sizes = [int(available[1]) << 10 if available else 4 << 30]
    for limit, usage in _CGROUP_LIMITS:
        with suppress(OSError, ValueError):  # a group without a limit has `max`
            max_bytes, used_bytes = (int(Path(name).read_text(encoding="utf-8")) for name in (limit, usage))
            sizes.append(max(max_bytes - used_bytes, 0))
    return min(sizes)


def collect_rarely() -> None:
    """Make Python's garbage collection rare, for a process that makes many objects and almost no cycles."""
    gc.set_threshold(_COLLECTED_AFTER)
