"""Which rules run: by code, or by the first characters of codes, as ruff selects."""

from __future__ import annotations

from collections.abc import Sequence

from bridgepack.config.errors import nearest_name
from bridgepack.errors import ConfigError
from bridgepack.rules.engine.rule import Rule


def selected[R: Rule](rules: Sequence[R], *, select: Sequence[str], ignore: Sequence[str]) -> tuple[R, ...]:
    """Return the rules that are selected and not ignored.

    Args:
        rules: to choose from, in order.
        select: codes, names or first characters of codes, e.g. `BP101`, `BP3`, `micro-batch-size-not-one`; all rules
            where it is empty. Upper and lower case are the same.
        ignore: the same; the longer of a selecting and an ignoring prefix wins, as in ruff.
    """
    return tuple(
        rule for rule in rules if _strength(rule, select or ("BP",)) > (_strength(rule, ignore) if ignore else 0)
    )


def check_selectors(rules: Sequence[Rule], selectors: Sequence[str], option: str) -> None:
    """Accept selectors that choose at least one rule.

    Raises:
        ConfigError: one chooses none.
    """
    for selector in selectors:
        if not any(_matches(rule, selector) for rule in rules):
            nearest = nearest_name(selector, [known for rule in rules for known in (rule.code, rule.name)])
            hint = f"Did you mean {nearest}?" if nearest else "`bridgepack rules` lists them."
            raise ConfigError(
                f"{option} is {selector!r}; no rule is called that. Allowed: a code such as BP101, its beginning such "
                f"as BP1, or a name. {hint}"
            )


def _strength(rule: Rule, selectors: Sequence[str]) -> int:
    return max((len(selector) for selector in selectors if _matches(rule, selector)), default=0)


def _matches(rule: Rule, selector: str) -> bool:
    wanted = selector.upper()
    return (wanted.startswith("BP") and rule.code.startswith(wanted)) or selector.lower() == rule.name
