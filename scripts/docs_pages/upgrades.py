"""A page for each release of Megatron-Bridge after the first: what an upgrade to it changes, from what checks read."""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from itertools import pairwise
from typing import Any

from bridgepack.checking.upgrade import HABITS
from bridgepack.config.errors import quote
from bridgepack.host import RELEASES, HostRelease
from bridgepack.host.model_fields import changed_effects

from .rules import literal, page_of

#: Classes whose fields recipes and saved configs set.
_CLASSES = (
    *("megatron.bridge.training.config.ConfigContainer", "megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig"),
    *("megatron.bridge.training.config.CheckpointConfig", "megatron.bridge.training.config.TrainingConfig"),
    *("megatron.bridge.models.gpt_provider.GPTModelProvider", "megatron.bridge.models.mla_provider.MLAModelProvider"),
    *("megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider", "megatron.bridge.peft.lora.LoRA"),
)
_INTRODUCTION = """\
# Upgrade to Megatron-Bridge {new}

What {new} does otherwise than {old}. `bridgepack check RECIPE --bridge-version {new}` says which of it concerns a run,
with the findings that are new and those that go; nothing of {new} needs to be installed for that.
"""


def upgrade_pages() -> dict[str, str]:
    """Return file name below docs/ -> page."""
    return {f"upgrade-{new.name}.md": _page(old, new) for old, new in pairwise(RELEASES)}


def _page(old: HostRelease, new: HostRelease) -> str:
    sections = {
        "Versions": _versions(old, new),
        "Names and values of settings": _names(old, new),
        "What it does otherwise": _habits(old, new),
        "Fields": _fields(old, new),
        "Defaults": _defaults(old, new),
        "Fields that change another thing over the same weights": _effects(old, new),
    }
    blocks = [_INTRODUCTION.format(old=old.name, new=new.name)]
    for title, lines in sections.items():
        blocks += [f"## {title}", "\n".join(lines) or "None."]
    return page_of(blocks)


def _versions(old: HostRelease, new: HostRelease) -> Iterator[str]:
    yield "| | before | after |\n| --- | --- | --- |"
    for name in old.companions:
        yield f"| {name} | {old.companions[name]} | {new.companions[name]} |"
    for name in ("python", "transformers"):
        yield f"| {name} | {literal(getattr(old, name))} | {literal(getattr(new, name))} |"
    if old.root != new.root:
        yield f"| package of imports | {literal(old.root)} | {literal(new.root)} |"


def _names(old: HostRelease, new: HostRelease) -> Iterator[str]:
    for path in dict.fromkeys((*old.renames, *new.renames)):
        sides = old.renames.get(path, path), new.renames.get(path, path)
        if sides[0] != sides[1]:
            yield f"- `{sides[0]}` is `{sides[1]}`."
    for path, values in new.values.items():
        for theirs, ours in values.items():
            if old.values.get(path, {}).get(theirs) != ours:
                yield f"- `{path}`: `{ours}` is `{theirs}`."


def _habits(old: HostRelease, new: HostRelease) -> Iterator[str]:
    for field in fields(HostRelease):
        sides = getattr(old, field.name), getattr(new, field.name)
        if field.name in HABITS and sides[0] != sides[1]:
            habit = HABITS[field.name]
            words = {False: habit.without, True: habit.with_it}
            yield literal(f"- {habit.title}: before, {words[sides[0]]}; now, {words[sides[1]]}.")


def _fields(old: HostRelease, new: HostRelease) -> Iterator[str]:
    for of_class in _CLASSES:
        before, after = (set(release.facts.types_of(of_class)) for release in (old, new))
        for words, names in (("new", after - before), ("gone", before - after)):
            if before and after and names:
                yield f"- `{of_class.rpartition('.')[2]}`, {words}: {', '.join(f'`{name}`' for name in sorted(names))}."


def _defaults(old: HostRelease, new: HostRelease) -> Iterator[str]:
    for name, before in old.facts.defaults.items():
        after: Mapping[str, Any] = new.facts.defaults.get(name, {})
        for field in sorted(before.keys() & after.keys()):
            if before[field] != after[field]:
                yield f"- `{name}.{field}`: {quote(before[field])} before, {quote(after[field])} now."


def _effects(old: HostRelease, new: HostRelease) -> Iterator[str]:
    for name, kind, before, after in changed_effects(old, new):
        yield f"- `{name}`, {kind} models: {before} before, {after} now."
