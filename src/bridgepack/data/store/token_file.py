"""The sequences of one input range in one file: an Arrow IPC stream that is memory-mapped, and its sha256.

    stream     one row for the range: lists of ids, masks, index, drops and losses, their texts, what is unread, origin
    end - 40   sha256 of the stream, and a marker with the version

Files are written atomically. Rows are counted within the range (`row_offset` 0 is its first), so that one file serves
every input that contains the same bytes.
"""

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridgepack.data.files import refuse_special, replaced_when_whole
from bridgepack.data.reading.inputs import hash_file
from bridgepack.data.shards.row_groups import arrow_array, arrow_lists, arrow_text, numpy_array
from bridgepack.errors import StoreError
from bridgepack.geometry import IntArray
from bridgepack.records import INPUT_IDS, LOSS_MASK, MaskArray, TokenArray
from bridgepack.records.sequences import RowNote, TokenBatch, UnreadCount, joined_counts, summed_counts, token_counts

#: Version of the file's layout; part of every key.
TOKEN_FILE_VERSION = 6
_MARK = b"bptoken%d" % TOKEN_FILE_VERSION
#: Bytes of ids of a range that are kept in memory until its file is written; more are spooled to a file.
_KEPT_BYTES = 1 << 24
_TRAILER_BYTES = hashlib.sha256().digest_size + len(_MARK)

Int32Array = npt.NDArray[np.int32]

