"""Interface to the artifact that rules check, and the rules' findings."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridgepack.records.manifests import Manifest
from bridgepack.records.runs import Change
from bridgepack.records.sequences import RowBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One finding of a rule.

    Attributes:
        code: code of the rule, `BP` and three digits.
        name: of the wrong thing, e.g. `row-wider-than-pack`.
        severity: `error` or `warning`.
        why: what happens if it is not fixed, in one line.
        num_occurrences: how many places of this kind there are; `where` names the first.
        changes: settings that would fix it; empty if a person must decide.
        noticed: when the host itself notices, e.g. `validate()`, `first step`, `never`.
        file: the user's file that contains `where`; empty if there is none.
        line: 1-based line in `file`; None if unknown.
    """

    code: str
    name: str
    severity: str
    where: str
    found: str
    allowed: str
    why: str
    fix: str
    num_occurrences: int = 1
    examples: tuple[str, ...] = field(default=())
    changes: tuple[Change, ...] = field(default=())
    noticed: str = ""
    file: str = ""
    line: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ShardFacts:
    """Unchecked facts about one Parquet or `.npy` file on disk."""

    path: str  #: relative to the artifact, as in `ShardRecord`
    exists: bool
    num_bytes: int | None = None  #: its size; None if it is missing
    sha256: str | None = None  #: of its bytes, hexadecimal; None if it is missing or was not computed
    #: column name -> Arrow type as text, e.g. `list<element: int32>`; empty if the footer is unreadable. For a `.npy`
    #: file: the keys that every row has, and the Arrow type for their elements.
    columns: Mapping[str, str] = field(default_factory=dict)
    num_rows: int | None = None  #: from the footer; None if it is unreadable
    row_group_rows: tuple[int, ...] = ()  #: rows of each row group, from the footer
    #: stored tokens of each row group, from the footer (`num_values` of `input_ids`)
    row_group_tokens: tuple[int, ...] = ()
    read_error: str | None = None  #: why the footer could not be read, in one line; None if it could
    format: str = "parquet"  #: `parquet` or `npy`; the fields below are of `.npy` files
    #: key -> types of its values that are not lists but can be read as lists, e.g. `numpy.ndarray`.
    value_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    layout_error: str | None = None  #: why it is not an array of dicts of lists, in one line; same as `read_error`
    #: names that its pickle imports besides lists, dicts and numbers, e.g. `os.system`; never run.
    forbidden_globals: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataFacts:
    """Unchecked facts about the host's metadata file on disk."""

    path: str
    exists: bool
    content: Any = None  #: the parsed JSON; None if the file is missing or not JSON
    read_error: str | None = None  #: why it could not be parsed, in one line; None if it could


class PartReader(Protocol):
    """Reads shards; picklable, for checks in other processes."""

    def iter_batches(
        self, shard: str, *, row_groups: range | None, first_row: int, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield the rows of some row groups, None for all, in order, in batches of one row group or `max_tokens`.

        `first_row` is the 0-based index of their first row in the shard.

        Raises:
            ArtifactError: they cannot be read completely, or a row or an element is null.
        """
        ...

    def sha256(self, shard: str) -> str:
        """Return the sha256 of a shard's file, hexadecimal."""
        ...


class InspectableArtifact(Protocol):
    """A folder of packed shards for `bridgepack check`: broken files are facts, not exceptions."""

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for packs that another tool wrote."""
        ...

    @property
    def parts(self) -> PartReader:
        """Reader of its shards."""
        ...

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first: those in the manifest, or without one those found."""
        ...

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order: those the manifest lists, or those found."""
        ...

    def unlisted_files(self) -> tuple[str, ...]:
        """Return paths of files in the artifact that its manifest does not list, sorted."""
        ...

    def changed_files(self) -> Mapping[str, str]:
        """Return path -> problem, for files other than shards that do not match the manifest."""
        ...

    def metadata_facts(self) -> MetadataFacts:
        """Return facts about the host's metadata file."""
        ...
