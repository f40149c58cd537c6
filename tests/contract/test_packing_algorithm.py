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
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.records import ROW_COLUMNS, TRAIN, DropReason
from tests.support.host_datasets import load_host_tokenizer
from tests.support.small_builds import chat_row, write_conversations, write_json_lines
from tests.support.upstream_preprocessing import prepare_host_packs, strided

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

SIZE = 1024


@pytest.fixture(scope="module")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with training.jsonl, pairs.jsonl and tokenizer."""
    folder = write_conversations(tmp_path_factory.mktemp("conversations"), limit=160)
    turns = [json.loads(line)["messages"] for line in (folder / "training.jsonl").read_text().splitlines()]
    pairs = [{"prompt": str(messages[0]["content"]), "completion": str(messages[-1]["content"])} for messages in turns]
    write_json_lines(folder / "pairs.jsonl", pairs)
    return folder


def _rows(folder: Path) -> list[dict[str, list[int]]]:
    batches = Artifact(folder).iter_batches(TRAIN)
    rows = [batch.row(index) for batch in batches for index in range(batch.num_rows)]
    return [{name: getattr(row, name).tolist() for name in ROW_COLUMNS} for row in rows]


def _dropped(folder: Path, data: Path, tokenizer: Path, preprocessing: dict[str, Any], **options: Any) -> set[str]:
    """Assert that both sides give the same rows and the same metadata; return the reasons of bridgepack's drops."""
    from megatron.bridge.data.sft_processing import PromptCompletionSFTPreprocessingConfig

    if preprocessing["kind"] == "chat":
        dataset_options: dict[str, Any] = {"chat": True, "use_hf_tokenizer_chat_template": True}
        if "loss_mode" in preprocessing:
            dataset_options["chat_loss_mode"] = preprocessing["loss_mode"]
    else:
        config = PromptCompletionSFTPreprocessingConfig(separator=preprocessing["separator"])
        dataset_options = {"prompt_completion_config": config}
    packing: dict[str, Any] = {
        "packed_sequence_size": SIZE,
        "max_sequence_length": SIZE,
        "pad_seq_to_mult": 1,
        "seed": 1234,
        **options,
    }
    host_max_sequence_length = packing.pop("host_max_sequence_length", packing["max_sequence_length"])
    prepare_host_packs(
        data,
        folder / "packed.idx.parquet",
        folder / "metadata.json",
        load_host_tokenizer(tokenizer),
        packed_sequence_size=SIZE,
        max_seq_length=host_max_sequence_length,
        pad_seq_to_mult=packing["pad_seq_to_mult"],
        seed=packing["seed"],
        dataset_kwargs=dataset_options,
    )
    host_rows = pq.read_table(folder / "packed.idx.parquet", columns=list(ROW_COLUMNS)).to_pylist()
    recipe = {
        "name": "contract",
        "data": {"train": str(data)},
        "tokenizer": {"name_or_path": str(tokenizer)},
        "preprocessing": preprocessing,
        "packing": {"algorithm": "first_fit_shuffle", **packing},
    }
    result = bridgepack.build(SFTRecipe.from_mapping(recipe), output=folder / "artifact")

    rows = _rows(result.output)
    assert len(rows) == len(host_rows) > 1
    for number, (ours, theirs) in enumerate(zip(rows, host_rows, strict=True)):
        assert ours == theirs, f"row {number}"
    metadata = (result.output / BRIDGE_METADATA_FILE, folder / "metadata.json")
    assert json.loads(metadata[0].read_text()) == json.loads(metadata[1].read_text())
    return set(result.manifest.splits[0].drops)


@pytest.mark.parametrize(
    ("over_long", "options"),
    [
        ("drop", {"seed": 0}),
        ("drop", {"seed": 2**32 - 1}),
        ("drop", {"max_sequence_length": 504}),
        ("truncate", {"pad_seq_to_mult": 8, "seed": 0}),
        ("truncate", {"pad_seq_to_mult": 8, "max_sequence_length": 507, "seed": 77}),
    ],
)
def test_chat(tmp_path: Path, conversations: Path, over_long: str, options: dict[str, int]) -> None:
    preprocessing = {"kind": "chat", "over_long": over_long}
    drops = _dropped(tmp_path, conversations / "training.jsonl", conversations / "tokenizer", preprocessing, **options)

    assert drops == ({DropReason.OVER_LONG} if over_long == "drop" else set())


@pytest.mark.parametrize("mode", ["last_turn", "full"])
def test_other_loss_modes(tmp_path: Path, conversations: Path, mode: str) -> None:
    preprocessing = {"kind": "chat", "loss_mode": mode}
    assert _dropped(tmp_path, conversations / "training.jsonl", conversations / "tokenizer", preprocessing)


@pytest.mark.parametrize(("pad_seq_to_mult", "host_max_sequence_length"), [(1, 201), (8, 200)])
def test_prompt_completion(
    tmp_path: Path, conversations: Path, pad_seq_to_mult: int, host_max_sequence_length: int
) -> None:
    drops = _dropped(
        tmp_path,
        conversations / "pairs.jsonl",
        conversations / "tokenizer",
        {"kind": "prompt_completion", "separator": "\n", "over_long": "truncate"},
        host_max_sequence_length=host_max_sequence_length,
        max_sequence_length=200,
        pad_seq_to_mult=pad_seq_to_mult,
    )

    assert drops == set()


@pytest.mark.parametrize("pad_seq_to_mult", [1, 8])
def test_gsm8k(tmp_path: Path, reference_data: Path, pad_seq_to_mult: int) -> None:
    lines = (reference_data / "data" / "gsm8k_train.jsonl").read_text().splitlines()
    rows = [chat_row(row["question"], row["answer"]) for row in map(json.loads, strided(lines, 16))]
    data = write_json_lines(tmp_path / "gsm8k.jsonl", rows)
    tokenizer = reference_data / "tokenizers" / "qwen3"

    assert _dropped(tmp_path, data, tokenizer, {"kind": "chat"}, pad_seq_to_mult=pad_seq_to_mult) == set()
