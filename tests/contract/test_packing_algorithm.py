"""`first_fit_shuffle` gives the rows of megatron-bridge's `prepare_gpt_sft_packed_data`, one by one, in order.

The settings correspond so:

| megatron-bridge | bridgepack |
|---|---|
| `seed` | `packing.seed` |
| `packed_sequence_size` | `packing.packed_sequence_size` |
| `max_seq_length`, chat, multiple 1: longer sequences are skipped | `max_sequence_length`, `over_long: drop` |
| the same, multiple above 1: cut to the last whole multiple | `max_sequence_length`, `over_long: truncate` |
| `max_seq_length`, prompt-completion, multiple 1: *stored* tokens that rows are cut to | one fewer, `truncate` |
| the same, multiple above 1: rows are cut to it in runtime tokens, then to the last whole multiple | `truncate` |

In the last row both agree where `max_seq_length` is a multiple; where it is not, the host's second cut takes the end of
the completion, EOS among it, and bridgepack's one cut spares it. Rows without any trained token are another difference:
the host packs them, bridgepack drops them. The data here has none.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations
from bridgepack.records import ROW_COLUMNS, TRAIN, DropReason
from tests.support.host_datasets import load_host_tokenizer
from tests.support.small_builds import write_json_lines
from tests.support.upstream_preprocessing import prepare_host_packs, strided

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

PACKED_SEQUENCE_SIZE = 1024
CHAT_OPTIONS = {"chat": True, "use_hf_tokenizer_chat_template": True}


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with chat.jsonl, pairs.jsonl and tokenizer."""
    folder = tmp_path_factory.mktemp("conversations")
    chat = folder / "chat.jsonl"
    write_docstring_conversations(chat, limit=150)
    train_chatml_tokenizer(folder / "tokenizer", iter_texts(chat), vocab_size=600)
    turns = [json.loads(line)["messages"] for line in chat.read_text().splitlines()]
    pairs = [{"prompt": str(messages[0]["content"]), "completion": str(messages[-1]["content"])} for messages in turns]
    write_json_lines(folder / "pairs.jsonl", pairs)
    return folder


def _rows(folder: Path) -> list[dict[str, list[int]]]:
    batches = Artifact(folder).iter_batches(TRAIN)
    rows = [batch.row(index) for batch in batches for index in range(batch.num_rows)]
    return [{name: getattr(row, name).tolist() for name in ROW_COLUMNS} for row in rows]


def _assert_same_packs(
    folder: Path,
    data: Path,
    tokenizer: Path,
    *,
    preprocessing: Mapping[str, Any],
    dataset_options: Mapping[str, Any] = CHAT_OPTIONS,
    max_sequence_length: int = PACKED_SEQUENCE_SIZE,
    host_max_sequence_length: int | None = None,
    pad_seq_to_mult: int = 1,
    seed: int = 1234,
) -> Mapping[str, int]:
    """Assert that both sides give the same rows and the same metadata; return what bridgepack dropped."""
    host_rows = prepare_host_packs(
        data,
        folder,
        load_host_tokenizer(tokenizer),
        packed_sequence_size=PACKED_SEQUENCE_SIZE,
        max_sequence_length=host_max_sequence_length or max_sequence_length,
        pad_seq_to_mult=pad_seq_to_mult,
        seed=seed,
        dataset_options=dataset_options,
    )
    recipe = {
        "name": "contract",
        "data": {"train": str(data)},
        "tokenizer": {"name_or_path": str(tokenizer)},
        "preprocessing": preprocessing,
        "packing": {
            "packed_sequence_size": PACKED_SEQUENCE_SIZE,
            "algorithm": "first_fit_shuffle",
            "max_sequence_length": max_sequence_length,
            "pad_seq_to_mult": pad_seq_to_mult,
            "seed": seed,
        },
    }
    result = bridgepack.build(SFTRecipe.from_mapping(recipe), output=folder / "artifact")

    rows = _rows(result.output)
    assert len(rows) == len(host_rows)
    for number, (ours, theirs) in enumerate(zip(rows, host_rows, strict=True)):
        assert ours == theirs, f"row {number}"
    assert json.loads((result.output / BRIDGE_METADATA_FILE).read_text()) == json.loads(
        (folder / "metadata.json").read_text()
    )
    assert len(rows) > 1
    return result.manifest.splits[0].drops


