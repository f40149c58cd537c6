"""Checks that the disks have room for a build: estimated before it starts, then from the size of its first ranges."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from bridgepack.data.files import nearest_folder
from bridgepack.data.reading.forecast import BYTES_PER_TOKEN, json_bytes
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.stages.finish import RangeResult
from bridgepack.errors import ArtifactError

#: Bytes per token in the store (id and mask), and in an artifact.
_STORED_BYTES, _PACKED_BYTES = 5.1, 1.6
#: Possible error of the estimate, as a factor: columns that are not tokenised, languages other than English.
_MARGIN = 10.0
#: Input after which measured sizes replace the estimate, and their tolerance.
_SURE_BYTES, _SURE_MARGIN = 1 << 26, 1.2


class SpaceWatch:
    """Compares the space that a build needs for its artifact and its store with the free space."""

    def __init__(self, output: Path, store: Path, files: Iterable[InputFile]) -> None:
        self._store, self._output = nearest_folder(store), nearest_folder(output.absolute().parent)
        self._num_input_bytes = sum(map(json_bytes, files))
        self._done_bytes = self._token_bytes = 0

    def refuse_full_disks(self) -> None:
        """Check before the build that it can fit.

        Raises:
            ArtifactError: less than a tenth of the estimated space is free.
        """
        num_tokens = self._num_input_bytes / BYTES_PER_TOKEN / _MARGIN
        self._compare(num_tokens * _STORED_BYTES, num_tokens * _PACKED_BYTES, "at least ")

    def add(self, result: RangeResult) -> None:
        """Add the space that a range took.

        Raises:
            ArtifactError: at this rate, the rest will not fit.
        """
        if not result.was_tokenized or not result.num_bytes:
            return
        self._done_bytes += result.num_bytes
        self._token_bytes += result.place.token_file.stat().st_size
        if self._done_bytes >= _SURE_BYTES:
            rate = self._token_bytes / self._done_bytes / _SURE_MARGIN
            rest = max(self._num_input_bytes - self._done_bytes, 0) * rate
            packed = self._num_input_bytes * rate * _PACKED_BYTES / _STORED_BYTES
            self._compare(rest, packed, "about ")

    def _compare(self, token_bytes: float, packed_bytes: float, accuracy: str) -> None:
        wanted = [(self._store, token_bytes, "--store"), (self._output, packed_bytes, "--output")]
        if self._store.stat().st_dev == self._output.stat().st_dev:
            wanted = [(self._output, token_bytes + packed_bytes, "--output and --store")]
        for place, num_bytes, option in wanted:
            free = shutil.disk_usage(place).free
            if free < num_bytes:
                raise ArtifactError(
                    f"{str(place)!r} has {_gigabytes(free)} free; this build needs {accuracy}{_gigabytes(num_bytes)} "
                    f"more there. Finished work is kept. Free space, or choose another {option}."
                )


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
