"""Shows from a chat template's syntax that its render of a conversation's first turns begins the whole's render.

Such a template writes what does not depend on the turns, but for the first, then each turn in one loop, and nothing
after that. It then suffices to render a conversation once and to note where each turn ends. Whatever is not understood
here counts as looking ahead: such templates are rendered once for each prefix. Looking ahead is, for example,
`loop.last`, `messages[-1]`, a length, a filter of turns, or a loop over all turns before the one that writes them.

Three uses of the list of turns are understood besides the loop. All need that a turn is left, which `turn_ends` checks:
its first turn, whether it is empty, and the list without its first turn under the same or another name.
"""

import ast
from collections.abc import Sequence

from jinja2 import nodes

#: A yielded empty text that is this object stands before each turn's text, and behind the last.
MARK = type("_Mark", (str,), {})()
#: Name by which the code of a template finds `MARK`.
MARK_NAME = "bridgepack_mark"
PROMPT = "add_generation_prompt"
_MESSAGES, _LOOP = "messages", "loop"
#: Attributes of a loop that do not depend on later turns.
_LOOKS_BACK = frozenset({"changed", "cycle", "depth", "depth0", "first", "index", "index0", "previtem"})
#: Nodes that only compute or write; what they are made of is looked at.
_UNDERSTOOD = (
    *(nodes.Output, nodes.TemplateData, nodes.Const, nodes.If, nodes.Assign, nodes.AssignBlock, nodes.NSRef),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Call, nodes.Keyword, nodes.Concat),
    *(nodes.Compare, nodes.Operand, nodes.And, nodes.Or, nodes.Not, nodes.CondExpr, nodes.BinExpr, nodes.UnaryExpr),
    *(nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Continue),
)

#: number of first turns -> where their render ends in that of the whole, in characters
Ends = tuple[int, ...]


class _LooksAheadError(Exception):
    """Something that may look ahead, or is not understood."""


def names_of_turns(tree: nodes.Template) -> frozenset[str] | None:
    """Return the names of a stepwise template's lists of turns, `messages` among them; None of any other template.

    Stepwise: it writes turn after turn without looking ahead, if it writes no generation prompt.
    """
    try:
        return _checked(tree)
    except _LooksAheadError:
        return None


def marked(module: ast.Module) -> ast.Module | None:
    """Return a stepwise template's Python with marks around its turns; None if its loop is not found."""
    root = next((node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "root"), None)
    body = [] if root is None else root.body
    loops = [place for place, node in enumerate(body) if isinstance(node, ast.For) and _is_over_turns(node)]
    if len(loops) != 1:
        return None
    loop = body[loops[0]]
    assert isinstance(loop, ast.For)
    loop.body.insert(0, _yield_mark())
    body.insert(loops[0] + 1, _yield_mark())
    return ast.fix_missing_locations(module)


def turn_ends(parts: Sequence[str], num_messages: int) -> Ends | None:
    """Return where the render of each number of first turns ends, in characters; shape [num_messages + 1].

    -1 stands for a render that is not the beginning of the whole's: of no turns, and of those that the template takes
    out before its loop. None if the loop did not run over all other turns.
    """
    ends, place = [], 0
    for part in parts:
        if part is MARK:
            ends.append(place)
        place += len(part)
    num_taken = num_messages - (len(ends) - 1)
    if not ends or num_taken < 0 or place != ends[-1]:
        return None
    # with so many turns none would be left for the loop, and the template might see that
    return (-1,) * (num_taken + 1) + tuple(ends[1:])


def _yield_mark() -> ast.Expr:
    return ast.Expr(ast.Yield(ast.Name(MARK_NAME, ast.Load())))


def _is_over_turns(loop: ast.For) -> bool:
    target = loop.target.elts[0] if isinstance(loop.target, ast.Tuple) else loop.target
    return isinstance(target, ast.Name) and target.id.startswith("l_1_")


def _checked(tree: nodes.Template) -> frozenset[str]:
    """Return the names of the lists of turns; raises _LooksAheadError unless the template is understood."""
    names = _names_of_lists(tree)
    loops = [node for node in tree.body if isinstance(node, nodes.For)]
    if len(loops) != 1 or any(node.name == PROMPT and node.ctx != "load" for node in tree.find_all(nodes.Name)):
        raise _LooksAheadError
    (loop,) = loops
    is_over_list = isinstance(loop.iter, nodes.Name) and loop.iter.name in names
    if not is_over_list or loop.test is not None or loop.recursive or loop.else_:
        raise _LooksAheadError
    place = tree.body.index(loop)
    before, after = tree.body[:place], tree.body[place + 1 :]
    reader = _Reader(names)
    for node in before:
        reader.check(node, may_assign=True)
    if not isinstance(loop.target, nodes.Name) or loop.target.name in {*names, _LOOP}:
        raise _LooksAheadError
    for node in loop.body:
        reader.check(node, is_in_loop=True)
    for node in after:
        if not _writes_nothing(node) and not _is_prompt(node):
            raise _LooksAheadError
    return names


def _names_of_lists(tree: nodes.Template) -> frozenset[str]:
    """Return `messages`, and another name to which it is assigned with or without its first turn."""
    others = {
        node.target.name
        for node in tree.find_all(nodes.Assign)
        if isinstance(node.target, nodes.Name) and _source_of_list(node.node) == _MESSAGES
    } - {_MESSAGES}
    if len(others) > 1:
        raise _LooksAheadError
    return frozenset({_MESSAGES, *others})


