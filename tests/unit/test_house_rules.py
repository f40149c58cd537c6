"""Sizes and contents that the house rules limit."""

import ast
import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridgepack.host.roots import CANONICAL
from tests.support import format_cases

PROJECT = Path(__file__).parents[2]
MAX_MODULE_LINES = 350
MAX_FUNCTION_LINES = 50
MAX_SCRIPT_LINES = 60
#: `__init__` counts.
MAX_MODULES_OF_A_ROOM, MAX_MODULES_OF_A_PREFIX = 24, 3
MACHINE_SPECIFIC = re.compile(
    r"(?<![\w.$}*])/(work|tmp|root|home|Users)/\w|\bpypi\.org\b|pythonhosted\.org|registry\.npmjs|deb\.debian"
)

#: Participles and pronouns, which say nothing of what a name holds, and nouns that look like participles.
_PARTICIPLE = re.compile(r"[a-z]{2,}ed")
_NOUNS = frozenset({"bed", "embed", "feed", "heed", "need", "seed", "speed"})
_SAYS_NOTHING = """
another begun both broken built chosen done drawn each every found frozen given gone held here hidden its kept known
left lost made meant mistaken most none nothing one ones other others own rest said same seen sent shown some
something spent such taken them there these they this those thrown told undefined unknown unseen what which who
whole whose written
"""
#: Decorates the functions of the API.
_OF_USERS = "check_arguments"
#: Five words in a row, which are no path, field or option.
_SENTENCE = re.compile(r"(?:(?<![\w./{<-])[A-Za-z]+(?:'[a-z]+)?[,;:]? ){4}[A-Za-z]+(?![\w=(/]|\.\w)")


def _num_lines(path: Path) -> int:
    return len(path.read_text().splitlines())


def test_modules_are_short() -> None:
    modules = [*(PROJECT / "src").rglob("*.py"), *(PROJECT / "scripts").rglob("*.py")]

    assert {str(path): _num_lines(path) for path in modules if _num_lines(path) > MAX_MODULE_LINES} == {}
    assert modules


def test_rooms_are_small_and_folders_group_modules() -> None:
    rooms: dict[Path, list[str]] = {}
    for path in (PROJECT / "src").rglob("*.py"):
        rooms.setdefault(path.parent, []).append(path.name)
    families = []
    for room, names in rooms.items():
        prefixes = Counter(name.partition("_")[0] for name in names if "_" in name and not name.startswith("_"))
        families += [f"{room}: {prefix}_*" for prefix, count in prefixes.items() if count > MAX_MODULES_OF_A_PREFIX]

    assert {str(room): len(names) for room, names in rooms.items() if len(names) > MAX_MODULES_OF_A_ROOM} == {}
    assert families == []
    assert len(rooms) > 20


def test_functions_are_short() -> None:
    num_checked = 0
    too_long = []
    for path in (PROJECT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                num_checked += 1
                num_lines = (node.end_lineno or 0) - node.lineno + 1
                if num_lines > MAX_FUNCTION_LINES:
                    too_long.append(f"{path.relative_to(PROJECT)}:{node.lineno} {node.name}: {num_lines} lines")

    assert too_long == []
    assert num_checked > 0


def test_one_module_names_the_package_of_the_host() -> None:
    """The host is about to move: what imports, prints or compares names asks `host.roots` or the release."""
    found, num_checked = set(), 0
    for path in sorted((PROJECT / "src").rglob("*.py")):
        tree = ast.parse(path.read_text())
        texts_alone = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts_alone:
                names.append(node.value)
            num_checked += len(names)
            if any(CANONICAL in name for name in names):
                found.add(str(path.relative_to(PROJECT)))

    assert found == {"src/bridgepack/host/roots.py"}
    assert num_checked > 1000


def test_scripts_are_short() -> None:
    scripts = [path for path in (PROJECT / "scripts").iterdir() if path.is_file()]

    assert {path.name: _num_lines(path) for path in scripts if _num_lines(path) >= MAX_SCRIPT_LINES} == {}
    assert scripts


def test_files_name_no_machine() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip(f"not a git checkout: {listed.stderr.strip()}")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        content = (PROJECT / name).read_bytes() if (PROJECT / name).is_file() else b""
        if b"\0" not in content:
            lines = enumerate(content.decode("utf-8", errors="replace").splitlines(), 1)
            found += [f"{name}:{number}: {line}" for number, line in lines if MACHINE_SPECIFIC.search(line)]

    assert found == []
    assert listed.stdout


def test_long_json_has_few_lines() -> None:
    files = format_cases.FILES
    stale = [path.name for path in files if path.read_text(encoding="utf-8") != format_cases.formatted(path)]

    assert stale == [], "run python -m tests.support.format_cases"
    assert len(files) > 300


def _names_bound_in(tree: ast.Module) -> Iterator[str]:
    """Yield the names of variables, parameters, functions and classes, except those that users and JSON files write.

    These are fields of classes, and functions with `check_arguments` with their parameters.
    """
    of_users = {
        id(target) for cls in ast.walk(tree) if isinstance(cls, ast.ClassDef) for node in cls.body
        for target in (node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)])
    }  # fmt: skip
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and any(ast.unparse(part) == _OF_USERS for part in node.decorator_list):
            of_users |= {id(node), *(id(part) for part in ast.walk(node.args) if isinstance(part, ast.arg))}
    for node in ast.walk(tree):
        if id(node) in of_users:
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.arg):
            yield node.arg
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name


