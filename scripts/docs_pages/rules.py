"""A page per rule and an index of all, as Markdown."""

import re
from collections.abc import Mapping, Sequence
from itertools import groupby

from bridgepack.config.recipe.host_paths import FIELDS
from bridgepack.records.messages import with_user_paths
from bridgepack.reporting.results.rules import versions_text
from bridgepack.reporting.text import caught_text
from bridgepack.rules.judging.rule import Rule, RunRule, Severity
from bridgepack.rules.registry import group_of

from .related_rules import related_rules

_INTRODUCTION = """\
# Rules

There are {num_rules} rules, one for each mistake. [`bridgepack check`](../check.md) finds nearly all of them before the
run, and the [guard](../trace.md#the-guard) finds a few while the run trains. Each rule has a page with its reason and
its fix. `bridgepack explain BP101` prints the same in a terminal.

An *error* makes `check` exit with 1. A *warning* does so only with `--strict`. *Advice* is shown with `--advice`. Where
the last column says `--fix`, [`check --fix`](../check.md#fixes) can write the change into your file.
"""
_END = """\
## How to read a rule's page

"The host" is Megatron-Bridge with Megatron-Core. "Nothing fails" means that training goes on, with wrong data or
wrong numbers. "The run is slow" means that it takes more time than it needs. In examples about rows, token 2 is EOS.
Lengths are in tokens; sizes are in bytes if no unit is given.

A source names files of megatron-bridge 0.6.2 and its companions with a line, and entries such as `PSB101` of the
catalogue of known ways to break a packed run. `tests/rules/catalogue.json` lists the entries that no rule covers, and
says why. A code is never used for another rule.
"""
#: More than 400 pages of rules hold the words of every task: in a search the pages of tasks come first.
_SEARCHED_LAST = """\
---
search:
  boost: 0.3
---
"""
#: How users of other projects are referred to -> the address of an issue or pull request there.
_TRACKERS = {
    "Bridge": "NVIDIA-NeMo/Megatron-Bridge",
    "Megatron-Bridge": "NVIDIA-NeMo/Megatron-Bridge",
    "Megatron-LM": "NVIDIA/Megatron-LM",
    "Model-Optimizer": "NVIDIA/Model-Optimizer",
    "NeMo": "NVIDIA-NeMo/NeMo",
    "NeMo-RL": "NVIDIA-NeMo/RL",
    "SkyRL": "NovaSky-AI/SkyRL",
    "TransformerEngine": "NVIDIA/TransformerEngine",
}
_SEEN = re.compile(rf"\b({'|'.join(sorted(_TRACKERS, key=len, reverse=True))}) ((?:#\d+(?:, )?)+)")
_ADDRESS = re.compile(r"https://[\w./-]*[\w/]")
#: `context_parallel_size 2`, as examples name a setting and its value.
_SETTING = re.compile(r"([a-z][a-z0-9_]*(?:\.[a-z0-9_]+)*) ([\w./+-]+)")


def rule_pages(rules: Sequence[Rule]) -> dict[str, str]:
    """Return file name below docs/ -> Markdown: the index and one page per rule."""
    ordered = sorted(rules, key=lambda rule: rule.code)
    related = related_rules(ordered)
    pages = {f"rules/{rule.code}.md": _page(rule, related[rule.code]) for rule in ordered}
    return {"rules/index.md": _index(ordered), **pages}


def page_of(blocks: Sequence[str]) -> str:
    """Return a page of blocks, the first of which begins with the title."""
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


def literal(text: str) -> str:
    """Return a text in which Markdown's own characters mean themselves, outside of code spans."""
    parts = text.split("`")
    parts[::2] = [part.replace("*", r"\*").replace("<", "&lt;").replace("_", r"\_") for part in parts[::2]]
    return "`".join(parts)


