"""Chat templates, compiled for transformers' sandbox and rendered faster."""

import ast
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set, Sized
from functools import cached_property, lru_cache
from typing import Any

import jinja2
import jinja2.ext
import jinja2.meta
import jinja2.nodes
import jinja2.parser
from jinja2.exceptions import TemplateError, TemplateSyntaxError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace, missing

from bridgepack.data.tokenizers.fast_jinja import DICT_ATTRIBUTES, GET_ATTRIBUTE, GET_ITEM, rewritten
from bridgepack.data.tokenizers.limits import TimeLimit, check_length
from bridgepack.data.tokenizers.repeatable import (
    RANDOM_FILTER,
    RANDOM_TEXT,
    AddressCheck,
    Unordered,
    date_text,
    random_part,
    refuse_random,
    sort_also_unordered,
)
from bridgepack.errors import RowError, TokenizerError

#: A template with this block marks what the assistant wrote. Source: megatron-bridge 0.6.2, datasets/utils.py.
GENERATION_BLOCK = re.compile(r"\{%-?\s+generation\s+-?%\}")

Messages = Sequence[Mapping[str, Any]]
Tools = Messages | None
Root = Callable[[Any], Any]
#: Maximum length of a text or list that a template makes by repetition, and maximum bits of a power.
_MAX_LENGTH = 1_000_000
#: What compiled templates join texts and objects with.
_JOINING = ("markup_join", "str_join")
#: (start, stop) in characters.
Span = tuple[int, int]


class ChatTemplate:
    """A chat template with the special tokens that it can use."""

    def __init__(self, source: str, variables: Mapping[str, Any]) -> None:
        """Compile a Jinja template; `variables`, such as `bos_token`, are set in every rendering.

        Raises:
            jinja2.TemplateSyntaxError: it is not valid Jinja.
            SyntaxError, RecursionError, MemoryError: it is nested too deeply for Jinja or for Python.
        """
        self._environment, self._source = _environment(AddressCheck(source, variables)), source
        self._python = self._environment.compile(source, raw=True)
        is_known_jinja = jinja2.__version__.startswith("3.1.")
        self._short_root = self._fast_root() if is_known_jinja else self._root
        defaults = {"documents": None, "add_generation_prompt": False}
        self._variables = {**self._environment.globals, **defaults, **variables}
        context = self._environment.context_class(self._environment, {}, None, {})
        self._context_fields = context.__dict__ if is_known_jinja else None

    def tree(self) -> jinja2.nodes.Template:
        """Return the template as Jinja parses it."""
        return self._environment.parse(self._source)

    @cached_property
    def _root(self) -> Root:
        """The template's function as compiled by Jinja."""
        return self._execute(ast.parse(self._python))

    def _fast_root(self) -> Root:
        """The template's function with fast paths, or as compiled by Jinja if Python cannot compile those."""
        try:
            return self._execute(rewritten(self._python))
        except (RecursionError, SyntaxError, MemoryError):
            return self._root

    def _execute(self, module: ast.Module) -> Root:
        """Return the function that the code defines, like `Template.from_code`."""
        environment = self._environment
        helpers = {GET_ATTRIBUTE: _attribute_getter(environment), GET_ITEM: _item_getter(environment)}
        namespace: dict[str, Any] = {"environment": environment, **helpers}
        exec(compile(module, "<chat template>", "exec"), namespace)
        namespace |= {name: environment.check.after(namespace[name]) for name in _JOINING if name in namespace}
        root: Root = namespace["root"]
        blocks = {name: [block] for name, block in namespace["blocks"].items()}

        def root_with_blocks(context: Any) -> Any:
            context.blocks = blocks
            return root(context)

        return root_with_blocks if blocks else root

    def join_marked(self, parts: Iterable[str]) -> tuple[str, list[Span]]:
        """Return (text joined from its parts as they are rendered, positions of the template's generation blocks)."""
        blocks = self._environment.extensions[_GenerationBlocks.identifier]
        assert isinstance(blocks, _GenerationBlocks)
        return blocks.join_marked(parts)

    def refuse_odd_text(self, text: str, *sources: Any) -> None:
        """Check that a text is not out of proportion to the `sources` that it is rendered from, and has no address.

        Raises:
            RowError: it is far too long; reason `out_of_memory`.
            TemplateError: it has an address of a Python object.
        """
        check_length(text, *sources)
        self._environment.check(text)

    def render[R](
        self, collect: Callable[[Iterable[str]], R], messages: Messages, tools: Tools, kwargs: Mapping[str, Any]
    ) -> R:
        """Return the rendered parts of a conversation as `collect`, `"".join` or `marked`, joins them.

        Raises:
            Exception: any error of the template or its Python code.
        """
        self._environment.check.begin(messages, tools, kwargs)
        try:
            return collect(self._short_root(self._context(messages, tools, kwargs)))
        except MemoryError:
            raise
        except Exception:  # the slow path decides, and words the error
            return collect(self._root(self._context(messages, tools, kwargs)))

    def _context(self, messages: Messages, tools: Tools, kwargs: Mapping[str, Any]) -> Any:
        """Return the context of one rendering.

        Chat templates export nothing, so contexts can share the common variables.
        """
        variables = {**self._variables, **kwargs, "messages": messages, "tools": tools}
        environment = self._environment
        if self._context_fields is None:
            return environment.context_class(environment, variables, None, {})
        context = object.__new__(environment.context_class)  # its `__init__` takes as long as rendering a short turn
        fields = {"parent": variables, "vars": {}, "exported_vars": set(), "blocks": {}}
        context.__dict__.update(self._context_fields, eval_ctx=jinja2.nodes.EvalContext(environment), **fields)
        return context


