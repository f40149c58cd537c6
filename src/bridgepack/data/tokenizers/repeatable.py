"""Whether a chat template writes the same text in every run: no random choices, no addresses of Python objects."""

import json
import re
from collections.abc import Collection
from datetime import datetime, time
from typing import Any

import jinja2.nodes
from jinja2.exceptions import TemplateError

#: Jinja's filter and its function that choose at random.
RANDOM_FILTER, RANDOM_TEXT = "random", "lipsum"
#: Filters that take the name of another filter.
_FILTERS_OF_FILTERS = frozenset({"map"})
#: The end of what Python writes for an object without a text of its own, e.g. `<function f at 0x7f2c8e4d>`, also where
#: the template has changed that text.
_ADDRESS = re.compile(r" at 0x[0-9a-f]+|0x[0-9a-f]{6,}", re.IGNORECASE)


def random_part(tree: jinja2.nodes.Template, variables: Collection[str]) -> str | None:
    """Return what a template chooses at random with, as a user would name it; None if with nothing.

    `variables` are names that are set in every rendering.
    """
    for node in tree.find_all(jinja2.nodes.Filter):
        names = [node.name]
        if node.name in _FILTERS_OF_FILTERS:
            names += [argument.value for argument in node.args[:1] if isinstance(argument, jinja2.nodes.Const)]
        if RANDOM_FILTER in names:
            return f"the filter `{RANDOM_FILTER}`"
    uses = {node.ctx for node in tree.find_all(jinja2.nodes.Name) if node.name == RANDOM_TEXT}
    is_own = RANDOM_TEXT in variables or uses != {"load"}
    return None if is_own else f"the function `{RANDOM_TEXT}`"


def refuse_random(*_: Any, **__: Any) -> Any:
    """Stand in for Jinja's random filter and function, which a template may name only while it runs.

    Raises:
        TemplateError: always.
    """
    raise TemplateError(f"it uses `{RANDOM_FILTER}` or `{RANDOM_TEXT}`, which gives another text in every run")


def date_text(form: str) -> str:
    """Return today's date in a form of strftime, for templates that ask for `strftime_now`.

    Raises:
        TemplateError: the form has the time of day, too.
    """
    now = datetime.now()
    text = now.strftime(form)
    if any(datetime.combine(now, moment).strftime(form) != text for moment in (time.min, time.max)):
        raise TemplateError(
            f"it writes the time of day, strftime_now({form!r}), which is another one in every run; set template_date "
            "of the tokenizer, whose time is 0:00"
        )
    return text


def check_has_no_address(text: str, *sources: Any) -> None:
    """Check that a text has no address of a Python object that is not in its sources, such as messages.

    Raises:
        TemplateError: it has one.
    """
    if "0x" not in text and "0X" not in text:
        return
    source_text = json.dumps(sources, ensure_ascii=False, default=str).lower()
    for address in _ADDRESS.finditer(text):
        if address[0].lower() not in source_text:
            object_text = text[max(address.start() - 40, 0) : address.end()]
            raise TemplateError(
                f"it writes a Python object, ...{object_text!r}, whose address is another one in every run"
            )