def _source_of_list(node: nodes.Node) -> str | None:
    """Return the name X of `X` and of `X[1:]`; None of anything else."""
    if isinstance(node, nodes.Getitem) and isinstance(part := node.arg, nodes.Slice):
        is_rest = isinstance(part.start, nodes.Const) and part.start.value == 1 and type(part.start.value) is int
        node = node.node if is_rest and part.stop is None and part.step is None else part
    return node.name if isinstance(node, nodes.Name) else None


def _is_first(node: nodes.Node) -> bool:
    """Return whether a node is `messages[0]`."""
    if not isinstance(node, nodes.Getitem) or not _is_messages(node.node) or not isinstance(node.arg, nodes.Const):
        return False
    return type(node.arg.value) is int and node.arg.value == 0


def _is_emptiness(node: nodes.Node) -> bool:
    """Return whether a node asks whether `messages` is empty: its length compared with 0."""
    if not isinstance(node, nodes.Compare) or len(node.ops) != 1 or node.ops[0].op not in ("eq", "ne", "gt"):
        return False
    length, zero = node.expr, node.ops[0].expr
    if not isinstance(length, nodes.Filter) or length.name not in ("length", "count") or length.args:
        return False
    return _is_messages(length.node) and isinstance(zero, nodes.Const) and zero.value == 0


def _is_messages(node: nodes.Node | None) -> bool:
    return isinstance(node, nodes.Name) and node.name == _MESSAGES


def _writes_nothing(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Output) and all(
        isinstance(part, nodes.TemplateData) and not part.data for part in node.nodes
    )


def _is_prompt(node: nodes.Node) -> bool:
    """Return whether a node is `if add_generation_prompt` without another branch, perhaps with more conditions."""
    return isinstance(node, nodes.If) and not node.elif_ and not node.else_ and _is_off(node.test)


def _is_off(test: nodes.Node) -> bool:
    """Return whether a condition is false without a generation prompt, and nothing before that can fail."""
    if isinstance(test, nodes.And):
        is_last = isinstance(test.left, nodes.Getattr) and _is_loop(test.left.node) and test.left.attr == "last"
        return _is_off(test.left) or (is_last and _is_off(test.right))
    return isinstance(test, nodes.Name) and test.name == PROMPT


class _Reader:
    """Looks at what stands before the loop over turns, and in it."""

    def __init__(self, names: frozenset[str]) -> None:
        self._names = names

    def check(
        self, node: nodes.Node, *, may_assign: bool = False, is_in_loop: bool = False, is_in_macro: bool = False
    ) -> None:
        """Raise _LooksAheadError if a node may look ahead, or is not understood.

        `may_assign`: lists may be assigned here. `is_in_loop`: `loop` is that over turns.
        """
        if isinstance(node, nodes.If) and not node.elif_ and not node.else_ and _is_off(node.test):
            return
        if isinstance(node, nodes.Assign) and may_assign and self._is_list_assigned(node):
            return
        if not is_in_macro and (_is_first(node) or _is_emptiness(node)):
            return
        if not is_in_macro and isinstance(node, nodes.And) and _is_messages(node.left):
            node = node.right  # the list is not empty
        if isinstance(node, nodes.Name):
            self._check_name(node, is_in_loop=is_in_loop)
        elif isinstance(node, nodes.Getattr) and is_in_loop and _is_loop(node.node):
            if node.attr not in _LOOKS_BACK:
                raise _LooksAheadError
        elif isinstance(node, nodes.Macro):
            for part in node.iter_child_nodes():
                self.check(part, is_in_loop=is_in_loop, is_in_macro=True)
        elif isinstance(node, nodes.For):
            self._check_for(node, is_in_loop=is_in_loop, is_in_macro=is_in_macro)
        elif isinstance(node, _UNDERSTOOD):
            may_assign = may_assign and isinstance(node, nodes.If)
            for part in node.iter_child_nodes():
                self.check(part, may_assign=may_assign, is_in_loop=is_in_loop, is_in_macro=is_in_macro)
        else:
            raise _LooksAheadError

    def _check_name(self, node: nodes.Name, *, is_in_loop: bool) -> None:
        if node.name in self._names or (is_in_loop and node.name == _LOOP):
            raise _LooksAheadError

    def _check_for(self, node: nodes.For, *, is_in_loop: bool, is_in_macro: bool) -> None:
        """Look at a loop over something else, in which `loop` is its own."""
        if node.recursive:
            raise _LooksAheadError
        for part in (node.target, node.iter, *([] if node.test is None else [node.test]), *node.else_):
            self.check(part, is_in_loop=is_in_loop, is_in_macro=is_in_macro)
        for part in node.body:
            self.check(part, is_in_macro=is_in_macro)

    def _is_list_assigned(self, node: nodes.Assign) -> bool:
        """Return whether a list is assigned that the loop may run over.

        Either `messages` loses its first turn and has no other name, or another name gets it and is only run over.
        """
        target, source = node.target, _source_of_list(node.node)
        if not isinstance(target, nodes.Name) or source != _MESSAGES or target.name not in self._names:
            return False
        return target.name != _MESSAGES or self._names == {_MESSAGES}


def _is_loop(node: nodes.Node) -> bool:
    return isinstance(node, nodes.Name) and node.name == _LOOP
