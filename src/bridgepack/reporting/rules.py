"""Finds rules by code, name or words, as plain values."""

import re
from types import MappingProxyType
from typing import Any

from bridgepack.config.errors import nearest_name
from bridgepack.errors import ConfigError
from bridgepack.host import TARGET
from bridgepack.rules.judging.rule import Rule, rule_page
from bridgepack.rules.registry import ALL_RULES, group_of

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
    key = name.upper() if name.upper().startswith("BP") else name.lower()
    for rule in ALL_RULES:
        if key in (rule.code, rule.name):
            return rule
    nearest = nearest_name(key, [alias for rule in ALL_RULES for alias in (rule.code, rule.name)])
    hint = f" Did you mean {nearest}?" if nearest else ""
    raise ConfigError(
        f"rule is {name!r}; no rule has that code, that name or these words.{hint} `bridgepack explain` lists all."
    )


def rules_of_group(code: str) -> list[Rule]:
    """Return the rules whose codes begin with a partial code, e.g. `BP1`; empty for a full code or a name."""
    key = code.upper()
    is_beginning = key.startswith("BP") and key[2:].isdecimal()
    return [rule for rule in ALL_RULES if is_beginning and rule.code.startswith(key) and rule.code != key]


def explain_rule(rule: str) -> dict[str, Any] | list[dict[str, Any]]:
    """Return a rule as plain values, or all rules whose codes begin with `rule`.

    Raises:
        ConfigError: there is no such rule.
    """
    group = list(ALL_RULES) if rule.upper() == "BP" else rules_of_group(rule)
    is_named = any(rule.lower() in (entry.code.lower(), entry.name) for entry in ALL_RULES)
    rules = group if group or is_named else rules_about(rule)
    return [rule_to_dict(entry) for entry in rules] if rules else rule_to_dict(named_rule(rule))


def rules_about(text: str) -> list[Rule]:
    """Return the rules whose name, summary, reason or fix has every word of a text."""
    words = text.lower().replace("-", " ").split()
    about = {
        entry.code: f"{entry.name} {entry.summary} {entry.why} {entry.fix}".lower().replace("-", " ")
        for entry in ALL_RULES
    }
    return [entry for entry in ALL_RULES if words and all(word in about[entry.code] for word in words)]


def source_links(source: str) -> list[str]:
    """Return links to the lines of Megatron-Bridge and Megatron-Core that a source names, at their versions."""
    links = []
    version = TARGET.bridge
    for release, path, room, line in _PLACES.findall(source):
        version = release or version
        tag = f"v{version}/src" if room == "bridge" else f"core_v{TARGET.core}"
        if path:
            links.append(f"{_REPOSITORIES[room]}/blob/{tag}/{path}" + (f"#L{line}" if line else ""))
    return links


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
