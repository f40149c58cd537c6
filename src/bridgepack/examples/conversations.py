"""Conversations in OpenAI's `messages` form, about the docstrings in the source files of Python's standard library."""

import ast
import json
import os
import random
import sysconfig
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TextIO

from bridgepack.errors import DataError

#: Folders to skip: installed packages, tests, and parts that some distributions omit.
SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "idlelib", "lib2to3", "site-packages", "test", "tests", "turtledemo"}
)

Kind = Literal["module", "class", "function", "method"]
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, kw_only=True, slots=True)
class DocumentedObject:
    """A module, class, function or method and its docstring."""

    kind: Kind  #: kind of object
    name: str  #: full dotted name, e.g. `json.JSONEncoder.encode`.
    owner: str  #: dotted name of the module or class that defines it; empty for a module
    signature: str  #: as a caller writes it, e.g. `json.JSONEncoder.encode(self, o)`; the name alone for a module.
    text: str  #: the docstring, indentation cleaned; never empty

    @property
    def short_name(self) -> str:
        """Last part of the name."""
        return self.name.rpartition(".")[2]

    @property
    def summary(self) -> str:
        """First paragraph of the docstring, on one line."""
        return " ".join(self.text.partition("\n\n")[0].split())


def iter_documented_modules(seed: int, root: Path | None = None) -> Iterator[tuple[DocumentedObject, ...]]:
    """Yield the documented objects of each standard-library module that has any, in a seeded order.

    Raises:
        DataError: the folder holds no Python source files.
    """
    root = root or Path(sysconfig.get_path("stdlib"))
    paths = sorted(_iter_source_files(root), key=lambda path: path.relative_to(root).as_posix())
    if not paths:
        raise DataError(
            f"{root} holds no Python source files; the example data is made from the docstrings found there. "
            "Run with a Python whose standard library is installed as .py files."
        )
    random.Random(seed).shuffle(paths)
    for path in paths:
        objects = documented_objects(path.read_bytes(), _module_name(path.relative_to(root)))
        if objects:
            yield objects


def documented_objects(source: bytes, module_name: str) -> tuple[DocumentedObject, ...]:
    """Return the module, its classes, functions and methods that have a docstring, in source order.

    A name defined twice counts once; ignores functions inside functions; returns nothing for source that does
    not parse.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)
            tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return ()
    documents = {module_name: _document(tree, module_name, "", "module")}
    for name, owner, definition in _iter_definitions(tree.body, module_name):
        kind: Kind = "function" if owner == module_name else "method"
        kind = "class" if isinstance(definition, ast.ClassDef) else kind
        documents.setdefault(name, _document(definition, name, owner, kind))
    return tuple(entry for entry in documents.values() if entry is not None)


def _iter_source_files(root: Path) -> Iterator[Path]:
    for folder, subfolders, files in root.walk():
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        yield from (folder / name for name in files if name.endswith(".py"))


def _module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts) or "__init__"


def _iter_definitions(body: Iterable[ast.stmt], owner: str) -> Iterator[tuple[str, str, _Definition]]:
    for statement in body:
        if isinstance(statement, _Definition):
            name = f"{owner}.{statement.name}"
            yield name, owner, statement
            if isinstance(statement, ast.ClassDef):
                yield from _iter_definitions(statement.body, name)
        elif isinstance(statement, ast.If | ast.Try | ast.With):
            statements = (node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))
            yield from _iter_definitions(statements, owner)


def _document(node: ast.Module | _Definition, name: str, owner: str, kind: Kind) -> DocumentedObject | None:
    text = (ast.get_docstring(node) or "").strip()
    if not text or not _is_plain_text(text):
        return None
    signature = name
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        signature = f"{name}({ast.unparse(node.args)})"
    return DocumentedObject(kind=kind, name=name, owner=owner, signature=signature, text=text)


def _is_plain_text(text: str) -> bool:
    has_surrogate = any("\ud800" <= character <= "\udfff" for character in text)
    return not has_surrogate and "\0" not in text and "<|" not in text


Conversation = dict[str, Any]
Message = dict[str, Any]

SEED = 1234
#: One in this many documented modules goes to validation, with all its conversations.
MODULES_PER_VALIDATION_MODULE = 16
SYSTEM_FRACTION = 0.25
SIGNATURE_FRACTION = 0.35
LOOKUP_FRACTION = 0.1
#: A module with at least this many documented objects also gets a reference page, as a long conversation.
MIN_OBJECTS_FOR_REFERENCE = 12
MAX_FOLLOW_UPS = 12

SYSTEM_MESSAGES = (
    "You are a helpful assistant.",
    "You answer questions about Python's standard library, from its documentation and nothing else.",
    "You are a senior Python developer. Explain to a colleague what the code in front of them does.",
)
QUESTIONS: Mapping[str, tuple[str, ...]] = {
    "module": ("What is the module `{name}` for?", "Introduce me to `{name}`."),
    "class": ("What is `{name}`?", "When would I use the class `{name}`?"),
    "function": ("What does `{name}` do?", "Explain `{name}`.", "How do I use `{name}`?"),
    "method": ("What does the method `{name}` do?", "Explain `{name}`."),
}
FOLLOW_UPS = ("And `{name}`?", "What does `{name}` do?", "Explain `{name}` too, please.")
LOOKUP_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": "lookup_docstring",
        "description": "Look up the docstring of a module, class, function or method of the standard library.",
        "parameters": {
            "type": "object",
            "properties": {"name": {"type": "string", "description": "Full dotted name, e.g. json.dumps"}},
            "required": ["name"],
        },
    },
}


def write_docstring_conversations(path: Path, *, validation_path: Path | None = None, limit: int | None = None) -> int:
    """Return the number of question-and-answer conversations written as JSON Lines, in both files together.

    The same Python installation gives the same bytes: single questions, follow-ups over the methods of a class, system
    messages, tool calls, and reference pages of whole modules, of up to tens of thousands of tokens.

    Args:
        path: UTF-8; written atomically.
        validation_path: file for every 16th module instead; None puts all in `path`.
        limit: stop after this many conversations; None writes all.

    Raises:
        DataError: `limit` is not positive, or the installation has no library source files.
    """
    if limit is not None and limit < 1:
        raise DataError(f"limit is {limit}; it must be 1 or more. Omit it to write all conversations.")
    num_written = 0
    with ExitStack() as stack:
        training = stack.enter_context(open_replacing(path))
        validation = stack.enter_context(open_replacing(validation_path)) if validation_path else training
        for index, objects in enumerate(iter_documented_modules(SEED)):
            file = validation if index % MODULES_PER_VALIDATION_MODULE == 1 else training
            for conversation in iter_module_conversations(objects):
                file.write(json.dumps(conversation, ensure_ascii=False) + "\n")
                num_written += 1
                if num_written == limit:
                    return num_written
    return num_written


def iter_texts(path: Path) -> Iterator[str]:
    """Yield every text in a file of conversations, with tools and calls, to train a tokenizer on."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            conversation = json.loads(line)
            for message in conversation["messages"]:
                if message["content"]:
                    yield message["content"]
                yield from (json.dumps(call) for call in message.get("tool_calls", ()))
            yield from (json.dumps(tool) for tool in conversation.get("tools", ()))


