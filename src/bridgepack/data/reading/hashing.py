"""Hashes the input files, several at a time."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

from bridgepack.data.reading.inputs import InputFile, iter_blocks
from bridgepack.data.tasks import Progress
from bridgepack.records import InputRecord

_MAX_THREADS = 8


class Hashing:
    """Hashes that are being worked out."""

    def __init__(self, futures: Mapping[str, Sequence[tuple[InputFile, Future[str]]]]) -> None:
        self._futures = futures

    def records(self, progress: Progress) -> dict[str, tuple[InputRecord, ...]]:
        """Return split -> records of its files, once all are hashed; numbers of rows are filled in by the build.

        Raises:
            DataError: when a file cannot be read.
        """
        total = sum(file.num_bytes for members in self._futures.values() for file, _ in members)
        progress.start("Hashing inputs", total, "files")
        records: dict[str, tuple[InputRecord, ...]] = {}
        for split, members in self._futures.items():
            records[split] = ()
            for file, future in members:
                sha256 = future.result()
                records[split] += (InputRecord(path=file.label, num_bytes=file.num_bytes, sha256=sha256, num_rows=0),)
                progress.advance(1, work=file.num_bytes)
        progress.finish()
        return records


@contextmanager
def hashing(files: Mapping[str, Sequence[InputFile]], num_threads: int) -> Iterator[Hashing]:
    """Begin to hash files; what is not done at the end is given up."""
    is_over = threading.Event()
    executor = ThreadPoolExecutor(max_workers=max(1, min(num_threads, _MAX_THREADS)))
    try:
        yield Hashing(
            {
                split: [(file, executor.submit(_sha256, file, is_over)) for file in members]
                for split, members in files.items()
            }
        )
    finally:
        is_over.set()
        executor.shutdown(wait=True, cancel_futures=True)


def _sha256(file: InputFile, is_over: threading.Event) -> str:
    digest = hashlib.sha256()
    for block in iter_blocks(file.path):
        if is_over.is_set():
            break
        digest.update(block)
    return digest.hexdigest()
