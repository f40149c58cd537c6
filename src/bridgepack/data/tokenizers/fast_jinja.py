"""Rewrites the Python code that Jinja compiles a template to, with fast paths for plain JSON data.

Jinja checks every attribute and call in its sandbox, raising and catching exceptions. Chat templates almost only use
keys of dictionaries, methods of strings, and loop counters, which the sandbox always allows. Each such place first
tests for the exact type; anything else takes Jinja's own path.

Source: jinja2 3.1, sandbox.py (getattr, getitem, call) and runtime.py (Context.call, LoopContext, Namespace).
"""

import ast
from collections.abc import Mapping

#: Names of helpers that the rewritten code calls; `templates` puts them into its namespace.
GET_ATTRIBUTE, GET_ITEM = "bridgepack_getattr", "bridgepack_getitem"
_ASK = f"{GET_ATTRIBUTE}(owner, name)"
#: Attributes that every dictionary has: Jinja finds them before keys.
DICT_ATTRIBUTES = frozenset(dir(dict))
#: String methods that the sandbox always allows unchanged (so not `format` and `format_map`).
TEXT_METHODS = frozenset(
    {
        *("capitalize", "casefold", "count", "endswith", "find", "index", "isalnum", "isalpha", "isdigit", "islower"),
        *("isspace", "isupper", "join", "lower", "lstrip", "partition", "removeprefix", "removesuffix", "replace"),
        *("rfind", "rindex", "rpartition", "rsplit", "rstrip", "split", "splitlines", "startswith", "strip", "title"),
        "upper",
    }
)
#: Attributes of a loop that templates read.
_LOOP_ATTRIBUTES = frozenset(
    {"depth", "depth0", "first", "index", "index0", "last", "length", "nextitem", "previtem", "revindex", "revindex0"}
)
#: Operators that the sandbox looks at and that templates mostly have between counters.
_OF_INTEGERS = frozenset({"%", "-"})
_CONTEXT_KEYWORDS = frozenset({"_loop_vars", "_block_vars"})
#: Syntax nodes in a call's arguments that may occur twice in the code.
_LONGEST_ARGUMENTS = 60


def rewritten(source: str) -> ast.Module:
    """Return a template's compiled Python, from `Environment.compile(raw=True)`, with fast paths added."""
    tree = ast.parse(source)
    module = _Rewriter(_named_tests(tree)).visit(tree)
    return ast.Module(body=ast.fix_missing_locations(module).body, type_ignores=[])


def _named_tests(tree: ast.Module) -> frozenset[str]:
    """Return the variables that hold the test `defined`: `t_3` for `t_3 = environment.tests['defined']`."""
    lookup = ast.unparse(ast.parse("environment.tests['defined']"))
    return frozenset(
        target.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and ast.unparse(node.value) == lookup
        for target in node.targets
        if isinstance(target, ast.Name)
    )


