"""The page of each release has what checks say of an upgrade to it, from the same tables."""

from dataclasses import fields
from itertools import pairwise
from pathlib import Path

import pytest
from scripts.docs_pages.rules import literal
from scripts.docs_pages.upgrades import upgrade_pages

from bridgepack.checking.upgrade import HABITS
from bridgepack.host import RELEASES, HostRelease

PROJECT = Path(__file__).parents[2]


@pytest.mark.parametrize(("old", "new"), pairwise(RELEASES), ids=lambda release: release.name)
def test_each_release_has_a_page_with_its_habits_names_and_fields(old: HostRelease, new: HostRelease) -> None:
    name = f"upgrade-{new.name}.md"
    page = upgrade_pages()[name]
    habits = [field.name for field in fields(HostRelease) if field.name in HABITS]
    others = [habit for habit in habits if getattr(old, habit) != getattr(new, habit)]

    assert others
    for habit in habits:
        assert (literal(HABITS[habit].title) in page) == (habit in others)
    assert all(f"`{theirs}`" in page for ours, theirs in new.renames.items() if old.renames.get(ours) != theirs)
    assert f"| {new.bridge} |" in page
    assert f"- {name}" in (PROJECT / "mkdocs.yml").read_text(encoding="utf-8")


def test_fields_that_came_and_went_are_named() -> None:
    page = upgrade_pages()["upgrade-0.7.md"]

    assert "- `CheckpointConfig`, new: `ckpt_fully_parallel_load_per_rank_objects`." in page
    assert "- `CheckpointConfig`, gone: `stream_ckpt_dequant`." in page
