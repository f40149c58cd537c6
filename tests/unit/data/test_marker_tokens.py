"""Markers whose tokens in a rendered text are others than alone, and markers that no text has."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason
from tests.support.messages import mentions
from tests.support.read_rows import encode_examples
from tests.zoo.families import CODER
from tests.zoo.families import FAMILIES as QUIRKS_FAMILIES
from tests.zoo.families import write_tokenizer as write_quirks_tokenizer
from tests.zoo.prompted import PHI_4
from tests.zoo.tokenizers import CHATML, FAMILIES, Family, loaded_tokenizer

SENTENCEPIECE = next(family for family in FAMILIES if family.name == "recipe-markers-sentencepiece")
BYTES = replace(CHATML, control_tokens=("<|stop|>",), eos_token="<|stop|>")
ASKED, ANSWERED = {"role": "user", "content": "Two?"}, {"role": "assistant", "content": "Four."}
TURNS = [ASKED, ANSWERED, {"role": "user", "content": "More?"}, {"role": "assistant", "content": "Seven."}]
#: (marker of the user, of the assistant, end)
PLAIN_MARKERS = [
    ("### User:\n", "### Assistant:\n", "\n### End"),
    ("USER: ", "ASSISTANT: ", "<|stop|>"),
    ("USER: ", "ASSISTANT:", "<|stop|>"),
    ("[INST] ", " [/INST] ", "<|stop|>"),
]


def plain(family: Family, user: str, bot: str, end: str) -> Family:
    """Return a family whose turns have markers of plain text."""
    template = (
        f"{{% for m in messages %}}{{{{ ({user!r} if m.role == 'user' else {bot!r}) + m.content "
        f"+ ({end!r} if m.role == 'assistant' else '') + '\n' }}}}{{% endfor %}}"
    )
    return replace(family, template=template)


def encoded(tokenizer: ChatTokenizer, turns: list[dict[str, Any]], **settings: Any) -> Encoded | RowError:
    encoder = chat_encoder(tokenizer, ChatPreprocessing(**settings))
    (made,) = encode_examples(encoder, [{"messages": turns}])
    return made


def trained(tokenizer: ChatTokenizer, made: Encoded | RowError) -> str:
    assert isinstance(made, Encoded), made
    return tokenizer.decode([token for token, bit in zip(made.ids, made.mask, strict=True) if bit])


@pytest.mark.parametrize("family", [SENTENCEPIECE, BYTES], ids=lambda family: family.name)
@pytest.mark.parametrize(("user", "bot", "end"), PLAIN_MARKERS)
def test_markers_of_plain_text(tmp_path: Path, family: Family, user: str, bot: str, end: str) -> None:
    tokenizer = loaded_tokenizer(tmp_path, plain(family, user, bot, end))
    markers = {"assistant_start": bot, "assistant_end": end}

    made = encoded(tokenizer, TURNS, assistant_markers=markers)

    assert trained(tokenizer, made).replace(" ", "") == f"Four.{end}Seven.{end}".replace(" ", "")


@pytest.mark.parametrize("quote", ["ASSISTANT: yes", "So ASSISTANT: yes", "ASSISTANT:"])
@pytest.mark.parametrize("place", [0, 1, 2, 3])
def test_texts_that_quote_a_marker_of_plain_text(tmp_path: Path, quote: str, place: int) -> None:
    tokenizer = loaded_tokenizer(tmp_path, plain(SENTENCEPIECE, *PLAIN_MARKERS[1]))
    turns = [{**turn, "content": quote} if index == place else turn for index, turn in enumerate(TURNS)]
    markers = {"assistant_start": "ASSISTANT: ", "assistant_end": "<|stop|>"}

    made = encoded(tokenizer, turns, assistant_markers=markers)

    if isinstance(made, Encoded):
        wanted = "".join(turn["content"] + "<|stop|>" for turn in turns if turn["role"] == "assistant")
        assert trained(tokenizer, made).replace(" ", "") == wanted.replace(" ", "")
    else:
        assert made.reason in (DropReason.CONTROL_TOKENS_IN_TEXT, DropReason.NO_ASSISTANT_MASK)


def test_a_marker_whose_end_joins_the_answer_is_named(tmp_path: Path) -> None:
    """The blank behind the marker is part of the answer's first word."""
    tokenizer = loaded_tokenizer(tmp_path, plain(SENTENCEPIECE, *PLAIN_MARKERS[1]))
    markers = {"assistant_start": "ASSISTANT: ", "assistant_end": "<|stop|>"}
    turns = [ASKED, {"role": "assistant", "content": "The user asks."}]
    assert any(token.startswith("▁") and len(token) > 1 for token in tokenizer.backend.encode("x The user").tokens[1:])

    made = encoded(tokenizer, turns, assistant_markers=markers)

    assert isinstance(made, RowError)
    told = "assistant_start, 'ASSISTANT:', occurs in the row's text, but "
    assert made.detail.startswith(told)
    assert "white space at its" in made.detail
    without = {**markers, "assistant_start": "ASSISTANT:"}
    assert trained(tokenizer, encoded(tokenizer, turns, assistant_markers=without)).strip() == "The user asks.<|stop|>"