def variables_of(source: str) -> frozenset[str]:
    """Return the names that a template reads and does not only set itself, without those of its environment.

    Raises:
        jinja2.TemplateSyntaxError: it is not valid Jinja.
    """
    return names_read(source) - _environment().globals.keys()


@lru_cache(maxsize=64)
def names_read(source: str) -> frozenset[str]:
    """Return the names that a template reads and does not only set itself, with those of its environment, as `range`.

    Raises:
        jinja2.TemplateSyntaxError: it is not valid Jinja.
    """
    environment = _environment()
    environment.globals.clear()
    return frozenset(jinja2.meta.find_undeclared_variables(environment.parse(source)))


@lru_cache(maxsize=1024)
def names_field(template: str, name: str) -> bool:
    """Return whether a chat template names a field of turns; rows have few names, so each is looked for once."""
    return name in _fields_named(template)


@lru_cache(maxsize=64)
def _fields_named(template: str) -> frozenset[str]:
    """Return the attributes and the texts of a template, which name fields: `.a`, `['a']`, `get('a')`, `map('b.c')`.

    A bare `tools` is the template's variable, and a text such as `'reasoning effort'` is written, not looked up.
    """
    tree = _environment().parse(template)
    names = {node.attr for node in tree.find_all(jinja2.nodes.Getattr)}
    for node in tree.find_all(jinja2.nodes.Const):
        if isinstance(node.value, str):
            names.update(node.value.split("."))
    return frozenset(names)


def compile_template(source: str, variables: Mapping[str, Any], where: str) -> ChatTemplate:
    """Return a compiled chat template; `where` says in errors whose it is.

    Raises:
        TokenizerError: it is not valid Jinja, is nested too deeply, takes too much time or memory, or gives another
            text in every run.
    """
    try:
        with TimeLimit() as limit:  # constant parts are computed while it is compiled
            template = limit(lambda text: ChatTemplate(text, variables), source)
        part = random_part(template.tree(), variables)
    except RowError as error:
        problem = f"{error.detail}, for its constant parts alone"
    except TemplateSyntaxError as error:
        problem = f"line {error.lineno} of its chat template is not valid Jinja: {error.message}"
    except (SyntaxError, RecursionError, MemoryError) as error:
        kind = type(error).__name__
        problem = (
            f"its chat template is nested too deeply to be compiled ({kind}); allowed: 20 loops, or about "
            "90 blocks, in one another"
        )
    else:
        if part is None:
            return template
        problem = (
            f"its chat template uses {part}, which gives another text in every run; allowed: templates that give the "
            "same text for the same row"
        )
    raise TokenizerError(f"{where}; {problem}. Correct the template, or set tokenizer.chat_template to another.")


