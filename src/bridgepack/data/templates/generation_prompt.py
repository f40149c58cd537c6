"""What a chat template writes as generation prompt, where the template itself shows that it is always the same.

That is so if `add_generation_prompt` occurs only in one `if` at the template's end, which writes fixed text and asks
for no variable that the template sets, nor for the conversation. The text that a server sends is then that of its
turns, followed by this text.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from jinja2 import nodes

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError

_NAME = "add_generation_prompt"
_QUESTION = [{"role": "user", "content": "Probe question?"}]
#: Variables that differ from row to row.
_OF_ROWS = frozenset({"messages", "tools", "documents", "loop", "self", "caller", "varargs", "kwargs"})
#: What may be in the `if`; the text then depends on variables alone.
_FIXED = (
    *(nodes.If, nodes.Output, nodes.TemplateData, nodes.Const, nodes.Name, nodes.Test, nodes.Not, nodes.And, nodes.Or),
    *(nodes.Compare, nodes.Operand, nodes.Add, nodes.Concat, nodes.CondExpr),
)


def fixed_prompt(tokenizer: ChatTokenizer, kwargs: Mapping[str, Any]) -> str | None:
    """Return the generation prompt that follows every conversation with these variables; None if it may differ.

    Example: Qwen3 -> `<|im_start|>assistant`, a line end, and an empty thought if `enable_thinking` is false. None for
    DeepSeek-V3, which writes none after a tool's result.
    """
    if not _is_fixed(tokenizer.template.tree()):
        return None
    try:
        before = tokenizer.render_text(_QUESTION, None, kwargs)
        with_prompt = tokenizer.render_served(_QUESTION, None, kwargs)
    except RowError:
        return None
    return with_prompt[len(before) :] if with_prompt.startswith(before) else None


def _is_fixed(template: nodes.Template) -> bool:
    body = [node for node in template.body if not _is_dead(node)]
    asking = [index for index, node in enumerate(body) if _names(node, "load", "store", "param") & {_NAME}]
    if not asking:
        return True
    place, *more_places = asking
    prompt = body[place]
    assigned_names = {name for node in body for name in _names(node, "store", "param")}
    assigned_names |= {macro.name for macro in template.find_all(nodes.Macro)}
    return (
        not more_places
        and isinstance(prompt, nodes.If)
        and not prompt.elif_
        and not prompt.else_
        and _is_needed(prompt.test)
        and all(isinstance(node, _FIXED) for node in _within(prompt))
        and not _names(prompt, "load") & (assigned_names | _OF_ROWS)
        and not _writes(body[place + 1 :])
    )


def _is_dead(node: nodes.Node) -> bool:
    """Return whether this is an `if` for renders without the variable, of which there are none."""
    if not isinstance(node, nodes.If) or node.elif_ or node.else_:
        return False
    test, is_negated = (node.test.node, True) if isinstance(node.test, nodes.Not) else (node.test, False)
    test_name = "defined" if is_negated else "undefined"
    asks = isinstance(test, nodes.Test) and isinstance(test.node, nodes.Name) and test.node.name == _NAME
    return asks and isinstance(test, nodes.Test) and test.name == test_name


def _is_needed(test: nodes.Node) -> bool:
    """Return whether a test is false without a generation prompt."""
    if isinstance(test, nodes.And):
        return _is_needed(test.left) or _is_needed(test.right)
    return isinstance(test, nodes.Name) and test.name == _NAME


def _writes(following: Iterable[nodes.Node]) -> bool:
    """Return whether anything but settings follows."""
    texts = (node for node in following if not isinstance(node, (nodes.Assign, nodes.Macro)))
    return any(
        not isinstance(node, nodes.Output)
        or any(not isinstance(item, nodes.TemplateData) or item.data for item in node.nodes)
        for node in texts
    )


def _within(node: nodes.Node) -> Iterable[nodes.Node]:
    stack = [node]
    while stack:
        item = stack.pop()
        yield item
        stack += item.iter_child_nodes()


def _names(node: nodes.Node, *contexts: str) -> set[str]:
    name_nodes = (node, *node.find_all(nodes.Name)) if isinstance(node, nodes.Name) else node.find_all(nodes.Name)
    return {name.name for name in name_nodes if name.ctx in contexts}