def test_a_marker_that_the_template_does_not_write_is_named(tmp_path: Path) -> None:
    tokenizer = loaded_tokenizer(tmp_path, BYTES)

    made = encoded(tokenizer, TURNS, assistant_markers={"assistant_start": "<|bot|>", "assistant_end": "<|stop|>"})

    assert isinstance(made, RowError)
    assert mentions(made.detail, "assistant_start, '<|bot|>'", "nowhere")
    assert mentions(made.detail, "set preprocessing.assistant_markers.assistant_start", "before an answer")


def test_a_template_that_is_taken_for_a_family(tmp_path: Path) -> None:
    """Phi-4 has ChatML's tokens, but another header."""
    folder = write_quirks_tokenizer(tmp_path / "tokenizer", PHI_4)
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    told = (
        "its chat template has the markers of a family whose answers begin with '<|im_start|>assistant', but it "
        "writes '<|im_start|>assistant<|im_sep|>' before an answer and '<|im_end|>' after it. Set preprocessing.assist"
    )

    with pytest.raises(TokenizerError, match=re.escape(told)):
        encoded(tokenizer, TURNS)
    assert trained(tokenizer, encoded(tokenizer, TURNS, **PHI_4.preprocessing)) == "Four.<|im_end|>Seven.<|im_end|>"
    assert isinstance(encoded(tokenizer, TURNS, loss_mode="full"), Encoded)


@pytest.mark.parametrize("markers", [PLAIN_MARKERS[0], ("<|ask|>", "<|bot|>\n", "<|stop|>\n"), PLAIN_MARKERS[1]])
def test_the_markers_said_of_an_unknown_family_find_the_answers(tmp_path: Path, markers: tuple[str, str, str]) -> None:
    tokenizer = loaded_tokenizer(tmp_path, plain(BYTES, *markers))

    with pytest.raises(TokenizerError, match="of no known family") as unknown:
        encoded(tokenizer, TURNS)

    value = json.loads(re.search(r"assistant_markers to (\{.*?\}), which", str(unknown.value))[1])
    answers = trained(tokenizer, encoded(tokenizer, TURNS, assistant_markers=value))
    assert [text.strip() for text in answers.split(markers[2].strip())] == ["Four.", "Seven.", ""]


#: A header of over 40 characters, and a text once after the whole chat, as Granite's and Phi-3.5's.
ONCE = (
    "{%- for m in messages -%}{{- '<|begin_of_the_role|>' + m.role + '<|end_of_the_role|>\\n' -}}"
    "{{- m.content + '<|end|>\\n' -}}{%- endfor -%}{{- '<|endoftext|>' -}}"
)


