"""Chat templates, compiled for the sandbox of transformers and rendered without its detours."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing

from bridgepack.data.tokenizers.fast_jinja import DICT_ATTRIBUTES, GET_ATTRIBUTE, GET_ITEM, rewritten

#: A template with this block says itself what the assistant wrote. Source: megatron-bridge 0.6.2, datasets/utils.py.
GENERATION_BLOCK = re.compile(r"\{%-?\s+generation\s+-?%\}")

Messages = Sequence[Mapping[str, Any]]
Root = Callable[[Any], Any]


class ChatTemplate:
    """A chat template with the special tokens that it can name."""

    def __init__(self, source: str, special_tokens: Mapping[str, Any]) -> None:
        """Compile the template.

        Args:
            source: Jinja.
            special_tokens: variable such as `bos_token` -> text.

        Raises:
            jinja2.TemplateSyntaxError: when it is not valid Jinja.
        """
        self.source = source
        self._environment = _environment()
        self._python = self._environment.compile(source, raw=True)
        self._short_root = self._executed(_short(self._python))
        fixed = {"documents": None, "add_generation_prompt": False}
        self._variables = {**self._environment.globals, **fixed, **special_tokens}
        self._new_context = _context_maker(self._environment)

    @cached_property
    def _root(self) -> Root:
        """The template's function as Jinja compiles it."""
        return self._executed(ast.parse(self._python))

    def _executed(self, module: ast.Module) -> Root:
        """Return the function that code defines: what `Template.from_code` does."""
        environment = self._environment
        helpers = {GET_ATTRIBUTE: _attribute_getter(environment), GET_ITEM: _item_getter(environment)}
        namespace: dict[str, Any] = {"environment": environment, **helpers}
        exec(compile(module, "<chat template>", "exec"), namespace)
        root: Root = namespace["root"]
        return root

    def render(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = None) -> str:
        """Return the text of a conversation.

        Raises:
            Exception: whatever the template or its Python raises.
        """
        context = self._context(messages, tools)
        try:
            return "".join(self._short_root(context))
        except Exception:  # the long way words the error, and has the last word
            return "".join(self._root(self._context(messages, tools)))

    def render_marked(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[str, list[tuple[int, int]]]:
        """Return the text and the (first, one past the last) characters of the template's generation blocks.

        Raises:
            Exception: whatever the template or its Python raises.
        """
        try:
            return self._marked(self._short_root, messages, tools)
        except Exception:  # as in `render`
            return self._marked(self._root, messages, tools)

    def _marked(self, root: Root, messages: Messages, tools: Any) -> tuple[str, list[tuple[int, int]]]:
        tracker = self._environment.extensions[_GenerationBlocks.identifier]
        assert isinstance(tracker, _GenerationBlocks)
        with tracker.tracking() as (parts, spans):
            for part in root(self._context(messages, tools)):
                parts.append(part)
            return "".join(parts), spans

    def _context(self, messages: Messages, tools: Any) -> Any:
        return self._new_context({**self._variables, "messages": messages, "tools": tools})


class _GenerationBlocks(jinja2.ext.Extension):
    """The tag `generation`: what stands in it is written as it is, and its place is noted while that is asked for.

    A block's place is counted from the parts of the text that the template has given so far, as transformers counts.
    Source: transformers 5.12, utils/chat_template_utils.py, AssistantTracker.
    """

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self._parts: list[str] | None = None
        self._spans: list[tuple[int, int]] = []

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        """Return the call that a block becomes."""
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

    def written(self, caller: Callable[[], str]) -> str:
        """Return a block's text and note where it stands."""
        text = caller()
        if self._parts is not None:
            start = sum(map(len, self._parts))
            self._spans.append((start, start + len(text)))
        return text

    @contextmanager
    def tracking(self) -> Iterator[tuple[list[str], list[tuple[int, int]]]]:
        """Give the list that takes the text's parts, and the list of places."""
        self._parts, self._spans = [], []
        try:
            yield self._parts, self._spans
        finally:
            self._parts = None


def _environment() -> ImmutableSandboxedEnvironment:
    """Return the sandbox that chat templates are written for.

    Source: transformers 5.12, utils/chat_template_utils.py, _cached_compile_jinja_template.
    """
    extensions = [_GenerationBlocks, jinja2.ext.loopcontrols]
    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _as_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _now
    return environment


def _as_json(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> None:
    raise TemplateError(message)


def _now(format: str) -> str:
    return datetime.now().strftime(format)


def _short(python: str) -> ast.Module:
    """Return a template's code with the short ways in it; another Jinja's code as it is, for it is not known."""
    return rewritten(python) if jinja2.__version__.startswith("3.1.") else ast.parse(python)


def _context_maker(environment: ImmutableSandboxedEnvironment) -> Callable[[dict[str, Any]], Any]:
    """Return a function that makes the context of one rendering from all its variables, globals among them.

    Chat templates have no blocks to inherit and nothing to export, so every context may share what is the same in all.
    """
    make, globals_of = environment.context_class, environment.globals

    def new_context(variables: dict[str, Any]) -> Any:
        return make(environment, variables, None, {}, globals=globals_of)

    return new_context


def _attribute_getter(environment: ImmutableSandboxedEnvironment) -> Callable[[Any, str], Any]:
    ask, undefined, attributes_of = environment.getattr, environment.undefined, object.__getattribute__

    def get_attribute(owner: Any, name: str) -> Any:
        """Return what the sandbox's `getattr` returns, without raising and catching for dictionaries and namespaces."""
        kind = type(owner)
        if kind is Namespace:
            value = attributes_of(owner, "_Namespace__attrs").get(name, missing)
            if value is not missing and not callable(value) and name[0] != "_":
                return value
        elif kind is dict and name not in DICT_ATTRIBUTES:
            value = owner.get(name, missing)
            return undefined(obj=owner, name=name) if value is missing else value
        return ask(owner, name)

    return get_attribute


def _item_getter(environment: ImmutableSandboxedEnvironment) -> Callable[[Any, Any], Any]:
    ask = environment.getitem

    def get_item(owner: Any, key: Any) -> Any:
        """Return what the sandbox's `getitem` returns."""
        try:
            return owner[key]
        except (TypeError, LookupError):
            return ask(owner, key)

    return get_item
