"""Whether the disks have room for a build: guessed before it begins, worked out from what its first ranges took."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from bridgepack.data.files import nearest_folder
from bridgepack.data.reading.forecast import BYTES_PER_TOKEN, json_bytes
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.stages.finish import RangeResult
from bridgepack.errors import ArtifactError

#: Bytes of a token in the store (id and mask), and in an artifact.
_STORED_BYTES, _PACKED_BYTES = 5.1, 1.6
#: The guess can be off by this much: columns that no token is made of, other languages than English.
_MARGIN = 10.0
#: What has been tokenised when the guess is replaced, and how exact it is from then on.
_SURE_BYTES, _SURE_MARGIN = 1 << 26, 1.2


class SpaceWatch:
    """Compares what a build of some files takes, in the folders of its artifact and its store, with what is free."""

    def __init__(self, output: Path, store: Path, files: Iterable[InputFile]) -> None:
        self._store, self._output = nearest_folder(store), nearest_folder(output.absolute().parent)
        self._num_input_bytes = sum(map(json_bytes, files))
        self._done_bytes = self._token_bytes = 0

    def refuse_full_disks(self) -> None:
        """Make sure that a build is not hopeless from the beginning.

        Raises:
            ArtifactError: when less than a tenth of what it should take is free.
        """
        num_tokens = self._num_input_bytes / BYTES_PER_TOKEN / _MARGIN
        self._compare(num_tokens * _STORED_BYTES, num_tokens * _PACKED_BYTES, "at least ")

    def add(self, result: RangeResult) -> None:
        """Take in what a range took.

        Raises:
            ArtifactError: when the rest will not fit, at this rate.
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
                    f"{str(place)!r} has {_gigabytes(free)} free; this build takes {accuracy}{_gigabytes(num_bytes)} "
                    f"more there. What is finished is kept. Free space, or choose another {option}."
                )


def _gigabytes(num_bytes: float) -> str:
    return f"{num_bytes / 1e9:,.1f} GB" if num_bytes >= 1e8 else f"{num_bytes / 1e6:,.1f} MB"
