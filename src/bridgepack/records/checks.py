"""The settings of a run, and what a check of them finds."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol, runtime_checkable

from bridgepack.records.manifests import Manifest
from bridgepack.records.messages import paths_in, with_user_paths
from bridgepack.records.sequences import RowBatch

#: The recipe's section of settings of the host that have no field.
OVERRIDES = "bridge_overrides"


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A changed setting: proposed by a rule, or already made."""

    path: str  #: dotted path of the setting, as in `RunConfig.values`
    value: Any  #: new value; plain, or a `pathlib.Path`
    why: str  #: reason in one line; for a change that was made, with the code of the rule that asks for it, if any
    needs_repack: bool = False  #: whether existing packs must be built again
    old: Any = None  #: previous value, if the change was made

    @property
    def new(self) -> Any:
        """The new value, to match `old`."""
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal:
    """A setting of a recipe with which no ConfigContainer can be made, or which the host would not keep."""

    #: an override of a field that the host does not have; one of a wrong type; one that the host ignores or writes
    #: over; a reading of the data that the host does not do itself; a model that cannot be trained on text; a setting
    #: that the host takes and switches off
    kind: Literal["nowhere", "unfit", "not_kept", "reading", "model", "no_effect"]
    path: str  #: dotted path of the host, up to the first name that it does not have; or the recipe's field
    found: str  #: the value, or what the path names instead, e.g. `no field of GPTModelProvider`.
    allowed: str  #: the allowed values
    fix: str  #: what to do, e.g. the nearest field
    owner: str = ""  #: class of the host, with its module, that has no such field
    change: Change | None = None  #: corrected section, if exactly one field is clearly meant


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The settings of a run, under their paths in Megatron-Bridge's ConfigContainer."""

    #: nested mappings of plain values, as the host saves its config: None, bool, int, float, str, list, dict, and
    #: `pathlib.Path` where the config holds a path object. A nested object is a mapping with `_target_`, its class.
    #: Example: `values["model"]["context_parallel_size"]`.
    values: Mapping[str, Any]
    #: whether every field of the host's config is present. Then an absent path is a field that this version of the
    #: host does not have; otherwise it is an unknown value.
    is_complete: bool
    place: str  #: the user's name for the settings, e.g. `recipes/mine.yaml`.
    #: path here -> path in the user's file, of what is written there under another path
    user_paths: Mapping[str, str] = field(default_factory=dict)
    #: paths of a recipe's run whose values the recipe does not set: they follow from its other fields and its packs
    derived: frozenset[str] = frozenset()
    #: of a recipe: path here -> the field that would say it; a path that ends with a dot is a section. None if the
    #: settings are no recipe's: then they are written under their paths here.
    recipe_fields: Mapping[str, str] | None = None
    #: code of an ignored rule -> the user's reason
    ignored: Mapping[str, str] = field(default_factory=dict)
    world_size: int | None = None  #: number of GPUs; None if the settings do not say
    #: (field in the user's file, local path or pattern) that a build of the packs reads
    inputs: tuple[tuple[str, str], ...] = ()
    #: whether they belong to a recipe whose packs `build` makes, which refuses sequences that the host would cut
    builds_packs: bool = False
    #: (value, hint) for a recipe's model.name, if it does not name a recipe of the target host
    no_recipe: tuple[str, str] | None = None
    #: settings of a recipe that the target host does not take
    refusals: tuple[Refusal, ...] = ()
    bridge_version: str | None = None  #: version of megatron-bridge that they are for; None if they do not say
    package: str | None = None  #: package that a saved config names the host's classes in; None for other settings
    #: path of a complete config that is not known here where it is absent, with all below it -> what would tell it
    unknown: Mapping[str, str] = field(default_factory=dict)

    def is_whole_at(self, path: str) -> bool:
        """Return whether an absent value at a path means that the host has no such field."""
        return self.is_complete and self.why_unknown(path) is None

    def why_unknown(self, path: str) -> str | None:
        """Return what would reveal an unknown value; None if that is not recorded."""
        if not self.unknown:
            return None
        parts = path.split(".")
        above = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return next((self.unknown[name] for name in above if name in self.unknown), None)

    def user_path(self, path: str) -> str:
        """Return what the user writes for a setting: its path, or a recipe's field or override."""
        if path in self.user_paths or self.recipe_fields is None:
            return self.user_paths.get(path, path)
        section, _, name = path.partition(".")
        if f"{section}." in self.recipe_fields:
            return f"{self.recipe_fields[f'{section}.']}.{name}"
        return self.recipe_fields.get(path, f"{OVERRIDES}.{path}")


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One finding of a rule.

    Attributes:
        code: code of the rule, `BP` and three digits.
        name: of the wrong thing, e.g. `pack-exceeds-its-size`.
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

    def with_user_paths(self, user_path: Callable[[str], str]) -> "Finding":
        """Return the finding with the user's name of each setting in its texts and changes."""
        texts: Any = {
            name: with_user_paths(getattr(self, name), user_path) for name in ("found", "allowed", "why", "fix")
        }
        return replace(
            self,
            where=_place(self.where, user_path),
            examples=tuple(_place(place, user_path) for place in self.examples),
            changes=tuple(replace(change, path=user_path(change.path)) for change in self.changes),
            **texts,
        )