def test_the_markers_said_are_whole_and_without_what_ends_the_chat(tmp_path: Path) -> None:
    tokens = ("<|begin_of_the_role|>", "<|end_of_the_role|>", "<|end|>", "<|endoftext|>")
    tokenizer = loaded_tokenizer(
        tmp_path, Family(name="once", template=ONCE, control_tokens=tokens, eos_token="<|endoftext|>")
    )

    with pytest.raises(TokenizerError) as unknown:
        encoded(tokenizer, TURNS)

    value = json.loads(re.search(r"assistant_markers to (\{.*?\}), which", str(unknown.value))[1])
    start = "<|begin_of_the_role|>assistant<|end_of_the_role|>\n"
    assert value == {"assistant_start": start, "assistant_end": "<|end|>"}
    assert trained(tokenizer, encoded(tokenizer, TURNS, assistant_markers=value)) == "Four.<|end|>Seven.<|end|>"


#: Kimi-K3's and Nemotron's: an answer has channels, its prompt opens the first, and a call ends otherwise.
CHANNELS = """\
{%- for m in messages -%}{{- '<|open|>' + m.role + '<|sep|>' -}}
{%- if m.role == 'assistant' -%}
  {{- '<|open|>think<|sep|>' + (m.reasoning_content or '') + '<|close|>think<|sep|>' -}}
  {%- for call in m.tool_calls or [] -%}
    {{- '<|open|>call<|sep|>' + call.function.name + '<|close|>call' -}}
  {%- endfor -%}
  {%- if not m.tool_calls -%}{{- '<|open|>text<|sep|>' + m.content + '<|close|>text' -}}{%- endif -%}
{%- else -%}{{- m.content -}}{%- endif -%}{{- '<|end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|open|>assistant<|sep|><|open|>think<|sep|>' -}}{%- endif -%}
"""


def test_the_markers_said_are_those_of_every_answer(tmp_path: Path) -> None:
    tokens = ("<|open|>", "<|sep|>", "<|close|>", "<|end|>")
    channels = Family(name="channels", template=CHANNELS, control_tokens=tokens, eos_token="<|end|>")
    tokenizer = loaded_tokenizer(tmp_path, channels)

    with pytest.raises(TokenizerError) as unknown:
        encoded(tokenizer, TURNS)

    value = json.loads(re.search(r"assistant_markers to (\{.*?\}), which", str(unknown.value))[1])
    start = "<|open|>assistant<|sep|><|open|>think<|sep|>"
    assert value == {"assistant_start": start, "assistant_end": "<|end|>"}
    call = {"id": "call00001", "type": "function", "function": {"name": "add", "arguments": {}}}
    calling = {"role": "assistant", "content": "", "reasoning_content": "Sum.", "tool_calls": [call]}
    made = encoded(tokenizer, [ASKED, calling, {"role": "tool", "content": "4"}, ANSWERED], assistant_markers=value)
    assert trained(tokenizer, made) == (
        "Sum.<|close|>think<|sep|><|open|>call<|sep|>add<|close|>call<|end|>"
        "<|close|>think<|sep|><|open|>text<|sep|>Four.<|close|>text<|end|>"
    )


_STOPS = {"stop_token": ["<|user|>", "<|tool|>"], "other_role_starts": {"user": "<|user|>", "tool": "<|tool|>"}}


