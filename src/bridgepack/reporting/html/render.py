"""Renders templates with untrusted values: escaped, without control characters, never as markup."""

import re
import shlex
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from markupsafe import Markup

from bridgepack.reporting.results.checks import upgrade_blocks
from bridgepack.reporting.text import printable
from bridgepack.rules.judging.rule import rule_page

#: Maximum characters of a text from the data, except packs.
_LONGEST_TEXT = 400


def render_template(template: str, **values: Any) -> str:
    """Return a rendered template of this room; in HTML all values are escaped."""
    return _environment().get_template(template).render(values)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader(__package__),
        autoescape=select_autoescape(["html.jinja"]),
        finalize=_safe,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "code": _code,
        "count": "{:,.0f}".format,
        "percent": _percent,
        "rule_page": rule_page,
        "short": _short,
        "number": _number,
        "shell": shlex.quote,
        "upgrade_blocks": lambda upgrade: [*upgrade_blocks(upgrade)],
    }
    return environment


def _safe(value: Any) -> Any:
    return value if isinstance(value, (Markup, int, float)) else printable(str(value))


def _short(text: Any) -> str:
    text = str(text)
    return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."


def _number(number: float) -> str:
    return f"{number:,.0f}" if number == int(number) else f"{number:,.2f}"


def _percent(part: float, whole: float = 1) -> str:
    return f"{part / whole:.1%}" if whole else "-"


def _code(text: Any) -> str:
    """Return a text as inline code in Markdown, also valid inside a table."""
    plain = " ".join(str(text).split()).replace("|", "\\|")
    fence = "`" * (max(map(len, re.findall("`+", plain)), default=0) + 1)
    return f"{fence} {plain} {fence}" if "`" in plain else f"`{plain}`"
