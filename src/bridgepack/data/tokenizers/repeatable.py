"""Whether a chat template writes the same text in every run: no random choices, addresses, or orders of sets."""

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime, time
from functools import wraps
from typing import Any

import jinja2
import jinja2.nodes
from jinja2.exceptions import TemplateError
from jinja2.filters import do_sort

#: Jinja's filter and its function that choose at random.
RANDOM_FILTER, RANDOM_TEXT = "random", "lipsum"
#: Filters that take the name of another filter.
_FILTERS_OF_FILTERS = frozenset({"map"})
#: Filters that return no text, one that they are given, or JSON, which has no objects of Python.
_MAKE_NO_TEXT = frozenset(
    {
        *("abs", "attr", "batch", "count", "d", "default", "dictsort", "first", "float", "groupby", "int", "items"),
        *("last", "length", "list", "map", "max", "min", "reject", "rejectattr", "round", "select", "selectattr"),
        *("slice", "sort", "sum", "tojson", "unique"),
    }
)
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


def date_text(date_format: str) -> str:
    """Return today's date in a format of strftime, for templates that ask for `strftime_now`.

    Raises:
        TemplateError: the format has the time of day, too.
    """
    now = datetime.now()
    text = now.strftime(date_format)
    if any(datetime.combine(now, moment).strftime(date_format) != text for moment in (time.min, time.max)):
        raise TemplateError(
            f"it writes the time of day, strftime_now({date_format!r}), which is another one in every run; set "
            "template_date of the tokenizer, whose time is 0:00"
        )
    return text


class AddressCheck:
    """Checks that texts have no address of a Python object that is not in their sources, such as messages.

    Asked of the rendered text, and of each text that the template makes on the way, of which it may keep the address
    alone.
    """

    def __init__(self, *sources: Any) -> None:
        """Take the sources of every text."""
        self._sources, self._row, self._source_text = sources, (), ""

    def begin(self, *row: Any) -> None:
        """Take the other sources of the texts that follow."""
        self._row, self._source_text = row, ""

    def __call__[R](self, text: R) -> R:
        """Return the text, or what is none.

        Raises:
            TemplateError: it has such an address.
        """
        if isinstance(text, str) and ("0x" in text or "0X" in text):
            self._look_for_address(text)
        return text

    def _look_for_address(self, text: str) -> None:
        for address in _ADDRESS.finditer(text):
            if not self._source_text:
                self._source_text = json.dumps((*self._sources, *self._row), ensure_ascii=False, default=str).lower()
            if address[0].lower() not in self._source_text:
                object_text = text[max(address.start() - 40, 0) : address.end()]
                raise TemplateError(
                    f"it writes a Python object, ...{object_text!r}, whose address is another one in every run"
                )

    def after[**P, R](self, function: Callable[P, R]) -> Callable[P, R]:
        """Return a function with the same result, which is checked; with what Jinja notes at a filter."""

        @wraps(function)
        def result_checked(*arguments: P.args, **keywords: P.kwargs) -> R:
            text = function(*arguments, **keywords)
            if not keywords and len(arguments) == 1 and type(arguments[0]) is str:  # made of a text alone
                return text
            return self(text)

        return result_checked

    def of_filters(self, filters: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
        """Return Jinja's filters, of which those that make texts of objects are checked."""
        return {name: item if name in _MAKE_NO_TEXT else self.after(item) for name, item in filters.items()}


class Unordered:
    """A set that a template makes of the keys of an object: `message.keys() - ['role']`.

    Its order is another one in every run: its size and its members can be asked for, and it can be sorted.
    """

    def __init__(self, members: Iterable[Any]) -> None:
        self.members = frozenset(members)

    def __len__(self) -> int:
        return len(self.members)

    def __contains__(self, item: Any) -> bool:
        return item in self.members

    def __sub__(self, members: Any) -> "Unordered":
        return Unordered(self.members.difference(members))

    def __iter__(self) -> Iterator[Any]:
        """Return its only member, if it has no more.

        Raises:
            TemplateError: it has.
        """
        if len(self.members) > 1:
            raise TemplateError(
                "it writes the members of a set, such as `message.keys() - ['role']`, whose order is another one in "
                "every run; sort them"
            )
        return iter(self.members)

    def __repr__(self) -> str:
        return repr(set(self))


@jinja2.pass_environment
def sort_also_unordered(environment: jinja2.Environment, value: Any, *arguments: Any, **keywords: Any) -> list[Any]:
    """Return the items in order, as Jinja's filter `sort`; also of a set."""
    return do_sort(environment, value.members if isinstance(value, Unordered) else value, *arguments, **keywords)
