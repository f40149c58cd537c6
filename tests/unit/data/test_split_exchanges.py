"""`over_long: split_exchanges`: each sequence shows the system prompt and the tools again, then whole exchanges."""

import json
from pathlib import Path
from typing import Any

import pytest

from bridgepack.api import check
from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.chat import chat_encoder
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import RowError
from bridgepack.proof.mask_check import check_masks
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.served.served import check_served
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.support import small_builds as small
from tests.support.read_rows import encode_rows
from tests.support.thoughtful import call, said
from tests.zoo import tokenizers as families
from tests.zoo.tokenizers import write_tokenizer

#: Writes the tools into the system turn.
TEMPLATE = families._with_macros("""\
{%- if tools -%}
  {{- '<|im_start|>system\\n' + tools | map(attribute='function.name') | join(' ') + '<|im_end|>\\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {{- '<|im_start|>' + message.role + '\\n' + text_of(message.content) + calls_of(message) + '<|im_end|>\\n' -}}
{%- endfor -%}
{{- '<|im_start|>assistant\\n' if add_generation_prompt -}}
""")
SYSTEM = said("system", "be brief")
#: Three exchanges; in the second a call and its result.
LONG = [
    SYSTEM,
    *[said("user", "one"), said("assistant", "first")],
    *[said("user", "two"), call("words"), said("tool", "ten"), said("assistant", "second")],
    *[said("user", "three"), said("assistant", "third")],
]
TOOLS = [{"type": "function", "function": {"name": "search"}}]
HEAD = "<|im_start|>system\nsearch<|im_end|>\n<|im_start|>system\nbe brief<|im_end|>\n"
FIRST = "<|im_start|>user\none<|im_end|>\n<|im_start|>assistant\nfirst<|im_end|>\n"
THIRD = "<|im_start|>user\nthree<|im_end|>\n<|im_start|>assistant\nthird<|im_end|>\n"
CHAT = {"kind": "chat", "over_long": "split_exchanges"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tools"), families.Family(name="tools", template=TEMPLATE))


def _encoded(folder: Path, messages: Any, longest: int, **settings: Any) -> list[Encoded]:
    loaded = load_tokenizer(TokenizerConfig(name_or_path=str(folder)))
    chat = ChatPreprocessing(**{"over_long": "split_exchanges", **settings})
    row = {"messages": messages, "tools": TOOLS}
    (made,) = encode_rows(chat_encoder(loaded, chat, max_runtime_length=longest), [row])
    assert not isinstance(made, RowError), made
    return made


def _length(folder: Path, messages: Any) -> int:
    (made,) = _encoded(folder, messages, 10**6)
    return len(made.ids) - 1


def _texts(folder: Path, made: list[Encoded]) -> tuple[list[str], list[str]]:
    """Return the texts, and those that are trained."""
    decode = load_tokenizer(TokenizerConfig(name_or_path=str(folder))).decode
    trained = [[token for token, bit in zip(one.ids, one.mask, strict=True) if bit] for one in made]
    return [decode(one.ids) for one in made], [decode(ids) for ids in trained]


def test_each_sequence_begins_with_the_system_prompt_and_tools(folder: Path) -> None:
    middle = _length(folder, [SYSTEM, *LONG[3:7]])

    made = _encoded(folder, LONG, middle)

    texts, trained = _texts(folder, made)
    assert texts[0] == HEAD + FIRST
    assert texts[1].startswith(HEAD + "<|im_start|>user\ntwo<|im_end|>\n")
    assert texts[1].endswith("<|im_start|>assistant\nsecond<|im_end|>\n")
    assert texts[2] == HEAD + THIRD
    assert [sorted(one.turns) for one in made] == [[2], [4, 6], [8]]
    assert [sorted(one.removed) for one in made] == [[], [1, 2], [1, 2, 3, 4, 5, 6]]
    (whole,) = _encoded(folder, LONG, 10**6)
    assert "".join(trained) == _texts(folder, [whole])[1][0]


def test_as_many_exchanges_as_fit_are_in_one_sequence(folder: Path) -> None:
    pairs = [turn for n in range(9) for turn in (said("user", f"q{n}"), said("assistant", f"a{n}"))]
    longest = _length(folder, [SYSTEM, *pairs[:8]])

    made = _encoded(folder, [SYSTEM, *pairs], longest)

    assert [sorted(one.turns) for one in made] == [[2, 4, 6, 8], [10, 12, 14, 16], [18]]
    assert made[0].ids == _encoded(folder, [SYSTEM, *pairs[:8]], 10**6)[0].ids
    assert made[1].ids == _encoded(folder, [SYSTEM, *pairs[8:16]], 10**6)[0].ids


def test_a_greeting_is_trained_once_and_a_rest_without_answers_is_counted(folder: Path) -> None:
    messages = [SYSTEM, said("assistant", "hello"), *LONG[1:], said("user", "thanks")]

    made = _encoded(folder, messages, _length(folder, [SYSTEM, *LONG[3:7]]))

    assert [sorted(one.turns) for one in made] == [[1, 3], [5, 7], [9]]
    assert [str(loss.kind) for loss in made[0].losses if loss.kind == "cut_history"] == ["cut_history"]
    assert next(loss for loss in made[0].losses if loss.kind == "cut_history").detail.startswith("1 exchange, 1 turn ")


def _recipe(folder: Path, path: Path, size: int) -> Any:
    huge = [SYSTEM, said("user", "x"), said("assistant", "long " * size), said("user", "y"), said("assistant", "z")]
    rows = [{"messages": row, "tools": TOOLS} for row in (LONG, LONG[:3], huge)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return small.small_recipe(path, folder, preprocessing=CHAT, packing={"packed_sequence_size": size})


def test_every_proof_and_the_ledger_agree(tmp_path: Path, folder: Path) -> None:
    size = _length(folder, [SYSTEM, *LONG[3:7]])
    recipe = _recipe(folder, tmp_path / "a.jsonl", size)

    built = small.build(recipe, tmp_path / "out")

    small.assert_balanced(built.manifest)
    split = built.manifest.splits[0]
    assert (split.statistics.num_rows_in, split.drops, split.statistics.num_split) == (3, {}, 2)
    assert split.statistics.num_sequences == split.statistics.num_pieces + 1
    assert split.statistics.num_added_tokens == 0
    for options in (VerifyOptions(), VerifyOptions(num_packs=None)):
        assert verify_artifact(built.output, options).outcome == "same"
    assert check_masks(built.output, MaskOptions(num_rows=None)).outcome == "agree"
    assert not [finding for finding in check(built.output).findings if finding.severity == "error"]
    counts = {str(one.kind): one.num_answers for one in check_served(recipe, MaskOptions(num_rows=None)).record.counts}
    assert counts["cut-on-purpose"] == 4  # second call and answer, third answer, and z


@pytest.mark.parametrize("other", [{"loss_mode": "full"}, {"split_conversations": "when_context_differs"}])
def test_other_losses_and_splits_are_refused(other: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="allowed with it: loss_mode 'assistant'"):
        ChatPreprocessing.model_validate({**CHAT, **other})


def test_the_comparison_of_split_names_the_other_value(tmp_path: Path, folder: Path) -> None:
    recipe = _recipe(folder, tmp_path / "a.jsonl", _length(folder, [SYSTEM, *LONG[3:7]]))

    report = check_served(recipe.override({"preprocessing.over_long": "split"}), MaskOptions(num_rows=None))

    counts = {str(one.kind): one.num_answers for one in report.record.counts}
    assert "cut-on-purpose" not in counts
    assert counts["context-differs"] > 0


def test_a_marker_of_the_next_turn_ends_an_answer_as_in_the_whole_conversation(tmp_path: Path) -> None:
    template = (
        "{%- for message in messages -%}"
        "{{- ('<|im_start|>' if message.role == 'assistant' else '<|im_end|>') + message.content -}}{%- endfor -%}"
        "{%- if add_generation_prompt -%}{{- '<|im_start|>' -}}{%- endif -%}"
    )
    ends = write_tokenizer(tmp_path, families.Family(name="next", template=template))
    markers = {
        "assistant_start": "<|im_start|>",
        "assistant_end": "<|im_end|>",
        "other_role_starts": {"user": "<|im_end|>"},
    }
    turns = [said("user", "one"), said("assistant", "first"), said("user", "two"), said("assistant", "second")]

    made = _encoded(ends, turns, _length_with(ends, turns[2:], markers) + 1, assistant_markers=markers)

    texts, trained = _texts(ends, made)
    assert texts == ["<|im_end|>one<|im_start|>first<|im_end|>", "<|im_end|>two<|im_start|>second"]
    (whole,) = _encoded(ends, turns, 10**6, assistant_markers=markers)
    assert "".join(trained) == _texts(ends, [whole])[1][0]


def _length_with(folder: Path, messages: Any, markers: dict[str, Any]) -> int:
    return len(_encoded(folder, messages, 10**6, assistant_markers=markers)[0].ids) - 1
