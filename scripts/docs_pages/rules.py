"""A page per rule and an index of all, as Markdown."""

from collections.abc import Sequence
from itertools import groupby

from bridgepack.reporting.results.rules import versions_text
from bridgepack.reporting.text import caught_text
from bridgepack.rules.judging.rule import Rule
from bridgepack.rules.registry import group_of

_INTRODUCTION = """\
# Rules

Every rule of `bridgepack check`. [Check](../check.md) says how a check works and what its outcomes mean. Codes are
never reused. An *error* makes the check exit with 1, a *warning* only with `--strict`; *advice* is shown with
`--advice`.

In the reasons, `Crash` means that training stops, `Silent` that it goes on with wrong data or wrong numbers, `Slow`
that it costs time. In examples about rows EOS is token 2. Lengths are in tokens, sizes in bytes where a unit is not
said.

A source names files of megatron-bridge 0.6.2 and its companions with a line, and entries such as `PSB101` of the
catalogue of known ways to break a packed run; `tests/rules/catalogue.json` has those that no rule covers, and why.
"""


def rule_pages(rules: Sequence[Rule]) -> dict[str, str]:
    """Return file name below docs/ -> Markdown: the index and one page per rule."""
    ordered = sorted(rules, key=lambda rule: rule.code)
    return {"rules/index.md": _index(ordered), **{f"rules/{rule.code}.md": _page(rule) for rule in ordered}}


def page_of(blocks: Sequence[str]) -> str:
    """Return a page of blocks, the first of which begins with the title."""
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def literal(text: str) -> str:
    """Return a text in which Markdown's own characters mean themselves, outside of code spans."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", r"\*").replace("<", "&lt;").replace("_", r"\_") for part in parts[::2]]
    return "`".join(parts)


def _index(rules: Sequence[Rule]) -> str:
    blocks = [_INTRODUCTION, f"{len(rules)} rules."]
    for title, group in groupby(rules, key=lambda rule: group_of(rule.code)):
        lines = ["| code | the wrong thing | severity | judges |", "|---|---|---|---|"]
        lines += [
            f"| [{rule.code}]({rule.code}.md) | `{rule.name}` | {rule.severity} | {rule.judges} |" for rule in group
        ]
        blocks += [f"## {title}", "\n".join(lines)]
    return page_of(blocks)


def _page(rule: Rule) -> str:
    facts = {
        "Severity": rule.severity,
        "Judges": rule.judges,
        "Versions": literal(versions_text(rule.versions)),
        "Caught": literal(caught_text(rule.noticed)),
        "Evidence": literal(rule.evidence.rstrip(".")),
        "Source": literal(rule.source),
    }
    lines = "\n".join(f"- **{name}**: {text}" for name, text in facts.items() if text)
    texts = {"Why": rule.why, "Bad": rule.bad, "Good": rule.good, "Fix": rule.fix}
    sections = [f"## {title}\n\n{literal(text)}" for title, text in texts.items()]
    return page_of([f"# {rule.code} {rule.name}", literal(rule.summary), lines, *sections])
