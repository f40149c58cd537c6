import json
import os
import subprocess
import sys
from itertools import islice

import pytest

from bridgepack.errors import DataError
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations
from bridgepack.examples.__main__ import main
from bridgepack.examples.conversations import documented_objects, iter_documented_modules, iter_module_conversations
from bridgepack.examples.tokenizer import chatml_template
from tests.support.small_builds import file_bytes

SOURCE = b'''"""A shelf of jars.

More about it.
"""
import sys

if sys.platform != "nowhere":
    def pick(jar, *, times=1):
        """Take a jar."""
        def helper():
            """Not a public thing."""
else:
    def pick():
        """Defined twice."""

def silent():
    pass

class Jar:
    """Holds
    things."""

    def open(self):
        """Turn the lid."""
'''

LOOKUP_TOOL = {"type": "function", "function": {"name": "lookup", "description": "d", "parameters": {}}}
LOOKUP_CALL = {"id": "call_0", "type": "function", "function": {"name": "lookup", "arguments": '{"name": "jar"}'}}
LOOKUP_ROW = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is a jar?"},
    {"role": "assistant", "content": None, "tool_calls": [LOOKUP_CALL]},
    {"role": "tool", "tool_call_id": "call_0", "content": "Holds things."},
    {"role": "assistant", "content": "It holds things."},
]


@pytest.fixture(scope="module")
def tokenizer_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tokenizer")
    texts = ["What is a jar? It holds things.", "system user assistant tool"] * 4
    return train_chatml_tokenizer(directory, texts, vocab_size=320, with_generation_blocks=True)


@pytest.fixture(scope="module")
def tokenizer(tokenizer_directory):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(tokenizer_directory)


def test_documented_objects_are_found_without_importing():
    found = documented_objects(SOURCE, "shelf")
    assert [(entry.kind, entry.name, entry.owner, entry.signature) for entry in found] == [
        ("module", "shelf", "", "shelf"),
        ("function", "shelf.pick", "shelf", "shelf.pick(jar, *, times=1)"),
        ("class", "shelf.Jar", "shelf", "shelf.Jar"),
        ("method", "shelf.Jar.open", "shelf.Jar", "shelf.Jar.open(self)"),
    ]
    assert found[0].summary == "A shelf of jars."
    assert found[2].text == "Holds\nthings."


@pytest.mark.parametrize(
    "source",
    [
        b"def broken(:",
        b"\xff\xfe not python",
        b"x = 1\0",
        b'"""Has a \\ud800 surrogate."""',
        b'"""Has a <|im_end|> token."""',
        b'"""   """',
    ],
)
def test_source_without_usable_docstrings_gives_nothing(source):
    assert documented_objects(source, "shelf") == ()


