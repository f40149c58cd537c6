"""What a build has finished when it is ended, and how its errors tell."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bridgepack.data.stages.range_tasks import RangeResult
from bridgepack.data.stages.shard_tasks import WrittenShard
from bridgepack.errors import ArtifactError

_NO_SPACE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class BuildInterrupted(KeyboardInterrupt):
    """Ctrl-C during a build; its text says what is kept."""


@dataclass(kw_only=True)
class Kept:
    """What a build has finished; all of it is on disk and is used when the same command is run again.

    Attributes:
        output: folder of the artifact.
        store: folder of the token store.
        num_ranges_tokenized: ranges tokenised by this build.
        num_ranges_found: ranges whose tokens were in the store.
        num_shards_written: shards written by this build.
        num_shards_found: shards that an earlier build, which was ended, had written.
        engine_message: what there is to say about the engine that encodes texts.
    """

    output: str = ""
    store: str = ""
    num_ranges_tokenized: int = 0
    num_ranges_found: int = 0
    num_shards_written: int = 0
    num_shards_found: int = 0
    engine_message: str | None = None

    def add_range(self, result: RangeResult) -> None:
        """Count a range."""
        if result.finished is not None:
            self.num_ranges_tokenized += result.was_tokenized
            self.num_ranges_found += not result.was_tokenized

    def add_shard(self, shard: WrittenShard) -> None:
        """Count a shard."""
        self.num_shards_written += not shard.was_there
        self.num_shards_found += shard.was_there

    def __str__(self) -> str:
        """Say what is finished and what to do with it."""
        num_ranges = self.num_ranges_tokenized + self.num_ranges_found
        num_shards = self.num_shards_written + self.num_shards_found
        if not num_ranges:
            return "nothing was finished yet, and nothing is left behind"
        parts = [f"the tokens of {_plural(num_ranges, 'input range')} are in {self.store!r}"]
        if num_shards:
            parts.append(f"{_plural(num_shards, 'shard')} of {self.output!r} are written")
        return f"{' and '.join(parts)}; the same command goes on from there"


@contextmanager
def kept_on_errors(kept: Kept) -> Iterator[None]:
    """Let what ends a build say what is kept.

    Raises:
        BuildInterrupted: for Ctrl-C.
        ArtifactError: for what cannot be written.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise BuildInterrupted(str(kept)) from None
    except OSError as error:
        place = str(error.filename) if error.filename else kept.output
        root = kept.store if Path(place).absolute().is_relative_to(Path(kept.store).absolute()) else kept.output
        what = "free space" if error.errno in _NO_SPACE else "make it writable"
        raise ArtifactError(
            f"{root!r} cannot be written: {error.strerror or error} ({place}). Kept: {kept}. Before that, "
            f"{what}, or choose another --output or --store."
        ) from error


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("s" if count != 1 else "")
