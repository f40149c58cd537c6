"""The blocks of a rule, and of a list of rules."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bridgepack.records.words import count_text
from bridgepack.reporting.blocks import Block, Column, Figure, Figures, Line, Section, Table, Title
from bridgepack.reporting.text import caught_text

_COLUMNS = (Column("Code", "{}"), Column("Severity", "  {:<8}"), Column("Name", "  {}"))
_LABEL = 10


def rules_blocks(rules: Sequence[Mapping[str, Any]]) -> Iterator[Block]:
    """Yield rules, as `rule_to_dict` gives them, by group."""
    cells_of_groups: dict[str, list[tuple[str, ...]]] = {}
    for rule in rules:
        cells_of_groups.setdefault(rule["group"], []).append((rule["code"], rule["severity"], rule["name"]))
    for group, cells in cells_of_groups.items():
        yield Section("", (Table(title=group, columns=_COLUMNS, rows=cells, head=f"{group}:"),))
    yield Section("", (Line(f"{count_text(len(rules), 'rule')}; `bridgepack explain CODE` explains one"),))


def rule_blocks(rule: Mapping[str, Any]) -> Iterator[Block]:
    """Yield what there is to say of a rule, as `rule_to_dict` gives it."""
    texts = {
        "Why": rule["why"],
        "Bad": rule["bad"],
        "Good": rule["good"],
        "Fix": rule["fix"],
        "Caught": caught_text(rule["noticed"]),
        "Evidence": rule["evidence"],
        "Versions": versions_text(rule["versions"]),
        "Source": rule["source"],
    }
    figures = tuple(Figure(name=f"{name}:", value=text) for name, text in texts.items() if text)
    links = Figure(name="Links:", value="\n".join([*rule["links"], rule["url"]]))
    yield Title(f"{rule['code']} {rule['name']} ({rule['severity']}; judges {rule['judges']})")
    yield Section("", (Line(rule["summary"], is_wrapped=True),))
    # A link is whole on its line, so that a terminal and a pipe keep it.
    yield Section("", (Figures(figures, width=_LABEL, is_wrapped=True), Figures((links,), width=_LABEL)))


def versions_text(versions: Mapping[str, str]) -> str:
    """Return the versions that a rule applies to, as text."""
    return ", ".join(f"{name} {specifier}" for name, specifier in versions.items()) or "all"
