"""Prompt-completion rows become the tokens and masks of megatron-bridge's `tokenize_prompt_completion_example`.

The host's `max_length` counts stored tokens, bridgepack's `max_sequence_length` runtime tokens: one fewer.

Where both differ on purpose:

- Without a completion the host's preparation trains EOS after the prompt: `test_docs_differences.py`.
- Columns named `prompt` and `completion` that the recipe does not use must be text for the host; bridgepack does not
  look at them: `test_unused_columns`.
- Where the special tokens alone are too long, the host refuses every row and bridgepack the recipe:
  `test_special_tokens_that_do_not_fit`.
"""

import itertools
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridgepack.errors import RowError, TokenizerError
from tests.support.conversations import json_values, texts
from tests.support.examples import examples
from tests.support.installed_host import host_release
from tests.support.upstream_preprocessing import PromptCompletionPair, agreement, assert_same_rows, strided
from tests.zoo.tokenizers import CHATML, NOT_SPACE_SENSITIVE, write_tokenizer

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

Settings = Mapping[str, Any]
GSM8K = {"prompt_column": "question", "completion_column": "answer"}
#: Settings -> one row in so many is compared unless all are asked for.
REFERENCE_SETTINGS: dict[str, tuple[Settings, int]] = {
    "defaults": ({}, 24),
    "full": ({"loss_mode": "full", "separator": "\n"}, 48),
    "template": ({"prompt_template": "Q: {prompt}\nA:", "separator": " ", "add_bos": True, "add_sep": True}, 48),
    "left": ({"truncation_method": "left", "max_sequence_length": 63, "strip_whitespace": False}, 48),
    "right": ({"truncation_method": "right", "max_sequence_length": 63, "add_eos": False}, 48),
}
TOGGLES = ("strip_whitespace", "add_bos", "add_sep", "add_eos")
SEPARATORS = ("", " ", "  ", "\n", " ->", "<|im_start|>")
TEMPLATES = ("{prompt}", "Q: {prompt}\nA:", " {prompt} {{}}", "<|im_start|>{prompt}")
LONGEST = (None, 1, 2, 3, 8, 40)


