"""An artifact as it is judged, and what rules find."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bridgepack.records.manifests import Manifest
from bridgepack.records.runs import Change
from bridgepack.records.sequences import RowBatch


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """What a rule found.

    Attributes:
        code: of the rule, `BP` and three digits.
        name: of the wrong thing, e.g. `row-wider-than-pack`.
        severity: `error` or `warning`.
        why: what happens otherwise, in one line.
        num_occurrences: how many places of this kind there are; `where` names the first.
        changes: settings that would mend it; empty where a person must decide.
        noticed: when the host itself notices, e.g. `validate()`, `first step`, `never`.
        file: the user's file that `where` lies in; empty where there is none.
        line: 1-based line in it; None where it is not known.
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
    """One Parquet or `.npy` file as it lies on disk; nothing in it is checked."""

    path: str  #: relative to the artifact, as in `ShardRecord`
    exists: bool
    num_bytes: int | None = None  #: its size; None where it is missing
    sha256: str | None = None  #: of its bytes, hexadecimal; None where it is missing or was not computed
    #: column name -> Arrow type as text, e.g. `list<element: int32>`; empty where the footer is unreadable. Of a `.npy`
    #: file: the keys that every row has, and the type their elements would have.
    columns: Mapping[str, str] = field(default_factory=dict)
    num_rows: int | None = None  #: from the footer; None where it is unreadable
    row_group_rows: tuple[int, ...] = ()  #: rows of each row group, from the footer
    #: stored tokens of each row group, from the footer (`num_values` of `input_ids`)
    row_group_tokens: tuple[int, ...] = ()
    read_error: str | None = None  #: why the footer could not be read, in one line; None where it could
    format: str = "parquet"  #: `parquet` or `npy`; the fields below are of `.npy` files
    #: key -> types of its values that are no list but could be read as one, e.g. `numpy.ndarray`.
    value_types: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    layout_error: str | None = None  #: why it is no array of dicts of lists, in one line; `read_error` says the same
    #: what its pickle asks for beside lists, dicts and numbers, e.g. `os.system`; never run.
    forbidden_globals: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class MetadataFacts:
    """The host's metadata file as it lies on disk; nothing in it is checked."""

    path: str
    exists: bool
    content: Any = None  #: the parsed JSON; None where the file is missing or is no JSON
    read_error: str | None = None  #: why it could not be parsed, in one line; None where it could


class PartReader(Protocol):
    """Reads shards; where parts are judged in other processes it can be pickled."""

    def iter_batches(
        self, shard: str, *, row_groups: range | None, first_row: int, max_tokens: int
    ) -> Iterator[RowBatch]:
        """Yield the rows of some row groups, None for all, in order; a batch holds a row group or `max_tokens`.

        `first_row` is the 0-based index of their first row in the shard.

        Raises:
            ArtifactError: they cannot be read to their end, or a row or an element of it is null.
        """
        ...

    def sha256(self, shard: str) -> str:
        """Return the sha256 of a shard's file, hexadecimal."""
        ...


class InspectableArtifact(Protocol):
    """A folder of packed shards as `bridgepack check` reads it: broken files are facts here, not exceptions."""

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for packs that another tool wrote."""
        ...

    @property
    def parts(self) -> PartReader:
        """What reads its shards."""
        ...

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first: those of the manifest, or those found where there is none."""
        ...

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order: those the manifest lists, or those found."""
        ...

    def unlisted_files(self) -> tuple[str, ...]:
        """Return paths of files in the artifact that its manifest does not list, sorted."""
        ...

    def changed_files(self) -> Mapping[str, str]:
        """Return path -> what is wrong of files beside the shards that are not those of the manifest."""
        ...

    def metadata_facts(self) -> MetadataFacts:
        """Return facts about the host's metadata file."""
        ...