@pytest.mark.parametrize(
    ("end", "behind", "printed", "answers"),
    [
        ("\n<|end|>\n", "", {"assistant_end": "<|end|>"}, "Four.\n<|end|>Seven."),
        ("", "", _STOPS, "Four.<|user|>Seven."),
        ("", "<|end|>", _STOPS, "Four.<|user|>Seven.<|end|>"),
    ],
    ids=["an end", "the next turn", "the next turn, and an end of the chat"],
)
def test_the_markers_said_of_answers_that_only_the_next_turn_ends(
    tmp_path: Path, end: str, behind: str, printed: dict[str, Any], answers: str
) -> None:
    """Apriel's and Apertus's last answers have no end; behind GLM's and Metharme's only the next question ends any.

    Metharme's end of a chat was said to end answers, so that chats of several turns were dropped.
    """
    template = (
        "{%- for m in messages -%}{{- '<|' + m.role + '|>' + m.content -}}"
        f"{{{{- {end!r} if m.role == 'assistant' and not loop.last -}}}}{{%- endfor -%}}{behind}"
    )
    tokens = ("<|user|>", "<|assistant|>", "<|tool|>", "<|end|>")
    tokenizer = loaded_tokenizer(
        tmp_path, Family(name="open", template=template, control_tokens=tokens, eos_token="<|end|>")
    )

    with pytest.raises(TokenizerError) as unknown:
        encoded(tokenizer, TURNS)

    value = json.loads(re.search(r"assistant_markers to (\{.*?\}), which", str(unknown.value))[1])
    assert value == {"assistant_start": "<|assistant|>", **printed}
    assert trained(tokenizer, encoded(tokenizer, TURNS, assistant_markers=value)) == answers


def test_the_markers_said_of_headers_behind_other_white_space(tmp_path: Path) -> None:
    """Copies of DeepSeek-V3.1's template indent what they write, before a call otherwise than before a text."""
    template = (
        "{%- for m in messages -%}{%- if m.role == 'assistant' -%}{{- '  <|bot|>' if m.tool_calls else ' <|bot|>' -}}"
        "{{- m.content + '<|stop|>' -}}{%- else -%}{{- '<|' + m.role + '|>' + m.content -}}{%- endif -%}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|bot|>' -}}{%- endif -%}"
    )
    tokens = ("<|user|>", "<|bot|>", "<|stop|>")
    family = Family(name="indented", template=template, control_tokens=tokens, eos_token="<|stop|>")
    tokenizer = loaded_tokenizer(tmp_path, family)

    with pytest.raises(TokenizerError) as unknown:
        encoded(tokenizer, TURNS)
    value = json.loads(re.search(r"assistant_markers to (\{.*?\}), which", str(unknown.value))[1])
    assert value == {"assistant_start": "<|bot|>", "assistant_end": "<|stop|>"}
    assert trained(tokenizer, encoded(tokenizer, TURNS, assistant_markers=value)) == "Four.<|stop|>Seven.<|stop|>"


def test_no_markers_are_said_of_answers_that_nothing_of_its_own_ends(tmp_path: Path) -> None:
    template = "{%- for m in messages -%}{{- m.role.upper() + ': ' + m.content + ' ' -}}{%- endfor -%}"
    tokenizer = loaded_tokenizer(tmp_path, replace(BYTES, template=template))

    with pytest.raises(TokenizerError, match="of no known family") as unknown:
        encoded(tokenizer, TURNS)
    assert "assistant_markers, set tokenizer.chat_template" in str(unknown.value)


def test_an_empty_answer_has_what_opens_a_turn_inside(tmp_path: Path) -> None:
    tokens = ("<|open|>", "<|sep|>", "<|close|>", "<|end|>")
    channels = Family(name="channels", template=CHANNELS, control_tokens=tokens, eos_token="<|end|>")
    markers = {"assistant_start": "<|open|>assistant<|sep|><|open|>think<|sep|>", "assistant_end": "<|end|>"}
    tokenizer = loaded_tokenizer(tmp_path, channels)

    made = encoded(tokenizer, [ASKED, {"role": "assistant", "content": ""}, *TURNS[:2]], assistant_markers=markers)

    silent = "<|close|>think<|sep|><|open|>text<|sep|><|close|>text<|end|>"
    assert trained(tokenizer, made) == silent + "<|close|>think<|sep|><|open|>text<|sep|>Four.<|close|>text<|end|>"


