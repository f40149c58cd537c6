"""A training run's settings as rules judge them, and changes to them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """A changed setting: one that a rule proposes, or that was made.

    Attributes:
        path: of the setting, as in `RunConfig.values`, dotted.
        value: what to set; plain, or a `pathlib.Path`.
        why: in one line; of one that was made, with the code of the rule that asks for it where one does.
        needs_repack: whether packs that exist already must be built again.
        old: value before, of a change that was made.
    """

    path: str
    value: Any
    why: str
    needs_repack: bool = False
    old: Any = None

    @property
    def new(self) -> Any:
        """The value, beside `old`."""
        return self.value


@dataclass(frozen=True, kw_only=True, slots=True)
class LostOverride:
    """An override whose path leads nowhere in the target host."""

    path: str  #: up to the name that the host does not have there
    found: str  #: what is there instead, e.g. `no field of GPTModelProvider`.
    allowed: str  #: the nearest field, some of those that there are, or the value as a whole
    change: Change | None = None  #: of the section that it stands in, where one name is meant beyond doubt


@dataclass(frozen=True, kw_only=True, slots=True)
class RunConfig:
    """The settings of a run, under the paths that Megatron-Bridge's ConfigContainer has for them."""

    #: nested mappings of plain values, as the host saves its config: None, bool, int, float, str, list, dict, and
    #: `pathlib.Path` where the config holds a path object. A nested object is a mapping with `_target_`, its class.
    #: Example: `values["model"]["context_parallel_size"]`.
    values: Mapping[str, Any]
    #: whether every field of the host's config is present. Then a path that is absent is a field that this version of
    #: the host does not have; otherwise it is a value that nobody stated.
    is_complete: bool
    place: str  #: what the user named, e.g. `recipes/mine.yaml`.
    #: path here -> path in the user's own file, where they differ
    user_paths: Mapping[str, str] = field(default_factory=dict)
    #: code of a rule -> why its findings do not matter, as the user wrote it
    ignored: Mapping[str, str] = field(default_factory=dict)
    world_size: int | None = None  #: number of GPUs, where the settings state it
    #: (field of the user's file, path on this machine or pattern) that a build of the packs reads
    inputs: tuple[tuple[str, str], ...] = ()
    #: whether they are a recipe's whose packs `build` makes, which refuses what the host would cut
    builds_packs: bool = False
    #: what to write for model.name of a recipe, (value, hint), where it names no recipe of the target host
    no_recipe: tuple[str, str] | None = None
    #: overrides of a recipe whose path leads nowhere in the target host
    lost_overrides: tuple[LostOverride, ...] = ()
    #: path of a complete config that is not known here where it is absent, with all below it -> what would tell it
    unknown: Mapping[str, str] = field(default_factory=dict)

    def is_whole_at(self, path: str) -> bool:
        """Say whether an absent value at a path means that the host has no such field."""
        return self.is_complete and self.why_unknown(path) is None

    def why_unknown(self, path: str) -> str | None:
        """Return what would tell a value that is not known here; None where that is not said."""
        parts = path.split(".")
        above = (".".join(parts[:end]) for end in range(1, len(parts) + 1))
        return next((self.unknown[name] for name in above if name in self.unknown), None)

    def user_path(self, path: str) -> str:
        """Return the user's own name of a path."""
        return self.user_paths.get(path, path)


class Files(Protocol):
    """The file system as the run will see it; nothing here raises for a path that is missing or unreadable."""

    def exists(self, path: str) -> bool:
        """Say whether there is a file or a folder."""
        ...

    def is_folder(self, path: str) -> bool:
        """Say whether there is a folder."""
        ...

    def names(self, folder: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none where it is no folder."""
        ...

    def matches(self, pattern: str) -> tuple[str, ...]:
        """Return the paths that match a shell pattern (`*`, `?`, not recursive), sorted."""
        ...

    def num_bytes(self, path: str) -> int | None:
        """Return the size of a file; None where it is none."""
        ...

    def num_lines(self, path: str, *, at_most: int) -> int | None:
        """Return the number of lines that are not blank, counting no further than `at_most`; None where it is none."""
        ...

    def modified_s(self, path: str) -> float | None:
        """Return when a file or folder was last written, in seconds since the epoch; None where it is missing."""
        ...

    def is_writable(self, path: str) -> bool:
        """Say whether a file could be made in that folder, or in the nearest folder above it that exists."""
        ...