@pytest.mark.parametrize(
    ("max_sequence_length", "seed"), [(PACKED_SEQUENCE_SIZE, 0), (504, 1234), (PACKED_SEQUENCE_SIZE, 2**32 - 1)]
)
def test_chat_multiple_1_skips_long(tmp_path: Path, conversations: Path, max_sequence_length: int, seed: int) -> None:
    drops = _assert_same_packs(
        tmp_path,
        conversations / "chat.jsonl",
        conversations / "tokenizer",
        preprocessing={"kind": "chat", "over_long": "drop"},
        max_sequence_length=max_sequence_length,
        seed=seed,
    )

    assert set(drops) == {DropReason.OVER_LONG}


@pytest.mark.parametrize(("max_sequence_length", "seed"), [(PACKED_SEQUENCE_SIZE, 0), (507, 77)])
def test_chat_multiple_8_truncates(tmp_path: Path, conversations: Path, max_sequence_length: int, seed: int) -> None:
    drops = _assert_same_packs(
        tmp_path,
        conversations / "chat.jsonl",
        conversations / "tokenizer",
        preprocessing={"kind": "chat", "over_long": "truncate"},
        max_sequence_length=max_sequence_length,
        pad_seq_to_mult=8,
        seed=seed,
    )

    assert drops == {}


@pytest.mark.parametrize("mode", ["last_turn", "full"])
def test_other_loss_modes(tmp_path: Path, conversations: Path, mode: str) -> None:
    _assert_same_packs(
        tmp_path,
        conversations / "chat.jsonl",
        conversations / "tokenizer",
        preprocessing={"kind": "chat", "loss_mode": mode},
        dataset_options=CHAT_OPTIONS | {"chat_loss_mode": mode},
    )


@pytest.mark.parametrize(("pad_seq_to_mult", "host_max_sequence_length"), [(1, 201), (8, 200)])
def test_prompt_completion(
    tmp_path: Path, conversations: Path, pad_seq_to_mult: int, host_max_sequence_length: int
) -> None:
    from megatron.bridge.data.sft_processing import PromptCompletionSFTPreprocessingConfig

    drops = _assert_same_packs(
        tmp_path,
        conversations / "pairs.jsonl",
        conversations / "tokenizer",
        preprocessing={"kind": "prompt_completion", "separator": "\n", "over_long": "truncate"},
        dataset_options={"prompt_completion_config": PromptCompletionSFTPreprocessingConfig(separator="\n")},
        host_max_sequence_length=host_max_sequence_length,
        max_sequence_length=200,
        pad_seq_to_mult=pad_seq_to_mult,
    )

    assert drops == {}


@pytest.mark.parametrize("pad_seq_to_mult", [1, 8])
def test_gsm8k(tmp_path: Path, reference_data: Path, pad_seq_to_mult: int) -> None:
    lines = (reference_data / "data" / "gsm8k_train.jsonl").read_text().splitlines()
    pairs = [json.loads(line) for line in strided(lines, 16)]
    rows = [
        {"messages": [{"role": "user", "content": row["question"]}, {"role": "assistant", "content": row["answer"]}]}
        for row in pairs
    ]
    write_json_lines(tmp_path / "gsm8k.jsonl", rows)

    drops = _assert_same_packs(
        tmp_path,
        tmp_path / "gsm8k.jsonl",
        reference_data / "tokenizers" / "qwen3",
        preprocessing={"kind": "chat"},
        pad_seq_to_mult=pad_seq_to_mult,
    )

    assert drops == {}
