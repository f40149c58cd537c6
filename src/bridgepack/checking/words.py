"""Step 6 of a check, words: what the rules say in the user's own terms, with the paths and lines of the user's file."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridgepack.bridge.locations import line_of
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.recipe import recipe_field
from bridgepack.bridge.refusing.refusals import in_users_paths
from bridgepack.bridge.targets import Target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import Change, Finding, RunConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class UserTerms:
    """The user's terms for the settings that rules read."""

    target: Target  #: what the user pointed at
    config: RunConfig | None  #: its settings as rules read them; None for an artifact, whose terms are the rules' own

    def of_text(self, text: str) -> str:
        """Return a text with the user's paths."""
        return in_users_paths(text, self.config)

    def of_path(self, path: str) -> str:
        """Return the user's path for one of the host."""
        return path if self.config is None else _user_name(path, self.target, self.config)

    def of_finding(self, finding: Finding) -> Finding:
        """Return a finding with the user's paths, and the line of the first.

        A finding that is not on a setting, e.g. on a shard or a distribution, has no file.
        """
        config, target = self.config, self.target
        if config is None:
            return finding
        paths = [self.of_path(part.strip()) for part in finding.where.split(",")]
        texts: Any = {name: self.of_text(getattr(finding, name)) for name in ("found", "allowed", "why", "fix")}
        finding = replace(
            finding,
            where=", ".join(dict.fromkeys(paths)),
            examples=tuple(self.of_path(place) for place in finding.examples),
            **texts,
            changes=_user_changes(finding.changes, target, config),
        )
        sections = {*config.values, *(SFTRecipe.model_fields if target.kind == "recipe" else ())}
        if target.file is None or paths[0].partition(".")[0] not in sections:
            return finding
        return replace(finding, file=str(target.file), line=line_of(target.file, paths))


def _user_name(path: str, target: Target, config: RunConfig) -> str:
    holder, _, name = path.rpartition(".")
    section = value_at(config.values, holder)
    is_inherited = path not in config.user_paths and isinstance(section, Mapping) and name in section
    is_of_base = target.kind == "recipe" and is_inherited and not path.startswith("dataset.")
    return recipe_field(config, path) if is_of_base else config.user_path(path)


def _user_changes(changes: Sequence[Change], target: Target, config: RunConfig) -> tuple[Change, ...]:
    user_path = recipe_field if target.kind == "recipe" else RunConfig.user_path
    changes = tuple(replace(change, path=user_path(config, change.path)) for change in changes)
    return changes if target.recipe is None else tuple(_with_related_fields(changes, target.recipe))


def _with_related_fields(changes: Sequence[Change], recipe: SFTRecipe) -> Iterator[Change]:
    """Yield the changes of a recipe, with changes of related fields without which the recipe would be invalid."""
    for change in changes:
        yield change
        if change.path == "cuda_graphs.implementation" and recipe.cuda_graphs.modules:
            yield replace(change, path="cuda_graphs.modules", value=[], why="nothing is captured")
        longest = recipe.packing.max_sequence_length
        if change.path == "packing.packed_sequence_size" and longest is not None and longest > change.value:
            yield replace(change, path="packing.max_sequence_length", why="a sequence fits in packed_sequence_size")
