"""Step 6 of a check, words: what the rules say in the user's own terms, with the paths and lines of the user's file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from bridgepack.bridge.locations import line_of
from bridgepack.bridge.targets import Target
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import Change, Finding, RunConfig
from bridgepack.records.messages import literals_in, paths_in, with_user_paths


@dataclass(frozen=True, kw_only=True, slots=True)
class UserTerms:
    """The user's terms for the settings that rules read."""

    target: Target  #: what the user pointed at
    config: RunConfig | None  #: its settings as rules read them; None for an artifact, whose terms are the rules' own

    def of_text(self, text: str) -> str:
        """Return a text with the user's names of the settings in it."""
        return with_user_paths(text, self.of_path)

    def of_path(self, path: str) -> str:
        """Return the user's name of a setting."""
        return path if self.config is None else self.config.user_path(path)

    def of_finding(self, finding: Finding) -> Finding:
        """Return a finding with the user's names, and the line of the first setting that it is on.

        A finding that is not on a setting, e.g. on a shard or a distribution, has no file.
        """
        config, target = self.config, self.target
        if config is None:
            return finding
        is_on_setting = bool(paths_in(finding.where))
        names = [*map(config.user_path, paths_in(finding.where))] or literals_in(finding.where)
        finding = finding.with_user_paths(config.user_path)
        if target.recipe is not None:
            finding = replace(finding, changes=tuple(_with_related_fields(finding.changes, target.recipe)))
        is_on_field = target.recipe is not None and names[0].partition(".")[0] in SFTRecipe.model_fields
        if target.file is None or not (is_on_setting or is_on_field):
            return finding
        return replace(finding, file=str(target.file), line=line_of(target.file, names))


def _with_related_fields(changes: Sequence[Change], recipe: SFTRecipe) -> Iterator[Change]:
    """Yield the changes of a recipe, with changes of related fields without which the recipe would be invalid."""
    for change in changes:
        yield change
        if change.path == "cuda_graphs.implementation" and recipe.cuda_graphs.modules:
            yield replace(change, path="cuda_graphs.modules", value=[], why="nothing is captured")
        longest = recipe.packing.max_sequence_length
        if change.path == "packing.packed_sequence_size" and longest is not None and longest > change.value:
            yield replace(change, path="packing.max_sequence_length", why="a sequence fits in packed_sequence_size")