def test_a_result_is_not_counted_for_an_answer_whose_start_a_token_hides(tmp_path: Path) -> None:
    """The line ends of an empty answer are one token with its start's, and the result has the start of an answer."""
    folder = write_quirks_tokenizer(tmp_path / "tokenizer", CODER)
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    markers = {"assistant_start": "### Response:\n", "assistant_end": "<|EOT|>"}
    silent, result = {"role": "assistant", "content": ""}, {"role": "tool", "content": "4"}

    made = encoded(tokenizer, [ASKED, silent, result, ANSWERED], assistant_markers=markers)
    assert trained(tokenizer, made) == "<|EOT|>Four.\n<|EOT|>"
    answers = trained(tokenizer, encoded(tokenizer, TURNS, assistant_markers=markers))
    assert answers == "Four.\n<|EOT|>Seven.\n<|EOT|>"


def test_the_markers_said_may_end_the_question(tmp_path: Path) -> None:
    """Mistral writes nothing between what ends a question and its answer."""
    mistral = next(family for family in QUIRKS_FAMILIES if family.name == "Mistral")
    folder = write_quirks_tokenizer(tmp_path / "tokenizer", mistral)
    tokenizer = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))

    with pytest.raises(TokenizerError) as unknown:
        encoded(tokenizer, TURNS)

    value = json.loads(re.search(r"assistant_markers to (\{.*?\}), which", str(unknown.value))[1])
    assert value == {"assistant_start": "[/INST]", "assistant_end": "</s>"}
    assert trained(tokenizer, encoded(tokenizer, TURNS, assistant_markers=value)) == " Four.</s> Seven.</s>"


CHATML_TURNS = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"


@pytest.mark.parametrize("appended", ["<|im_start|>assistant\n", "<|im_start|>assistant\n<|im_end|>\n"])
def test_a_template_that_always_appends_an_answer_is_refused(tmp_path: Path, appended: str) -> None:
    """The second was trained in the place of the answer."""
    tokenizer = loaded_tokenizer(tmp_path, replace(CHATML, template=f"{CHATML_TURNS}{{{{ {appended!r} }}}}"))
    told = (
        f"writes {appended!r} after the last answer of every conversation, as if another followed. Set tokenizer.chat"
    )
    markers = {"assistant_start": "<|im_start|>assistant\n", "assistant_end": "<|im_end|>"}

    for settings in ({}, {"assistant_markers": markers}):
        with pytest.raises(TokenizerError, match=re.escape(told)):
            encoded(tokenizer, TURNS, **settings)
    assert isinstance(encoded(tokenizer, TURNS, loss_mode="full"), Encoded)


def test_a_template_that_appends_a_part_of_a_header_is_refused(tmp_path: Path) -> None:
    """Axolotl's Command A: answers begin with `<|bot|><|answer|>`, chats end with `<|turn|><|bot|>`."""
    tokens = ("<|turn|>", "<|user|>", "<|bot|>", "<|answer|>", "<|end|>")
    template = (
        "{{- '<|turn|>' -}}{%- for m in messages -%}"
        "{{- '<|bot|><|answer|>' if m.role == 'assistant' else '<|user|>' -}}"
        "{{- m.content + '<|end|><|turn|>' -}}{%- endfor -%}{{- '<|bot|>' -}}"
    )
    family = Family(name="appends", template=template, control_tokens=tokens, eos_token="<|end|>")
    tokenizer = loaded_tokenizer(tmp_path, family)
    markers = {"assistant_start": "<|bot|><|answer|>", "assistant_end": "<|end|><|turn|>"}

    for settings in ({}, {"assistant_markers": markers}):
        with pytest.raises(TokenizerError, match=re.escape("chat template writes '<|bot|>' after the last answer")):
            encoded(tokenizer, TURNS, **settings)
