"""Renders rules as a table, as an explanation, and as plain values."""

import re
import textwrap
from collections.abc import Sequence
from types import MappingProxyType
from typing import Any

from bridgepack.config.errors import nearest_name
from bridgepack.errors import ConfigError
from bridgepack.releases import BRIDGE, CORE, TARGET
from bridgepack.rules.engine.rule import Rule
from bridgepack.rules.engine.text import rule_page
from bridgepack.rules.groups import group_of
from bridgepack.rules.registry import ALL_RULES

_WIDTH = 100
#: Addresses of the files of `megatron/bridge` and `megatron/core`.
_REPOSITORIES = MappingProxyType(
    {"bridge": "https://github.com/NVIDIA-NeMo/Megatron-Bridge", "core": "https://github.com/NVIDIA/Megatron-LM"}
)
#: A version of megatron-bridge that a source names, or a file of the host with the first line that is meant.
_PLACES = re.compile(r"megatron-bridge (\d[\d.]*\d)|(megatron/(bridge|core)/[\w/]+\.py)(?::(\d+))?")


def named_rule(name: str) -> Rule:
    """Return the rule with a code or a name.

    Raises:
        ConfigError: there is no such rule.
    """
    wanted = name.upper() if name.upper().startswith("BP") else name.lower()
    for rule in ALL_RULES:
        if wanted in (rule.code, rule.name):
            return rule
    nearest = nearest_name(wanted, [known for rule in ALL_RULES for known in (rule.code, rule.name)])
    hint = f" Did you mean {nearest}?" if nearest else ""
    raise ConfigError(f"rule is {name!r}; no rule has that code or name.{hint} `bridgepack rules` lists them.")


def rules_of_group(code: str) -> list[Rule]:
    """Return the rules whose codes begin with a partial code, e.g. `BP1`; empty for a full code or a name."""
    wanted = code.upper()
    is_beginning = wanted.startswith("BP") and wanted[2:].isdecimal()
    return [rule for rule in ALL_RULES if is_beginning and rule.code.startswith(wanted) and rule.code != wanted]


def explained(rule: str) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a rule as plain values, or all rules whose codes begin with `rule`.

    Raises:
        ConfigError: there is no such rule.
    """
    group = list(ALL_RULES) if rule.upper() == "BP" else rules_of_group(rule)
    return [rule_to_dict(one) for one in group] if group else rule_to_dict(named_rule(rule))


def rules_table(rules: Sequence[Rule]) -> str:
    """Return one line per rule, under the titles of their groups."""
    lines: list[str] = []
    for rule in rules:
        title = group_of(rule.code)
        if f"{title}:" not in lines:
            lines += ["", f"{title}:"] if lines else [f"{title}:"]
        lines.append(f"  {rule.code}  {rule.severity:<8}  {rule.name}")
    return "\n".join([*lines, "", f"{len(rules)} rules; `bridgepack explain CODE` explains one"])


def describe_rule(rule: Rule) -> str:
    """Return the full text of a rule, wrapped for a terminal."""
    parts = {
        "Why": rule.why,
        "Bad": rule.bad,
        "Good": rule.good,
        "Fix": rule.fix,
        "Noticed": f"by Megatron-Bridge: {rule.noticed}" if rule.noticed else "",
        "Evidence": rule.evidence,
        "Versions": versions_text(rule),
        "Source": rule.source,
        "Links": " ".join(source_links(rule.source)),
        "Page": rule_page(rule.code),
    }
    lines = [f"{rule.code} {rule.name} ({rule.severity}; judges {rule.judges})", "", *_wrapped(rule.summary, ""), ""]
    for title, text in parts.items():
        lines += _wrapped(text, f"{title + ':':<10}") if text else []
    return "\n".join(lines)


def source_links(source: str) -> list[str]:
    """Return links to the lines of Megatron-Bridge and Megatron-Core that a source names, at their versions."""
    links = []
    version = TARGET[BRIDGE]
    for named, path, room, line in _PLACES.findall(source):
        version = named or version
        tag = f"v{version}/src" if room == "bridge" else f"core_v{TARGET[CORE]}"
        if path:
            links.append(f"{_REPOSITORIES[room]}/blob/{tag}/{path}" + (f"#L{line}" if line else ""))
    return links


def versions_text(rule: Rule) -> str:
    """Return the versions that a rule applies to, as text."""
    return ", ".join(f"{name} {specifier}" for name, specifier in rule.versions.items()) or "all"


def rule_to_dict(rule: Rule) -> dict[str, Any]:
    """Return a rule as plain values with stable keys."""
    names = ("code", "name", "severity", "summary", "why", "bad", "good", "fix", "noticed", "evidence", "source")
    return {
        **{name: str(getattr(rule, name)) for name in names},
        "judges": rule.judges,
        "group": group_of(rule.code),
        "versions": dict(rule.versions),
        "catalogue": list(rule.catalogue_ids),
        "links": source_links(rule.source),
        "url": rule_page(rule.code),
    }


def _wrapped(text: str, label: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent=label, subsequent_indent=" " * len(label), break_on_hyphens=False)