def _index(rules: Sequence[Rule]) -> str:
    blocks = [_INTRODUCTION.format(num_rules=len(rules)), '<div id="rule-filter"></div>']
    for title, group in groupby(rules, key=lambda rule: group_of(rule.code)):
        lines = ["| code | what is wrong | severity | judges | fix |", "|---|---|---|---|---|"]
        lines += [
            f"| [{rule.code}]({rule.code}.md) | {literal(_cell(rule.summary))} `{rule.name}` "
            f"| {rule.severity} | {rule.judges} | {'`--fix`' if rule.is_fixable else 'by hand'} |"
            for rule in group
        ]
        blocks += [f"## {title}", "\n".join(lines)]
    return page_of([*blocks, _END])


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def _page(rule: Rule, related: Mapping[str, str]) -> str:
    facts = {
        "Severity": rule.severity,
        "Judges": rule.judges,
        "Versions": literal(versions_text(rule.versions)),
        "Caught": literal(caught_text(rule.noticed)),
    }
    sections = {
        "Why": literal(rule.why),
        "Example": _example(rule),
        "Fix": f"{_fix(rule)}\n\n{_command(rule)}",
        "Related rules": "\n".join(f"- [{code}]({code}.md): {literal(summary)}" for code, summary in related.items()),
        "Where it was seen": _evidence(rule),
    }
    lines = "\n".join(f"- **{name}**: {text}" for name, text in facts.items() if text)
    blocks = [f"## {title}\n\n{text}" for title, text in sections.items() if text]
    return page_of([_SEARCHED_LAST, f"# {rule.code} {rule.name}", literal(rule.summary), lines, *blocks])


def _example(rule: Rule) -> str:
    """Return the wrong and the right setting as a block: as YAML where both are names and values."""
    settings = [_settings(text) for text in (rule.bad, rule.good)]
    if all(settings):
        wrong, right = ("\n".join(f"{name}: {value}" for name, value in pairs) for pairs in settings)
        return f"```yaml\n# wrong\n{wrong}\n\n# right\n{right}\n```"
    return f"```text\nwrong: {rule.bad}\nright: {rule.good}\n```"


def _settings(text: str) -> list[tuple[str, str]]:
    """Return the settings and their values that an example consists of; nothing if there is more in it."""
    matches = [_SETTING.fullmatch(part) for part in re.split(r",? and |, ", text.rstrip("."))]
    return [(match[1], match[2]) for match in matches if match] if all(matches) else []


def _fix(rule: Rule) -> str:
    """Return the fix, in the names of a recipe and in those of the host where these differ; addresses are links."""
    ours = with_user_paths(rule.fix, lambda path: FIELDS.get(path, path))
    text = f"In a recipe: {literal(ours)}\n\nIn a config of Megatron-Bridge: {literal(rule.fix)}"
    if ours == rule.fix:
        text = literal(rule.fix)
    return _ADDRESS.sub(r"[\g<0>](\g<0>)", text)


def _command(rule: Rule) -> str:
    """Return the commands that fix a finding, or that find it with the values of a run."""
    advice = " --advice" if rule.severity == Severity.ADVICE else ""
    if rule.is_fixable and not advice:
        lines = [
            f"bridgepack check mine.yaml --select {rule.code} --diff   # shows the change",
            f"bridgepack check mine.yaml --select {rule.code} --fix    # writes it",
        ]
    elif isinstance(rule, RunRule):
        lines = [f"bridgepack check mine.yaml --select {rule.code}{advice}   # names the value, and what is allowed"]
    elif rule.judges.startswith(("each pack", "the whole artifact")):
        lines = [f"bridgepack check packed/mine --select {rule.code}{advice}   # names the pack or the field"]
    else:
        lines = [f"bridgepack explain {rule.code}"]
    return "```bash\n" + "\n".join(lines) + "\n```"


def _evidence(rule: Rule) -> str:
    facts = {"Evidence": _linked(rule.evidence.rstrip(".")), "Source": _linked(rule.source)}
    return "\n".join(f"- **{name}**: {text}" for name, text in facts.items() if text)


def _linked(text: str) -> str:
    """Return a text as Markdown whose issues of other projects are links."""
    parts, end = [], 0
    for match in _SEEN.finditer(text):
        url = f"https://github.com/{_TRACKERS[match[1]]}/issues/"
        numbers = re.sub(r"#(\d+)", lambda number: f"[#{number[1]}]({url}{number[1]})", match[2])  # noqa: B023
        parts += [literal(text[end : match.start()]), f"{match[1]} {numbers}"]
        end = match.end()
    return "".join([*parts, literal(text[end:])])
