"""Texts of BOS, EOS and ends of turns that the recipe or the template writes again are found, and only those."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoder import PromptCompletionEncoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from tests.support.read_rows import ReadingEncoder, encode_examples, given_row
from tests.support.small_builds import build, small_recipe, write_json_lines
from tests.zoo.tokenizers import CHATML, FAMILIES, loaded_tokenizer

BOS, EOS = "<|endoftext|>", "<|im_end|>"
BY_NAME = {family.name: family for family in FAMILIES}
ROWS = [
    ("Who?", "I.", {}, {}),
    (BOS + "Who?", "I.", {}, {}),
    (BOS + "Who?", "I.", {"add_bos": True}, {"doubled_token": f"the prompt begins with {BOS!r}, which preproc"}),
    (f" {BOS}\nWho?", "I.", {"add_bos": True}, {"doubled_token": "the prompt begins with"}),
    (f"{BOS}{BOS}Who?", "I.", {}, {"doubled_token": f"the prompt begins with 2 times {BOS!r}"}),
    ("Who?", "I.", {"add_bos": True, "prompt": BOS + "{prompt}"}, {"doubled_token": "the prompt begins"}),
    ("", BOS + "I.", {"add_bos": True}, {"doubled_token": "the completion begins with"}),
    ("", BOS + "I.", {}, {}),
    ("Who?", "I." + EOS, {}, {"doubled_token": f"the completion ends with {EOS!r}, which preprocessing.add_eos adds"}),
    ("Who?", f"I.{EOS}\n", {}, {"doubled_token": "the completion ends with"}),
    ("Who?", f"I. {EOS} ", {}, {"doubled_token": "the completion ends with"}),
    ("Who?", "I." + EOS, {"add_eos": False}, {}),
    ("Who?", f"I.{EOS}{EOS}", {"add_eos": False}, {"doubled_token": f"the completion ends with 2 times {EOS!r}"}),
    ("Who?", EOS, {}, {"doubled_token": "the completion ends with"}),
    ("Who?", f"I.{EOS}\nAnd you?", {}, {"injected_turn": f"the completion contains {EOS!r}, and goes on"}),
    ("Who?", f"I.{EOS}\nAnd you?{EOS}", {}, {"injected_turn": "contains", "doubled_token": "the completion ends"}),
    ("Who?", f"I.{BOS}And you?", {}, {"injected_turn": f"the completion contains {BOS!r}"}),
    ("Who?" + EOS, "I.", {}, {"injected_turn": f"the prompt ends with {EOS!r}, and the token after it is not"}),
    (f"<|im_start|>user\nWho?{EOS}\n<|im_start|>assistant\n", "I.", {}, {}),
    (f"Who?{EOS}I.{EOS}And?", "You.", {"add_bos": True}, {}),
]


@pytest.fixture(scope="module")
def chatml(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    return loaded_tokenizer(tmp_path_factory.mktemp("tokenizer"), CHATML)


def _pair(tokenizer: ChatTokenizer, question: str, completion: str, **settings: Any) -> Encoded:
    """Return an encoded pair; `prompt` among the settings is of the layout."""
    layout = {"prompt": settings.pop("prompt")} if "prompt" in settings else {}
    chosen = PromptCompletionPreprocessing(kind="prompt_completion", **settings)
    encoder = ReadingEncoder(PromptCompletionEncoder(tokenizer, chosen), chosen, layout)
    (found,) = encode_examples(encoder, [{"prompt": question, "completion": completion}])
    assert isinstance(found, Encoded)
    return found


@pytest.mark.parametrize(("prompt", "completion", "settings", "expected"), ROWS)
def test_pairs(
    chatml: ChatTokenizer, prompt: str, completion: str, settings: dict[str, Any], expected: dict[str, str]
) -> None:
    found = _pair(chatml, prompt, completion, **settings)

    said = {str(loss.kind): loss.detail for loss in found.losses}
    assert said.keys() == expected.keys()
    assert [detail for kind, detail in said.items() if expected[kind] not in detail] == []


@pytest.mark.parametrize("add_bos", [True, False])
@pytest.mark.parametrize("add_eos", [True, False])
@pytest.mark.parametrize(("prompt", "completion"), [("Who?", "I."), (BOS + "Who?", "I."), ("Who?", "I." + EOS)])
def test_found_pairs_are_those_whose_tokens_are_doubled(
    chatml: ChatTokenizer, prompt: str, completion: str, add_bos: bool, add_eos: bool
) -> None:
    found = _pair(chatml, prompt, completion, add_bos=add_bos, add_eos=add_eos)
    bos, eos = chatml.special_token_id("bos"), chatml.eos_token_id

    is_doubled = found.ids[:2] == [bos, bos] or found.ids[-2:] == [eos, eos]
    assert [str(loss.kind) for loss in found.losses] == (["doubled_token"] if is_doubled else [])


def test_separator_that_the_row_has(tmp_path: Path) -> None:
    loaded = loaded_tokenizer(tmp_path, CHATML)
    loaded._tokenizer.sep_token = "<|im_start|>"

    found = [_pair(loaded, *pair, add_sep=True).losses for pair in (("a<|im_start|>", "b"), ("a", "<|im_start|>b"))]
    found.append(_pair(loaded, "a", "b", add_sep=True).losses)
    found.append(_pair(loaded, "a<|im_start|>", "b").losses)

    assert [[loss.detail for loss in losses] for losses in found] == [
        ["the prompt ends with '<|im_start|>', which preprocessing.add_sep adds again"],
        ["the completion begins with '<|im_start|>', which preprocessing.add_sep adds again"],
        [],
        [],
    ]


@pytest.fixture(scope="module")
def losses_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, str]]:
    """Return what finds the losses of a chat under a family's template: kind -> detail."""

    def found(name: str, *turns: tuple[str, Any], **settings: Any) -> dict[str, str]:
        family = BY_NAME[name]
        loaded = loaded_tokenizer(tmp_path_factory.mktemp("tokenizer"), family)
        markers = {"assistant_markers": dict(family.assistant_markers)} if family.assistant_markers else {}
        encoder = chat_encoder(loaded, ChatPreprocessing(**markers, **settings))
        row = {"messages": [{"role": role, "content": content} for role, content in turns]}
        return {str(loss.kind): loss.detail for loss in encoder.prepare(given_row(row)).losses}

    return found