def iter_module_conversations(objects: Sequence[DocumentedObject]) -> Iterator[Conversation]:
    """Yield the conversations about one module; only its name seeds the choices."""
    rng = random.Random(f"{SEED}:{objects[0].name}")
    for entry in objects:
        if rng.random() < LOOKUP_FRACTION:
            yield _lookup_conversation([entry, rng.choice(objects)] if rng.random() < 0.3 else [entry], rng)
        else:
            yield _conversation([*_question(rng.choice(QUESTIONS[entry.kind]), entry, rng)], rng)
        methods = [method for method in objects if method.owner == entry.name and method.kind == "method"]
        if entry.kind == "class" and methods:
            yield _class_conversation(entry, methods, rng)
    if len(objects) >= MIN_OBJECTS_FOR_REFERENCE:
        yield _reference_conversation(objects, rng)


def _conversation(messages: list[Message], rng: random.Random) -> Conversation:
    if rng.random() < SYSTEM_FRACTION:
        messages = [{"role": "system", "content": rng.choice(SYSTEM_MESSAGES)}, *messages]
    return {"messages": messages}


def _question(question: str, entry: DocumentedObject, rng: random.Random) -> tuple[Message, Message]:
    answer = entry.text
    if rng.random() < SIGNATURE_FRACTION:
        answer = f"```python\n{entry.signature}\n```\n\n{answer}"
    return (
        {"role": "user", "content": question.format(name=entry.name)},
        {"role": "assistant", "content": answer},
    )


def _class_conversation(
    entry: DocumentedObject, methods: Sequence[DocumentedObject], rng: random.Random
) -> Conversation:
    messages = [*_question(rng.choice(QUESTIONS["class"]), entry, rng)]
    for method in methods[:MAX_FOLLOW_UPS]:
        messages += _question(rng.choice(FOLLOW_UPS).replace("{name}", method.short_name), method, rng)
    return _conversation(messages, rng)


def _lookup_conversation(entries: Sequence[DocumentedObject], rng: random.Random) -> Conversation:
    names = " and ".join(f"`{entry.name}`" for entry in entries)
    calls = [
        {
            "id": f"call_{index}",
            "type": "function",
            "function": {"name": "lookup_docstring", "arguments": json.dumps({"name": entry.name})},
        }
        for index, entry in enumerate(entries)
    ]
    announcement = rng.choice((None, None, "Let me look that up."))
    messages: list[Message] = [
        {"role": "user", "content": f"Look up {names} and tell me in one line what you find."},
        {"role": "assistant", "content": announcement, "tool_calls": calls},
        *({"role": "tool", "tool_call_id": f"call_{i}", "content": e.text} for i, e in enumerate(entries)),
        {"role": "assistant", "content": "\n".join(f"`{e.name}`: {e.summary}" for e in entries)},
    ]
    return {**_conversation(messages, rng), "tools": [LOOKUP_TOOL]}


def _reference_conversation(objects: Sequence[DocumentedObject], rng: random.Random) -> Conversation:
    module_name = objects[0].name if objects[0].kind == "module" else objects[0].owner
    page = "\n\n".join(f"## {entry.signature}\n\n{entry.text}" for entry in objects)
    question = f"Write a reference page for `{module_name}`, with every class and function in it."
    answer = f"# {module_name}\n\n{page}"
    return _conversation([{"role": "user", "content": question}, {"role": "assistant", "content": answer}], rng)


@contextmanager
def open_replacing(path: Path) -> Iterator[TextIO]:
    """Yield a UTF-8 text file with a temporary name; rename it to `path` when the block ends without an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("w", encoding="utf-8", newline="\n") as file:
            yield file
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
