"""Hashes the input files, several at a time."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from bridgepack.data.reading.inputs import InputFile, hash_file
from bridgepack.data.tasks import Progress
from bridgepack.records import InputRecord

_MAX_THREADS = 8
Records = dict[str, tuple[InputRecord, ...]]


@contextmanager
def hashing(files: Mapping[str, Sequence[InputFile]], num_threads: int) -> Iterator[Callable[[Progress], Records]]:
    """Start hashing the files of each split; cancel unfinished hashing when the block ends.

    Yields a function that waits until all files are hashed and returns split -> records of its files, without their
    row counts. It raises `DataError` if a file cannot be read.
    """
    is_over = threading.Event()
    executor = ThreadPoolExecutor(max_workers=max(1, min(num_threads, _MAX_THREADS)))
    hashes = {
        split: [executor.submit(hash_file, file.path, is_over) for file in members] for split, members in files.items()
    }

    def records(progress: Progress) -> Records:
        progress.start("Hashing inputs", sum(file.num_bytes for members in files.values() for file in members), "files")
        found: Records = {}
        for split, members in files.items():
            found[split] = ()
            for file, sha256 in zip(members, hashes[split], strict=True):
                record = InputRecord(
                    path=file.label,
                    num_bytes=file.num_bytes,
                    sha256=sha256.result(),
                    num_rows=0,
                    source=file.source,
                )
                found[split] += (record,)
                progress.advance(1, work=file.num_bytes)
        progress.finish()
        return found

    try:
        yield records
    finally:
        is_over.set()
        executor.shutdown(wait=True, cancel_futures=True)