class _GenerationBlocks(jinja2.ext.Extension):
    """The tag `generation`: writes its content unchanged, and records its position if requested.

    A block's position is the length of the text that the template has written so far, as in transformers.
    Source: transformers 5.12, utils/chat_template_utils.py, AssistantTracker.
    """

    tags = {"generation"}  # noqa: RUF012 (declared so by jinja2)

    def __init__(self, environment: jinja2.Environment) -> None:
        super().__init__(environment)
        self._parts: list[str] | None = None
        self._spans: list[Span] = []

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("write"), [], [], body).set_lineno(line)

    def write(self, caller: Callable[[], str]) -> str:
        """Return a block's text and record its position."""
        text = caller()
        if self._parts is not None:
            start = sum(map(len, self._parts))
            self._spans.append((start, start + len(text)))
        return text

    def join_marked(self, parts: Iterable[str]) -> tuple[str, list[Span]]:
        """Return (text joined from its parts as they are rendered, positions of its blocks)."""
        self._parts, self._spans = [], []
        try:
            for part in parts:
                self._parts.append(part)
            return "".join(self._parts), self._spans
        finally:
            self._parts = None


class _Sandbox(ImmutableSandboxedEnvironment):
    """The sandbox with a limit on repetition, which no time limit can stop; Jinja limits only ranges.

    Texts that are made of objects are checked, as they are other ones in every run.
    """

    intercepted_binops = frozenset({"*", "**", "%", "-"})

    def __init__(self, check: AddressCheck, **settings: Any) -> None:
        super().__init__(**settings)
        self.check = check
        self.filters = check.of_filters(self.filters)
        self.concat = check.after("".join)  # type: ignore[method-assign] # an attribute of the class

    def wrap_str_format(self, value: Any) -> Any:
        """Return the function that stands in for a text's method `format`; None for another value."""
        function = super().wrap_str_format(value)
        return None if function is None else self.check.after(function)

    def call_binop(self, context: Any, operator: str, left_value: Any, right_value: Any) -> Any:
        """Return the result of an operator; raises OverflowError if a product or a power is too long."""
        if operator == "%":
            result = left_value % right_value
            return self.check(result) if isinstance(result, str) else result
        if operator == "-":
            result = left_value - right_value
            return Unordered(result) if isinstance(result, Set) else result
        times, content = (left_value, right_value) if isinstance(left_value, int) else (right_value, left_value)
        if operator == "**":
            length = (
                left_value.bit_length() * right_value
                if isinstance(left_value, int) and isinstance(right_value, int)
                else 0
            )
        else:
            length = len(content) * times if isinstance(content, Sized) and isinstance(times, int) else 0
        if length > _MAX_LENGTH:
            raise OverflowError(f"the result of `{operator}` is longer than {_MAX_LENGTH:,}")
        return super().call_binop(context, operator, left_value, right_value)


def _environment(check: AddressCheck | None = None) -> _Sandbox:
    """Return the Jinja environment that chat templates are written for; `check` is asked of texts.

    Source: transformers 5.12, utils/chat_template_utils.py, _cached_compile_jinja_template.
    """
    extensions = [_GenerationBlocks, jinja2.ext.loopcontrols]
    environment = _Sandbox(check or AddressCheck(), trim_blocks=True, lstrip_blocks=True, extensions=extensions)
    environment.filters["tojson"] = _as_json
    environment.filters["sort"] = sort_also_unordered
    environment.globals["raise_exception"] = _raise_exception
    environment.filters[RANDOM_FILTER] = environment.globals[RANDOM_TEXT] = refuse_random
    environment.globals["strftime_now"] = date_text
    return environment


def _as_json(
    x: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False
) -> str:
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: Any) -> None:
    raise TemplateError(message)


def _attribute_getter(environment: ImmutableSandboxedEnvironment) -> Callable[[Any, str], Any]:
    ask, make_undefined, attributes_of = environment.getattr, environment.undefined, object.__getattribute__

    def get_attribute(owner: Any, name: str) -> Any:
        """Return the same as the sandbox's `getattr`, without exceptions for dictionaries and namespaces."""
        kind = type(owner)
        if kind is Namespace:
            value = attributes_of(owner, "_Namespace__attrs").get(name, missing)
            if value is not missing and not callable(value) and name[0] != "_":
                return value
        elif kind is dict and name not in DICT_ATTRIBUTES:
            value = owner.get(name, missing)
            return make_undefined(obj=owner, name=name) if value is missing else value
        return ask(owner, name)

    return get_attribute


def _item_getter(environment: ImmutableSandboxedEnvironment) -> Callable[[Any, Any], Any]:
    ask = environment.getitem

    def get_item(owner: Any, key: Any) -> Any:
        """Return the same as the sandbox's `getitem`."""
        try:
            return owner[key]
        except (TypeError, LookupError):
            return ask(owner, key)

    return get_item
