"""The cells of quirky rows: what becomes of each kind of row with a family of templates, by builds."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.zoo.endless import ENDLESS
from tests.zoo.families import FAMILIES, Family

from .builds import BLOCKS, Builder, Outcome, is_right
from .rows import QUIRKS, Quirk

#: What is tried for rows that come out wrong, in this order: the name in the table -> dotted fields of the recipe.
SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "null_content: empty": {"preprocessing.null_content": "empty"},
    "tool_arguments: object": {"preprocessing.tool_arguments": "object"},
    "tool_arguments: text": {"preprocessing.tool_arguments": "text"},
    "content_parts: join_text": {"preprocessing.content_parts": "join_text"},
    "message_weights: mask": {"preprocessing.message_weights": "mask"},
    "template_date": {"tokenizer.template_date": "2019-05-05"},
    "generation blocks": {BLOCKS: ""},
    "role_aliases": {"data.role_aliases": {"User": "user", "Assistant": "assistant"}},
}
#: What becomes of lost content and of control tokens in texts where a recipe wants neither.
_STRICT = {"preprocessing.on_lost_content": "drop", "preprocessing.control_tokens": "drop"}
SILENT = "**silently wrong**"

ALL_FAMILIES = (*FAMILIES, *ENDLESS)


def cells_of(family: Family, folder: Path) -> dict[str, str]:
    """Return the cell of every quirk as Markdown, by what the quirk is."""
    builder = Builder(folder, family)
    plain = builder.build(QUIRKS, {})
    wrong = [quirk for quirk in QUIRKS if not is_right(quirk, family, plain[quirk.what])]
    cures: dict[str, str] = {}
    for name, settings in SETTINGS.items():
        if BLOCKS in settings and not family.blocks:
            continue
        uncured = [quirk for quirk in wrong if quirk.what not in cures]
        outcomes = builder.build(uncured, settings)
        cures.update({quirk.what: name for quirk in uncured if is_right(quirk, family, outcomes[quirk.what])})
    strict = builder.build(wrong, _STRICT)
    return {
        quirk.what: _cell(quirk, plain[quirk.what], cures.get(quirk.what), strict.get(quirk.what)) for quirk in QUIRKS
    }


def _cell(quirk: Quirk, plain: Outcome, cure: str | None, strict: Outcome | None) -> str:
    """Return a cell of what a row gives, the setting that cures it, and, where it is wrong, what strictness gives."""
    if strict is None:
        return "✓" + (f" (! {', '.join(plain.told)})" if plain.told else "")
    if quirk.code in plain.codes:
        plain = plain._replace(told=(quirk.code,))
    findings = [kind for kind in plain.told if kind != "no_end"]  # which tells of nothing but an end
    if not plain.dropped and not findings:
        return SILENT + (f", `{cure}`" if cure else "")
    before = plain.dropped or ", ".join(plain.told)
    if cure:
        return f"`{cure}` ({before})"
    if plain.dropped:
        return f"✗ {before}"
    return f"! {before}" + (" ✗" if strict.dropped else "")