@pytest.mark.parametrize(
    ("family", "turns", "detail"),
    [
        ("chatml", [("user", "Who?"), ("assistant", "I.<|im_end|>")], "turn 2 (assistant) ends with '<|im_end|>'"),
        ("chatml", [("user", "Who?<|im_end|>\n"), ("assistant", "I.")], "turn 1 (user) ends with '<|im_end|>', which"),
        ("chatml", [("user", "Who?"), ("assistant", "I.<|endoftext|>")], None),
        ("chatml", [("user", "<|endoftext|>Who?"), ("assistant", "I.")], None),
        ("chatml", [("user", "What is <|im_end|> for?"), ("assistant", "I.\n")], None),
        ("llama3", [("user", "Who?"), ("assistant", "I.<|eot_id|>")], "turn 2 (assistant) ends with '<|eot_id|>'"),
        ("llama3", [("user", BOS + "Who?"), ("assistant", "I.")], f"turn 1 (user) begins with {BOS!r}, which"),
        ("llama3", [("system", f" {BOS} Be brief."), ("user", "Who?"), ("assistant", "I.")], "turn 1 (system) begins"),
        ("llama3", [("user", "What is " + BOS), ("assistant", "I.")], None),
        ("gemma", [("user", BOS + "Who?"), ("assistant", "I.")], "turn 1 (user) begins with"),
        ("gemma", [("user", "Who?"), ("assistant", "I.<end_of_turn>\n")], "turn 2 (assistant) ends with"),
        ("kimi", [("user", "Who?"), ("assistant", "I.<|im_end|>")], "turn 2 (assistant) ends with"),
        ("harmony", [("user", "Who?"), ("assistant", "I.<|return|>")], "turn 2 (assistant) ends with '<|return|>'"),
        ("harmony", [("user", "Who?<|end|>"), ("assistant", "I.")], "turn 1 (user) ends with '<|end|>'"),
        ("recipe-markers", [("user", "Who?<|stop|>"), ("assistant", "I.")], None),
        ("recipe-markers", [("user", "Who?"), ("assistant", "I.<|stop|>")], "turn 2 (assistant) ends with '<|stop|>'"),
        ("generation-only", [("user", "Who?"), ("assistant", "I. <|stop|>")], "turn 2 (assistant) ends with"),
        ("generation-only", [("user", BOS), ("assistant", "I.")], "turn 1 (user) begins with"),
        (
            "llama3",
            [("user", ["a", {"type": "text", "text": "b<|eot_id|>"}]), ("assistant", "I.")],
            "turn 1 (user) ends with '<|eot_id|>'",
        ),
    ],
)
def test_chats(losses_of: Callable[..., dict[str, str]], family: str, turns: Any, detail: str | None) -> None:
    joined = any(isinstance(content, list) for _, content in turns)
    found = losses_of(family, *turns, **({"content_parts": "join_text"} if joined else {}))

    assert found.get("doubled_token", "").startswith(detail or "")
    assert ("doubled_token" in found) == (detail is not None)


@pytest.mark.parametrize("name", sorted(BY_NAME))
def test_ordinary_chats_have_nothing_twice(losses_of: Callable[..., dict[str, str]], name: str) -> None:
    turns = [("user", "<b>Who?</b>\n"), ("assistant", "I <i>am</i>.\n"), ("user", " And?"), ("assistant", "a > b")]

    assert losses_of(name, *turns) == {}


@pytest.mark.reference_data
def test_real_templates(reference_data: Path) -> None:
    found = []
    for name, bos, eos in (
        ("qwen3", None, "<|im_end|>"),
        ("deepseek_v3", "<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>"),
    ):
        loaded = load_tokenizer(TokenizerConfig(name_or_path=str(reference_data / "tokenizers" / name)))
        markers = {"assistant_start": "<｜Assistant｜>", "assistant_end": "<｜end▁of▁sentence｜>"} if bos else None
        encoder = chat_encoder(loaded, ChatPreprocessing(assistant_markers=markers))
        for question, answer in (("Who?", "I."), ("Who?", "I." + eos), ((bos or "") + "Who?", "I.")):
            row = {"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]}
            found.append(
                [loss.detail for loss in encoder.prepare(given_row(row)).losses if loss.kind == "doubled_token"]
            )

    assert [bool(details) for details in found] == [False, True, False, False, True, True]


def test_a_build_counts_them_and_check_warns(tmp_path: Path, chatml_tokenizer: Path) -> None:
    rows = [{"prompt": "Who?", "completion": "I."}, {"prompt": "Who?", "completion": "I.<|im_end|>"}]
    path = write_json_lines(tmp_path / "a.jsonl", rows)
    recipe = small_recipe(path, chatml_tokenizer, preprocessing={"kind": "prompt_completion"})

    (split,) = build(recipe, tmp_path / "out").manifest.splits

    assert split.lost_content == {"doubled_token": 1}
    (finding,) = (f for f in check_target(str(tmp_path / "out"), CheckOptions()).findings if f.code == "BP552")
    assert finding.fix.startswith("Set preprocessing.add_eos (or add_bos) to false")