def _says_nothing(name: str) -> bool:
    word = name.strip("_")
    return word in _SAYS_NOTHING.split() or (_PARTICIPLE.fullmatch(word) is not None and word not in _NOUNS)


def test_names_say_what_they_hold() -> None:
    names = {}
    num_checked = 0
    for path in sorted((PROJECT / "src").rglob("*.py")):
        bound = list(_names_bound_in(ast.parse(path.read_text())))
        num_checked += len(bound)
        if poor := sorted({name for name in bound if _says_nothing(name)}):
            names[str(path.relative_to(PROJECT))] = poor

    assert names == {}
    assert num_checked > 20_000


def test_examples_are_multiples_of_the_profile() -> None:
    """The quick tests draw a quarter of what CI draws, of every test: none says a number of its own."""
    numbers, num_checked = [], 0
    for path in sorted((PROJECT / "tests").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                num_checked += 1
                keywords = [keyword for keyword in node.keywords if keyword.arg == "max_examples"]
                is_of_hypothesis = ast.unparse(node.func).endswith("settings")
                if is_of_hypothesis and any(isinstance(keyword.value, ast.Constant) for keyword in keywords):
                    numbers.append(f"{path.relative_to(PROJECT)}:{node.lineno}")

    assert numbers == []  # write @examples(MULTIPLE), of tests/support/examples.py
    assert num_checked > 10_000


def _sentences_asserted_in(test: ast.FunctionDef) -> Iterator[str]:
    """Yield texts with five words in a row in what a test asserts, or asks of an error's message."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            parts = [node.test]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "raises":
            parts = [keyword.value for keyword in node.keywords if keyword.arg == "match"]
        else:
            continue
        texts = [part.value for root in parts for part in ast.walk(root) if isinstance(part, ast.Constant)]
        yield from (text for text in texts if isinstance(text, str) and _SENTENCE.search(text))


def _names_compared_in(test: ast.FunctionDef) -> set[str]:
    """Return the names that a test compares with something, asks of an error's message, or gives to `mentions`."""
    operands: list[ast.AST] = []
    for node in ast.walk(test):
        if isinstance(node, ast.Compare):
            operands += [node.left, *node.comparators]
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func).rpartition(".")[2]
            operands += node.args if name in ("mentions", "startswith", "endswith", "escape") else ()
            operands += [keyword.value for keyword in node.keywords if keyword.arg == "match"]
    starred = [node.value if isinstance(node, ast.Starred) else node for node in operands]
    return {node.id for node in starred if isinstance(node, ast.Name)}


def _sentences_in_cases_of(test: ast.FunctionDef) -> Iterator[str]:
    """Yield texts with five words in a row in the cases of a test, of the parameters that it compares."""
    compared = _names_compared_in(test)
    for decorator in test.decorator_list:
        if not (isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.parametrize"):
            continue
        names, cases = decorator.args[:2]
        parameters = [name.value for name in getattr(names, "elts", [names]) if isinstance(name, ast.Constant)]
        rows = [node for node in ast.walk(cases) if isinstance(node, ast.Tuple)] if parameters[1:] else [cases]
        for row in rows:
            values = [row] if row is cases else row.elts
            for parameter, value in zip(reversed(parameters), reversed(values), strict=False):
                if isinstance(value, ast.Starred):
                    break
                if parameter in compared:
                    texts = [part.value for part in ast.walk(value) if isinstance(part, ast.Constant)]
                    yield from (text for text in texts if isinstance(text, str) and _SENTENCE.search(text))


def test_sentences_of_messages_are_asked_in_one_folder() -> None:
    sentences = {}
    num_checked = 0
    for path in sorted((PROJECT / "tests").rglob("test_*.py")):
        if path.parent.name == "messages":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test"):
                num_checked += 1
                if texts := [*_sentences_asserted_in(node), *_sentences_in_cases_of(node)]:
                    sentences[f"{path.relative_to(PROJECT)}:{node.name}"] = texts

    assert sentences == {}  # ask for code, field, value and number; tests/unit/messages asks for the words
    assert num_checked > 1500
