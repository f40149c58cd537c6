"""A training run's settings, for rules, and changes to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A changed setting: proposed by a rule, or already made.

    Attributes:
        path: dotted path of the setting, as in `RunConfig.values`.
        value: new value; plain, or a `pathlib.Path`.
        why: reason in one line; for a change that was made, with the code of the rule that asks for it, if any.
        needs_repack: whether existing packs must be built again.
        old: previous value, if the change was made.
    """

    path: str
    value: Any
    why: str
    needs_repack: bool = False
    old: Any = None

    @property
    def new(self) -> Any:
        """The new value, to match `old`."""
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class LostOverride:
    """An override of a field that the target host does not have."""

    path: str  #: dotted path, up to the first name that the host does not have
    found: str  #: what the path names instead, e.g. `no field of GPTModelProvider`.
    allowed: str  #: the nearest field, examples of existing fields, or the value as a whole
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
    #: path here -> path in the user's file, if they differ
    user_paths: Mapping[str, str] = field(default_factory=dict)
    #: code of an ignored rule -> the user's reason
    ignored: Mapping[str, str] = field(default_factory=dict)
    world_size: int | None = None  #: number of GPUs; None if the settings do not say
    #: (field in the user's file, local path or pattern) that a build of the packs reads
    inputs: tuple[tuple[str, str], ...] = ()
    #: whether they belong to a recipe whose packs `build` makes, which refuses sequences that the host would cut
    builds_packs: bool = False
    #: (value, hint) for a recipe's model.name, if it does not name a recipe of the target host
    no_recipe: tuple[str, str] | None = None
    #: overrides of a recipe for fields that the target host does not have
    lost_overrides: tuple[LostOverride, ...] = ()
    #: path of a complete config that is not known here where it is absent, with all below it -> what would tell it
    unknown: Mapping[str, str] = field(default_factory=dict)

    def is_whole_at(self, path: str) -> bool:
        """Return whether an absent value at a path means that the host has no such field."""
        return self.is_complete and self.why_unknown(path) is None

    def why_unknown(self, path: str) -> str | None:
        """Return what would reveal an unknown value; None if that is not recorded."""
        parts = path.split(".")
        above = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return next((self.unknown[name] for name in above if name in self.unknown), None)

    def user_path(self, path: str) -> str:
        """Return the path in the user's file."""
        return self.user_paths.get(path, path)


class Files(Protocol):
    """The file system as the run will see it; methods do not raise for missing or unreadable paths."""

    def exists(self, path: str) -> bool:
        """Return whether the file or folder exists."""
        ...

    def is_folder(self, path: str) -> bool:
        """Return whether the folder exists."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; empty if it is not a folder."""
        ...

    def matches(self, pattern: str) -> tuple[str, ...]:
        """Return the paths that match a shell pattern (`*`, `?`, not recursive), sorted."""
        ...

    def num_bytes(self, path: str) -> int | None:
        """Return the size of a file in bytes; None if it is not a file."""
        ...

    def num_lines(self, path: str, *, at_most: int) -> int | None:
        """Return the number of non-blank lines of a file, at most `at_most`; None if it is not a file."""
        ...

    def modified_s(self, path: str) -> float | None:
        """Return a path's modification time in seconds since the epoch; None if it does not exist."""
        ...

    def is_writable(self, path: str) -> bool:
        """Return whether a file can be created in a folder, or in its nearest existing parent."""
        ...