_INDEX_ARRAYS = ("stored_lengths", "row_offsets", "num_trained", "num_learned", "num_context")
_NOTE_ARRAYS = ("drop_rows", "drop_kinds", "loss_rows", "loss_kinds")
_KINDS, _UNREAD, _NUM_ROWS, _NUM_BLANK_LINES = "kinds", "unread", "num_rows", "num_blank_lines"
_NUM_READ = "num_read"
_ORIGIN = "origin"
_SCHEMA = pa.schema(
    {
        INPUT_IDS: pa.list_(pa.int32()),
        LOSS_MASK: pa.list_(pa.int8()),
        **{name: pa.list_(pa.int32()) for name in (*_INDEX_ARRAYS, *_NOTE_ARRAYS)},
        _KINDS: pa.string(),
        _UNREAD: pa.string(),
        _NUM_READ: pa.string(),
        _NUM_ROWS: pa.int64(),
        _NUM_BLANK_LINES: pa.int64(),
        _ORIGIN: pa.string(),
    }
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenOrigin:
    """What the tokens of a file in the store were made from; the file says it, so that no other file replaces it."""

    tokenization: str  #: name of the tokenisation in the store
    sha256: str  #: of the range's content
    num_rows: int  #: the range's rows, blank lines included
    view: str | None = None  #: how rows are read, as JSON; None if as they are


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenIndex:
    """Index of a range's rows, without tokens; arrays are in row order."""

    stored_lengths: Int32Array  #: shape [num_sequences], int32, stored
    row_offsets: Int32Array  #: shape [num_sequences], int32, 0-based row within the range
    num_trained: Int32Array  #: shape [num_sequences], int32, ones of the label-aligned mask
    num_learned: Int32Array  #: shape [num_sequences], int32, trained labels whose input is not EOS
    #: shape [num_sequences], int32, leading tokens before the completion; -1 if not applicable
    num_context: Int32Array
    drop_rows: Int32Array  #: shape [num_drops], int32, 0-based row within the range of each dropped row
    drop_kinds: Int32Array  #: shape [num_drops], int32, index into `kinds`
    loss_rows: Int32Array  #: shape [num_losses], int32, 0-based row within the range of each loss
    loss_kinds: Int32Array  #: shape [num_losses], int32, index into `kinds`
    kinds: tuple[tuple[str, str], ...]  #: (reason, detail) of drops, (kind, detail) of losses
    unread: tuple[UnreadCount, ...]  #: what nobody reads, each name and what it holds once
    num_read: tuple[int, ...]  #: rows that each layout of the source has read; shorter if the last ones read none
    num_rows: int  #: rows read, drops included
    num_blank_lines: int  #: blank lines


@dataclass(frozen=True, kw_only=True, slots=True)
class TokenArrays:
    """The tokens of a file: sequence `i` is `input_ids[offsets[i]:offsets[i + 1]]`, its mask likewise."""

    input_ids: TokenArray  #: shape [num_tokens], int32, stored
    loss_mask: MaskArray  #: shape [num_tokens], int8, token-aligned: 1 where this token is trained as a target
    offsets: IntArray  #: shape [num_sequences + 1], int64, stored

    def sequence(self, index: int) -> tuple[TokenArray, MaskArray]:
        """Return (ids, token-aligned mask) of one sequence, without copying."""
        span = slice(self.offsets[index], self.offsets[index + 1])
        return self.input_ids[span], self.loss_mask[span]


class TokenFileWriter:
    """Collects a range's sequences and drops in row order; many ids go to a file, so that memory use stays small."""

    def __init__(self, spool: tempfile.SpooledTemporaryFile[bytes], origin: TokenOrigin | None) -> None:
        self._spool, self._masks, self._origin = spool, list[MaskArray](), origin
        self._index: dict[str, list[Int32Array]] = {name: [] for name in (*_INDEX_ARRAYS, *_NOTE_ARRAYS)}
        self._kinds: dict[tuple[str, str], int] = {}
        self._unread: list[UnreadCount] = []
        self._num_read: tuple[int, ...] = ()
        self._num_tokens = self._num_rows = self._num_blank_lines = 0

    def add(self, batch: TokenBatch, eos_token_id: int) -> None:
        """Add the sequences and drops of the next rows."""
        num_trained, num_learned = token_counts(batch.input_ids, batch.loss_mask, batch.offsets, eos_token_id)
        self._spool.write(np.ascontiguousarray(batch.input_ids, dtype=np.int32).data)
        self._num_tokens += len(batch.input_ids)
        self._masks.append(batch.loss_mask.astype(np.int8))
        arrays = (np.diff(batch.offsets), batch.row_offsets, num_trained, num_learned, batch.num_context)
        for name, values in zip(_INDEX_ARRAYS, arrays, strict=True):
            self._index[name].append(values.astype(np.int32))
        self._add_notes("drop", batch.drops)
        self._add_notes("loss", batch.losses)
        self._unread += batch.unread
        self._num_read = summed_counts([self._num_read, batch.num_read])
        self._num_rows += batch.num_rows
        self._num_blank_lines += batch.num_blank_lines

    def add_dropped_row(self, drop: RowNote) -> None:
        """Add one dropped row."""
        self._add_notes("drop", [drop])
        self._num_rows += 1

    def _add_notes(self, name: str, notes: Sequence[RowNote]) -> None:
        kinds = [self._kinds.setdefault((str(kind), detail), len(self._kinds)) for _, kind, detail in notes]
        self._index[f"{name}_rows"].append(np.array([note.row_offset for note in notes], dtype=np.int32))
        self._index[f"{name}_kinds"].append(np.array(kinds, dtype=np.int32))

    def finish(self, path: Path) -> None:
        """Write the file."""
        num_rows = self._num_rows + self._num_blank_lines
        assert self._origin is None or self._origin.num_rows == num_rows, (self._origin, num_rows)
        self._spool.seek(0)
        is_kept = self._num_tokens * np.dtype(np.int32).itemsize <= _KEPT_BYTES
        ids = np.frombuffer(self._spool.read(), np.int32) if is_kept else np.memmap(self._spool, np.int32, "r")
        arrays = {INPUT_IDS: ids, LOSS_MASK: np.concatenate([np.empty(0, np.int8), *self._masks])}
        arrays |= {name: np.concatenate([np.empty(0, np.int32), *parts]) for name, parts in self._index.items()}
        lists = [
            arrow_lists(values, np.array([0, len(values)]), _SCHEMA.field(name).type) for name, values in arrays.items()
        ]
        counts = [arrow_array(np.array([count])) for count in (self._num_rows, self._num_blank_lines)]
        notes = (list(self._kinds), joined_counts(self._unread), self._num_read)
        texts = [arrow_text(json.dumps(part)) for part in notes]
        origin = arrow_text(json.dumps(asdict(self._origin) if self._origin else None))
        batch = pa.RecordBatch.from_arrays([*lists, *texts, *counts, origin], schema=_SCHEMA)
        with path.open("wb") as sink, pa.ipc.new_stream(sink, _SCHEMA) as stream:
            stream.write_batch(batch)
        digest = bytes.fromhex(hash_file(path))
        with path.open("ab") as end:
            end.write(digest + _MARK)


@contextmanager
def write_token_file(path: Path, origin: TokenOrigin | None = None) -> Iterator[TokenFileWriter]:
    """Yield a writer; the file gets its name when the block ends without an error; safe for concurrent processes.

    `origin` is for files of the store. It is not flushed to disk: whoever uses it later checks all its bytes, so that
    tokens lost in a failure of the machine are made again.
    """
    complete_file = replaced_when_whole(path, is_shared=True, is_lasting=False)
    with complete_file as temporary, tempfile.SpooledTemporaryFile(_KEPT_BYTES, dir=str(path.parent)) as spool:
        writer = TokenFileWriter(spool, origin)
        yield writer
        writer.finish(temporary)


def read_token_index(path: Path) -> TokenIndex:
    """Return a file's index, without reading its tokens; raises StoreError if the file is incomplete."""
    row = _map_row(path)
    return TokenIndex(
        **{name: numpy_array(row.column(name).values).copy() for name in (*_INDEX_ARRAYS, *_NOTE_ARRAYS)},
        kinds=tuple((str(reason), str(detail)) for reason, detail in json.loads(row.column(_KINDS)[0].as_py())),
        unread=tuple(UnreadCount(*part) for part in json.loads(row.column(_UNREAD)[0].as_py())),
        num_read=tuple(json.loads(row.column(_NUM_READ)[0].as_py())),
        num_rows=row.column(_NUM_ROWS)[0].as_py(),
        num_blank_lines=row.column(_NUM_BLANK_LINES)[0].as_py(),
    )


def check_token_file(path: Path) -> TokenOrigin | None:
    """Return the origin that a file names, after checking the whole file against its sha256.

    Raises:
        StoreError: the file was changed or is incomplete.
    """
    stream, digest = _parts(path)
    if hashlib.sha256(stream).digest() != digest:
        raise unusable_file(path, "its checksum does not match")
    origin = json.loads(_row_of(stream, path).column(_ORIGIN)[0].as_py())
    return None if origin is None else TokenOrigin(**origin)


def token_arrays(path: Path) -> TokenArrays:
    """Return the memory-mapped arrays of a file, without copying tokens.

    Raises:
        StoreError: the file is incomplete.
    """
    row = _map_row(path)
    ids, mask, lengths = (numpy_array(row.column(name).values) for name in (INPUT_IDS, LOSS_MASK, "stored_lengths"))
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return TokenArrays(input_ids=ids, loss_mask=mask, offsets=offsets)


def _map_row(path: Path) -> Any:
    """Return the one row of a file, as a memory-mapped Arrow record batch.

    Raises:
        StoreError: the file is incomplete.
    """
    stream, _ = _parts(path)
    return _row_of(stream, path)


def _row_of(stream: Any, path: Path) -> Any:
    try:
        with pa.ipc.open_stream(stream) as reader:
            row = reader.read_next_batch()
        row.validate()
    except (pa.ArrowException, OSError, StopIteration):
        raise unusable_file(path, "it is damaged") from None
    if row.schema != _SCHEMA or row.num_rows != 1:
        raise unusable_file(path, "it does not hold tokens")
    return row


def _parts(path: Path) -> tuple[Any, bytes]:
    """Return (memory-mapped stream, its expected sha256)."""
    try:
        refuse_special(path)
    except OSError as error:
        raise unusable_file(path, error.strerror or str(error)) from None
    if path.is_dir():
        raise unusable_file(path, "it is a folder")
    try:
        with pa.memory_map(str(path)) as file:
            content = file.read_buffer()
    except FileNotFoundError:
        raise unusable_file(path, "it does not exist") from None
    size = content.size - _TRAILER_BYTES
    trailer = content[max(size, 0) :].to_pybytes()
    if size < 0 or not trailer.endswith(_MARK):
        raise unusable_file(path, f"it is truncated, or not a token file of version {TOKEN_FILE_VERSION}")
    return content[:size], trailer[: -len(_MARK)]


def unusable_file(path: Path, reason: str) -> StoreError:
    """Return the error of a token file that is not what it should be."""
    return StoreError(f"{str(path)!r} cannot be used: {reason}. Run `bridgepack store verify --remove` to remove it.")