def _place(where: str, user_path: Callable[[str], str]) -> str:
    """Return a place with the user's paths; settings of the host that are one field are named once."""
    paths = paths_in(where)
    if where == ", ".join(paths):
        return ", ".join(dict.fromkeys(map(user_path, paths)))
    return with_user_paths(where, user_path)


@dataclass(frozen=True, kw_only=True, slots=True)
class UpgradeChange:
    """One thing that another release of the host does otherwise with this run."""

    #: a finding that appears or goes; a setting with another name; a setting with another value; a habit of the host
    kind: Literal["finding", "renamed", "value", "habit"]
    what: str  #: code and name of a rule, the setting in the user's terms, or the habit
    before: str  #: with the release that the run is for; empty if it is not there
    after: str  #: with the release that was asked for; empty if it is not there


@dataclass(frozen=True, kw_only=True, slots=True)
class Upgrade:
    """What an upgrade of the host changes for one run."""

    before: str  #: release that the run is for, e.g. `0.6`
    after: str  #: release that was asked for, e.g. `0.7`
    changes: tuple[UpgradeChange, ...] = ()


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


@runtime_checkable
class Progress(Protocol):
    """Is told about a stage's progress; shows it or ignores it."""

    def start(self, stage: str, total: int | None, unit: str) -> None:
        """Begin a stage with `total` work, None if unknown; `unit` names the things that it makes."""

    def advance(self, num_items: int, work: int | None = None) -> None:
        """Count `num_items` more things and `work` more of the total; by default `work` is `num_items`."""

    def finish(self) -> None:
        """End the stage."""


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

    def sha256(self, shard: str) -> str:
        """Return the sha256 of a shard's file, hexadecimal."""


class InspectableArtifact(Protocol):
    """A folder of packed shards for `bridgepack check`: broken files are facts, not exceptions."""

    @property
    def manifest(self) -> Manifest | None:
        """Its manifest; None for packs that another tool wrote."""

    @property
    def parts(self) -> PartReader:
        """Reader of its shards."""

    @property
    def split_names(self) -> tuple[str, ...]:
        """Its splits, training first: those in the manifest, or without one those found."""

    def shard_facts(self, split: str) -> tuple[ShardFacts, ...]:
        """Return facts about the split's shards, in order: those the manifest lists, or those found."""

    def unlisted_files(self) -> tuple[str, ...]:
        """Return paths of files in the artifact that its manifest does not list, sorted."""

    def changed_files(self) -> Mapping[str, str]:
        """Return path -> problem, for files other than shards that do not match the manifest."""

    def metadata_facts(self) -> MetadataFacts:
        """Return facts about the host's metadata file."""