class _Rewriter(ast.NodeTransformer):
    """Adds the fast paths; temporary names are unique, so that none is overwritten before it is read."""

    def __init__(self, defined_tests: frozenset[str]) -> None:
        self._defined_tests = defined_tests
        self._num_names = 0

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if _is_environment(node, "getattr") and isinstance(node.args[1], ast.Constant):
            return self._attribute(self.visit(node.args[0]), str(node.args[1].value))
        if _is_environment(node, "getitem"):
            return self._item(self.visit(node.args[0]), self.visit(node.args[1]))
        if _is_environment(node, "call"):
            return self._call(node)
        if _is_environment(node, "call_binop") and ast.literal_eval(node.args[1]) in _OF_INTEGERS:
            return self._of_integers(node)
        if isinstance(node.func, ast.Name) and node.func.id in self._defined_tests and len(node.args) == 1:
            return self._is_defined(node)
        return self.generic_visit(node)

    def visit_If(self, node: ast.If) -> ast.AST:
        node.test = self._truth(node.test)
        node.body = [self.visit(item) for item in node.body]
        node.orelse = [self.visit(item) for item in node.orelse]
        return node

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        return ast.IfExp(self._truth(node.test), self.visit(node.body), self.visit(node.orelse))

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        if isinstance(node.op, ast.Not):
            return ast.UnaryOp(ast.Not(), self._truth(node.operand))
        return self.generic_visit(node)

    def _truth(self, node: ast.expr) -> ast.expr:
        """Return an expression with the same truth value; a missing key need not become an Undefined."""
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self._truth(value) for value in node.values])
        attribute = _attribute_of(node)
        if attribute is None or _is_loop(*attribute):
            expression: ast.expr = self.visit(node)
            return expression
        owner, name = self.visit(attribute[0]), attribute[1]
        return self._key(
            owner, name, f"value if has_key else None if type(owner) is dict else {GET_ATTRIBUTE}(owner, name)"
        )

    def _attribute(self, owner: ast.expr, name: str) -> ast.expr:
        if _is_loop(owner, name):
            code = f"owner.{name} if type(owner) is LoopContext else {_ASK}"
            return _code(code, owner=owner, name=ast.Constant(name))
        if not _is_key(name):
            return _code(_ASK, owner=owner, name=ast.Constant(name))
        return self._key(owner, name, f"value if has_key else {_ASK}")

    def _item(self, owner: ast.expr, key: ast.expr) -> ast.expr:
        if isinstance(key, ast.Constant) and isinstance(key.value, str) and _is_key(key.value):
            return self._key(owner, key.value, f"value if has_key else {GET_ITEM}(owner, name)")
        return _code(f"{GET_ITEM}(owner, key)", owner=owner, key=key)

    def _is_defined(self, node: ast.Call) -> ast.AST:
        """Return code for `x.name is defined` that makes no Undefined for a dictionary without the key."""
        attribute = _attribute_of(node.args[0])
        if attribute is None:
            return self.generic_visit(node)
        ask = f"False if type(owner) is dict else is_defined({_ASK})"
        code = f"is_defined(value) if has_key else {ask}"
        return self._key(self.visit(attribute[0]), attribute[1], code, is_defined=node.func)

    def _key(self, owner: ast.expr, name: str, code: str, **parts: ast.expr) -> ast.expr:
        """Return code for a key of an object that may be a dictionary.

        In the code, `has_key` tests for the key and comes first; after it, `value` is the key's value, `owner` the
        object, which is not computed again, and `name` the key.
        """
        first, bound = self._bound(owner)
        value = self._new_name()
        code_of_key = f"type(first) is dict and ({value} := bound.get({name!r}, missing)) is not missing"
        has_key = _code(code_of_key, first=first, bound=bound)
        return _code(code, has_key=has_key, value=_code(value), owner=bound, name=ast.Constant(name), **parts)

    def _call(self, node: ast.Call) -> ast.AST:
        callee = node.args[1]
        if isinstance(callee, ast.IfExp) and ast.unparse(callee.orelse).endswith("_namespace"):
            first, bound = self._bound(self.visit(callee))
            return self._either(node, _code("first is Namespace", first=first), _code("Namespace"), bound)
        if _is_environment(callee, "getattr") and isinstance(callee, ast.Call):
            method = callee.args[1]
            is_short = sum(1 for argument in node.args[2:] for _ in ast.walk(argument)) < _LONGEST_ARGUMENTS
            if isinstance(method, ast.Constant) and method.value in TEXT_METHODS and is_short:
                first, bound = self._bound(self.visit(callee.args[0]))
                ask = _code(_ASK, owner=bound, name=ast.Constant(method.value))
                short = _code(f"owner.{method.value}", owner=bound)
                return self._either(node, _code("type(first) is str", first=first), short, ask)
        return self.generic_visit(node)

    def _of_integers(self, node: ast.Call) -> ast.AST:
        """Return code that computes a difference or a remainder of integers without the sandbox."""
        context, operator, *operands = node.args
        (minuend_first, minuend), (amount_first, amount) = (self._bound(self.visit(operand)) for operand in operands)
        ask = ast.Call(node.func, [context, operator, minuend, amount], [])
        are_integers = "(type(minuend_first) is int) & (type(amount_first) is int)"  # computes both, in order
        code = f"minuend {ast.literal_eval(operator)} amount if {are_integers} else ask"
        return _code(
            code, minuend_first=minuend_first, amount_first=amount_first, minuend=minuend, amount=amount, ask=ask
        )

    def _either(self, node: ast.Call, is_short: ast.expr, short: ast.expr, long: ast.expr) -> ast.AST:
        """Return code that calls `short` without sandbox and context if `is_short`, else `long` with both."""
        arguments = [self.visit(argument) for argument in node.args[2:]]
        keywords = [self.visit(keyword) for keyword in node.keywords]
        short_keywords = [keyword for keyword in keywords if keyword.arg not in _CONTEXT_KEYWORDS]
        long_way = ast.Call(node.func, [node.args[0], long, *arguments], keywords)
        return ast.IfExp(is_short, ast.Call(short, arguments, short_keywords), long_way)

    def _bound(self, node: ast.expr) -> tuple[ast.expr, ast.expr]:
        """Return an expression for the first use, and one for later uses that does not compute it again."""
        if isinstance(node, ast.Name):
            return node, node
        name = self._new_name()
        return _code(f"({name} := value)", value=node), _code(name)

    def _new_name(self) -> str:
        self._num_names += 1
        return f"bridgepack_{self._num_names}"


class _Filling(ast.NodeTransformer):
    def __init__(self, parts: Mapping[str, ast.expr]) -> None:
        self._parts = parts

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._parts.get(node.id, node)


def _code(source: str, **parts: ast.expr) -> ast.expr:
    """Return an expression in which some names are replaced with other expressions."""
    expression: ast.expr = _Filling(parts).visit(ast.parse(source, mode="eval").body)
    return expression


def _is_environment(node: ast.AST, method: str) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == method
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "environment"
    )


def _is_key(name: str) -> bool:
    """Return whether a name can only be a dictionary key, and one that the sandbox does not treat specially."""
    return name not in DICT_ATTRIBUTES and not name.startswith("_")


def _is_loop(owner: ast.expr, name: str) -> bool:
    """Return whether a look-up is a loop counter; templates cannot use the name `loop` for anything else."""
    return isinstance(owner, ast.Name) and owner.id.endswith("_loop") and name in _LOOP_ATTRIBUTES


def _attribute_of(node: ast.AST) -> tuple[ast.expr, str] | None:
    """Return (owner, name) of an attribute look-up that can only be a key, else None."""
    if not (_is_environment(node, "getattr") and isinstance(node, ast.Call) and isinstance(node.args[1], ast.Constant)):
        return None
    name = str(node.args[1].value)
    return (node.args[0], name) if _is_key(name) else None