@pytest.mark.parametrize("chosen", REFERENCE_SETTINGS)
@pytest.mark.parametrize("tokenizer", ["qwen3", "deepseek_v3"])
def test_gsm8k(reference_data: Path, tokenizer: str, chosen: str) -> None:
    changes, stride = REFERENCE_SETTINGS[chosen]
    # Qwen3 has no BOS token, which both sides refuse before the first row.
    changes = {**changes, "add_bos": changes.get("add_bos", False) and tokenizer != "qwen3"}
    pair = PromptCompletionPair(reference_data / "tokenizers" / tokenizer, **GSM8K, **changes)
    lines = (reference_data / "data" / "gsm8k_train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in strided(lines, stride)]

    assert assert_same_rows(pair, rows) == {"equal": len(rows)}
    assert len(lines) == 7473


@pytest.fixture(scope="module", params=[CHATML, NOT_SPACE_SENSITIVE], ids=lambda family: family.name)
def folder(request: pytest.FixtureRequest, bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("tokenizer"), request.param)


def _every_settings() -> Iterator[dict[str, Any]]:
    modes = {"loss_mode": ("completion", "full"), "truncation_method": ("left", "right")}
    choices = dict.fromkeys(TOGGLES, (True, False)) | modes | {"max_sequence_length": LONGEST}
    for number, values in enumerate(itertools.product(*choices.values())):
        chosen = dict(zip(choices, values, strict=True))
        texts = {
            "separator": SEPARATORS[number % len(SEPARATORS)],
            "prompt_template": TEMPLATES[number // len(SEPARATORS) % len(TEMPLATES)],
        }
        num_special = chosen["add_bos"] + chosen["add_sep"] + chosen["add_eos"]
        if chosen["max_sequence_length"] is None or num_special <= chosen["max_sequence_length"] + 1:
            yield chosen | texts


def test_every_combination_of_settings(folder: Path) -> None:
    rows = [
        {"prompt": "2 + 2?", "completion": "4"},
        {"prompt": "  The user asks  \n", "completion": " a <|im_end|> and a <|im_start|> "},
        {"prompt": "", "completion": ""},
        {"prompt": "one two three four five six seven eight nine ten", "completion": "ten nine eight seven six five"},
    ]
    pairs = (PromptCompletionPair(folder, **chosen) for chosen in _every_settings())

    assert sum(assert_same_rows(pair, rows)["equal"] for pair in pairs) > 1000


columns = st.dictionaries(st.sampled_from(("prompt", "completion", "question", "answer")), texts, min_size=1)
odd_columns = st.dictionaries(
    st.sampled_from(("prompt", "completion", "question", "answer", "messages", "conversations")), json_values
)
pairs = st.fixed_dictionaries({"question": texts, "answer": texts})


def _row_of_its_layout(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the row without a first pair that does not fit, if the second does, as a list of layouts is read."""

    def fits(pair: tuple[str, str]) -> bool:
        if not all(name in row for name in pair) or not all(isinstance(row[name], str | None) for name in pair):
            return False
        return any(row[name] and not row[name].isspace() for name in pair)

    first = (GSM8K["prompt_column"], GSM8K["completion_column"])
    if fits(("prompt", "completion")) and not fits(first):
        return {name: value for name, value in row.items() if name not in first}
    return row


@examples(3)
@given(row=st.one_of(pairs, columns, odd_columns), chosen=st.sampled_from([*_every_settings()]))
def test_hostile_rows(folder: Path, row: Mapping[str, Any], chosen: Settings) -> None:
    pair = PromptCompletionPair(folder, **GSM8K, **chosen)
    (ours,) = pair.ours([row])
    # a number is text here, and refused by the host
    row = {name: json.dumps(value) if type(value) in (int, float) else value for name, value in row.items()}
    row = _row_of_its_layout(row)
    theirs = pair.host(row)

    if isinstance(theirs, Exception) and "structured" in str(theirs):
        # the host refuses a conversation beside a pair; here the layout says what is read
        columns = {name: value for name, value in row.items() if name not in {"messages", "conversations"}}
        (alone,), theirs = pair.ours([columns]), pair.host(columns)
        assert ours == alone or (isinstance(ours, RowError) and isinstance(alone, RowError))
    if isinstance(theirs, Exception) and str(theirs).startswith("Canonical prompt and completion"):
        assert all(isinstance(row[name], str) for name in GSM8K.values() if name in row) or isinstance(ours, RowError)
    else:
        agreement(ours, theirs)


def test_completions_that_are_cut_away(folder: Path) -> None:
    """Two stored tokens are the prompt's; of the completion nothing is left, and 0.7 refuses such a row."""
    pair = PromptCompletionPair(folder, max_sequence_length=1, add_bos=True, add_sep=True, add_eos=False)
    row = {"prompt": "2 + 2?", "completion": "4"}

    theirs = pair.host(row)

    if host_release().refuses_untrained_completions:
        assert "retain a supervised token" in str(theirs)
    else:
        assert not isinstance(theirs, Exception)
        assert (len(theirs[0]), theirs[1]) == (2, [0, 0])
    assert pair.host({**row, "completion": ""}) == pair.host({**row, "completion": " "})


def test_unused_columns(folder: Path) -> None:
    pair, row = PromptCompletionPair(folder, **GSM8K), {"question": "2 + 2?", "answer": "4"}
    unused = row | {"prompt": 1, "completion": None}

    (ours,) = pair.ours([unused])

    assert isinstance(pair.host(unused), ValueError)
    assert agreement(ours, pair.host(row)) == "equal"


def test_special_tokens_that_do_not_fit(folder: Path) -> None:
    from megatron.bridge.data import sft_processing as host

    tokens = {"add_bos": True, "add_sep": True}
    host_settings = host.PromptCompletionSFTPreprocessingConfig(**tokens)
    row = {"prompt": "2 + 2?", "completion": "4"}
    host_tokenizer = PromptCompletionPair(folder).host_tokenizer

    with pytest.raises(TokenizerError, match="3 special tokens"):
        PromptCompletionPair(folder, max_sequence_length=1, **tokens)
    with pytest.raises(ValueError, match="too short for the"):
        host.tokenize_prompt_completion_example(row, host_tokenizer, host_settings, max_length=2)
