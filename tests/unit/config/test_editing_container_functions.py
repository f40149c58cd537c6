"""Edits of Python functions that return a `ConfigContainer`: each form by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.editing import REMOVE, CannotEditError, Edit, edited_text

TEXT = '''\
"""Recipes."""
from __future__ import annotations

import torch


def small_config() -> ConfigContainer:
    cfg = _sft_common()
    cfg.model.context_parallel_size = 1  # why
    cfg.model.tensor_model_parallel_size = sizes()
    cfg.model.seq_length = 4096
    cfg.dataset.seq_length = cfg.model.seq_length
    cfg.model.pipeline_model_parallel_size = 1
    if big:
        cfg.model.pipeline_model_parallel_size = 2
    cfg.dataset.dataset_kwargs = {"pad_to_max_length": False}

    # the end
    return cfg
'''
END = "    return cfg\n"


def _edited(text: str, *edits: tuple[str, Any], function: str | None = None) -> str:
    changes = [Edit(path=path, value=value) for path, value in edits]
    return edited_text(text, ".py", changes, function=function, kind="container")


@pytest.mark.parametrize(
    ("path", "value", "old", "new"),
    [
        ("model.context_parallel_size", 4, "size = 1  # why", "size = 4  # why"),
        ("model.context_parallel_size", 1, "", ""),
        ("model.tensor_model_parallel_size", 2, END, f"    cfg.model.tensor_model_parallel_size = 2\n{END}"),
        ("model.seq_length", 8192, END, f"    cfg.model.seq_length = 8192\n{END}"),
        ("model.pipeline_model_parallel_size", 4, END, f"    cfg.model.pipeline_model_parallel_size = 4\n{END}"),
        ("train.micro_batch_size", 1, END, f"    cfg.train.micro_batch_size = 1\n{END}"),
        ("ddp.x", ["a", None], END, f'    cfg.ddp.x = ["a", None]\n{END}'),
        ("dataset.dataset_kwargs.pad_to_max_length", True, "False}", "True}"),
        ("dataset.dataset_kwargs.x", "q", "False}", 'False, "x": "q"}'),
        ("dataset.dataset_kwargs.pad_to_max_length", REMOVE, '{"pad_to_max_length": False}', "{}"),
        ("dataset.dataset_kwargs", None, '{"pad_to_max_length": False}', "None"),
        ("env_vars.A-B", "1", END, f'    cfg.env_vars = {{**(cfg.env_vars or {{}}), "A-B": "1"}}\n{END}'),
    ],
)
def test_only_what_is_edited_changes(path: str, value: Any, old: str, new: str) -> None:
    assert old in TEXT

    assert _edited(TEXT, (path, value)) == TEXT.replace(old, new, 1)


def test_second_edit_replaces_the_line_of_the_first() -> None:
    once = _edited(TEXT, ("train.x", 1), ("env_vars.A", "1"), ("env_vars.A", REMOVE))

    assert _edited(once, ("train.x", 2)) == once.replace("cfg.train.x = 1", "cfg.train.x = 2")
    assert '    cfg.env_vars = {key: value for key, value in (cfg.env_vars or {}).items() if key != "A"}\n' in once


@pytest.mark.parametrize(
    "later",
    [
        "cfg.a = make()",
        "cfg.a.x = make()",
        "tweak(cfg)",
        "tweak(cfg.a)",
        "cfg.a.finalize()",
        "alias = cfg.a",
        "y = cfg.a.x + 1",
        "for cfg.a.x in range(3): pass",
        "cfg = change(cfg)",
    ],
)
def test_assignment_that_others_depend_on_stays(later: str) -> None:
    text = f"def f():\n    cfg = g()\n    cfg.a.x = 1\n    {later}\n    return cfg\n"

    assert _edited(text, ("a.x", 2)) == text.replace(END, f"    cfg.a.x = 2\n{END}")


@pytest.mark.parametrize("later", ["cfg.a.y = 2", "cfg.b = make()", "y = other.a.x", "cfg.a.z = cfg.a.w"])
def test_assignment_that_nothing_depends_on_is_replaced(later: str) -> None:
    text = f"def f():\n    cfg = g()\n    cfg.a.x = 1\n    {later}\n    return cfg\n"

    assert _edited(text, ("a.x", 2)) == text.replace("x = 1", "x = 2")


def test_every_return_gets_the_line() -> None:
    text = "def f(x):\n    if x:\n        c = g()\n        return c\n    d = g(); return d\n"

    assert _edited(text, ("a.b", 1)) == (
        "def f(x):\n    if x:\n        c = g()\n        c.a.b = 1\n        return c\n    d = g(); d.a.b = 1; return d\n"
    )


def test_path_is_imported_once() -> None:
    edited = _edited(TEXT, ("dataset.p", Path("/data/x")), ("dataset.q", Path("y")))

    assert edited == TEXT.replace("import torch\n", "from pathlib import Path\nimport torch\n").replace(
        END, f'    cfg.dataset.p = Path("/data/x")\n    cfg.dataset.q = Path("y")\n{END}'
    )
    assert _edited(edited, ("dataset.p", Path("z"))) == edited.replace('Path("/data/x")', 'Path("z")')


@pytest.mark.parametrize(
    ("head", "expected"),
    [
        ("", "from pathlib import Path\n\n\n"),
        ('"""Doc."""\n', '"""Doc."""\n\nfrom pathlib import Path\n'),
        ("# c\n", None),
    ],
)
def test_path_import_without_others(head: str, expected: str | None) -> None:
    body = "@decorated\ndef f():\n    c = g()\n    return c\n"

    edited = _edited(head + body, ("p", Path("x")))

    assert edited.startswith(expected if expected is not None else "# c\nfrom pathlib import Path\n\n\n@decorated")


@pytest.mark.parametrize(
    ("text", "edit", "reason"),
    [
        (
            "def f():\n    return g(1)\n",
            ("model.x", 4),
            r"returns an expression.*lines instead: `cfg = g\(1\)`, `cfg.model.x = 4`, `return cfg`",
        ),
        ("def f():\n    pass\n", ("a", 1), "f returns nothing"),
        (TEXT, ("model.x", REMOVE), "Set model.x to its default by hand"),
        (TEXT, ("dataset.dataset_kwargs.a.b", 1), "more than one level deep in a dict"),
        (TEXT, ("model.not-a-name", 1), "a name that Python does not allow"),
        (
            "class Path: pass\n" + TEXT.split("import torch\n")[1],
            ("a.b", Path("x")),
            "uses the name Path for something else",
        ),
        (
            "def f():\n    c = g()\n    c.x = [1, # one\n    2]\n    return c\n",
            ("x", 2),
            "comments stand inside its old value",
        ),
    ],
)
def test_refused(text: str, edit: tuple[str, Any], reason: str) -> None:
    with pytest.raises(CannotEditError, match=reason):
        _edited(text, edit)