def test_skipped_folders_and_packages_are_named_right(tmp_path):
    for name in ("b/__init__.py", "b/c.py", "a.py", "site-packages/x.py", "test/y.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text('"""Text."""')
    modules = [objects[0].name for objects in iter_documented_modules(7, tmp_path)]
    assert sorted(modules) == ["a", "b", "b.c"]


def test_library_without_sources_is_an_error_that_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match=r"no Python source files.*Run with a Python"):
        next(iter_documented_modules(7, tmp_path))


def test_library_conversations_are_well_formed_and_varied():
    num_checked = num_with_tools = num_with_system = num_multi_turn = 0
    for objects in islice(iter_documented_modules(1234), 40):
        for row in iter_module_conversations(objects):
            roles = [message["role"] for message in row["messages"]]
            start = int(roles[0] == "system")
            assert roles[start] == "user"
            assert roles[-1] == "assistant"
            assert all(message["content"] or message.get("tool_calls") for message in row["messages"])
            calls = [call["id"] for message in row["messages"] for call in message.get("tool_calls", ())]
            answers = [message["tool_call_id"] for message in row["messages"] if message["role"] == "tool"]
            assert calls == answers
            assert bool(calls) == ("tools" in row)
            num_with_tools += "tools" in row
            num_with_system += start
            num_multi_turn += roles.count("user") > 1
            num_checked += 1
    assert num_checked > 100
    assert min(num_with_tools, num_with_system, num_multi_turn) > 0


def test_limit_counts_both_files_and_bytes_repeat(tmp_path):
    for run in "ab":
        (tmp_path / run).mkdir()
        paths = {"path": tmp_path / run / "training.jsonl", "validation_path": tmp_path / run / "validation.jsonl"}
        assert write_docstring_conversations(**paths, limit=200) == 200
    files = file_bytes(tmp_path / "a")
    assert files == file_bytes(tmp_path / "b")
    assert sorted(files) == ["training.jsonl", "validation.jsonl"]
    assert sum(len(content.splitlines()) for content in files.values()) == 200
    assert len(files["validation.jsonl"].splitlines()) > 0


def test_an_interrupted_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "training.jsonl"
    path.write_text("old")

    def interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr("bridgepack.examples.conversations.iter_module_conversations", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_docstring_conversations(path)
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["training.jsonl"]


def test_iter_texts_reads_contents_calls_and_tools(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"messages": LOOKUP_ROW, "tools": [LOOKUP_TOOL]}) + "\n")
    contents = ["Be brief.", "What is a jar?", json.dumps(LOOKUP_CALL), "Holds things.", "It holds things."]
    assert list(iter_texts(path)) == [*contents, json.dumps(LOOKUP_TOOL)]


def test_a_newline_is_a_token_of_its_own(tokenizer):
    header = tokenizer("<|im_start|>assistant\n")["input_ids"]
    for content in ("It", "\nIt", "  It", "\n\n\tIt"):
        assert tokenizer(f"<|im_start|>assistant\n{content}")["input_ids"][: len(header)] == header


def test_training_in_two_processes_gives_the_same_bytes(tokenizer_directory, tmp_path):
    code = (
        "import sys, pathlib; from bridgepack.examples import train_chatml_tokenizer\n"
        "texts = ['What is a jar? It holds things.', 'system user assistant tool'] * 4\n"
        "train_chatml_tokenizer(pathlib.Path(sys.argv[1]), texts, vocab_size=320, with_generation_blocks=True)"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-c", code, tmp_path], check=True, env=environment)
    files = file_bytes(tokenizer_directory)
    assert sorted(files) == ["chat_template.jinja", "tokenizer.json", "tokenizer_config.json"]
    assert file_bytes(tmp_path) == files


def test_template_renders_system_tools_calls_and_answers(tokenizer):
    rendered = tokenizer.apply_chat_template(LOOKUP_ROW, tools=[LOOKUP_TOOL], tokenize=False)
    expected = (
        "<|im_start|>system\nBe brief.\n\nThese functions can be called:\n<tools>\n"
        '{"type": "function", "function": {"name": "lookup", "description": "d", "parameters": {}}}\n</tools>\n'
        'Write a call as one JSON object with "name" and "arguments", between <tool_call> and </tool_call>.'
        "<|im_end|>\n<|im_start|>user\nWhat is a jar?<|im_end|>\n"
        '<|im_start|>assistant\n<tool_call>\n{"name": "lookup", "arguments": {"name": "jar"}}\n</tool_call><|im_end|>\n'
        "<|im_start|>tool\nHolds things.<|im_end|>\n<|im_start|>assistant\nIt holds things.<|im_end|>\n"
    )
    assert rendered == expected


def test_template_accepts_other_forms_of_content_and_arguments(tokenizer):
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "a jar?"}]
    call = {"name": "lookup", "arguments": {"name": "jar"}}
    messages = [
        {"role": "user", "content": parts},
        {"role": "assistant", "content": "Wait.", "tool_calls": [call, {"name": "lookup"}]},
    ]
    assert tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True) == (
        "<|im_start|>user\nWhat is a jar?<|im_end|>\n<|im_start|>assistant\nWait.\n"
        '<tool_call>\n{"name": "lookup", "arguments": {"name": "jar"}}\n</tool_call>\n'
        '<tool_call>\n{"name": "lookup", "arguments": {}}\n</tool_call><|im_end|>\n<|im_start|>assistant\n'
    )


def test_generation_blocks_cover_what_the_assistant_wrote_and_change_no_token(tokenizer):
    options = {"tools": [LOOKUP_TOOL], "tokenize": True, "return_dict": True}
    marked = tokenizer.apply_chat_template(LOOKUP_ROW, return_assistant_tokens_mask=True, **options)
    plain = tokenizer.apply_chat_template(LOOKUP_ROW, chat_template=chatml_template(), **options)
    trained = [token for token, mask in zip(marked["input_ids"], marked["assistant_masks"], strict=True) if mask]
    assert plain["input_ids"] == marked["input_ids"]
    assert tokenizer.decode(trained) == (
        '<tool_call>\n{"name": "lookup", "arguments": {"name": "jar"}}\n</tool_call><|im_end|>'
        "It holds things.<|im_end|>"
    )


def test_template_refuses_an_unknown_role(tokenizer):
    from jinja2.exceptions import TemplateError

    with pytest.raises(TemplateError, match="no role named bard"):
        tokenizer.apply_chat_template([{"role": "bard", "content": "Hear me."}], tokenize=False)


def test_command_line_reports_errors_without_a_traceback(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path), "--limit", "0"]) == 2
    assert main([str(tmp_path / "file"), "--limit", "5"]) == 2
    assert main([str(tmp_path / "data"), "--limit", "5", "--vocab-size", "10"]) == 2
    errors = capsys.readouterr().err
    assert "limit is 0" in errors
    assert "Choose another directory" in errors
    assert "vocab_size is 10" in errors
