"""Own data in five minutes: nine forms of one data set, by the command line alone, without editing the recipe.

Each by `new`, `check` and `build --check --report`; then every row's text and what is trained of it.
"""

import csv
import gzip
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import Dataset, DatasetDict

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.artifact.plan import entries_of_packs
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.proof.packs import opened_artifact, read_packs
from tests.support.small_builds import Command, write_json_lines
from tests.zoo.families import FAMILIES, write_tokenizer

Row = dict[str, Any]
QWEN = next(family for family in FAMILIES if family.name == "Qwen3")
NUM_ROWS = 400
LAKES = ("Uri", "Zug", "Thun", "Biel", "Sils")
TOOL = {
    "type": "function",
    "function": {
        "name": "depth",
        "description": "Depth of a lake.",
        "parameters": {"type": "object", "properties": {"lake": {"type": "string"}}},
    },
}


def _question(index: int) -> str:
    return f"How deep is lake {LAKES[index % 5]} at place {index}?{' Be exact.' * (index % 7)}"


def _answer(index: int) -> str:
    return f"It is {index + 3} m deep{', as far as is known' * (index % 4)}."


def _thinking(index: int) -> str:
    return f"Place {index} lies in {LAKES[index % 5]}."


def _turn(role: str, text: str, *, trained: bool = False) -> str:
    """Return a turn as the template writes it; what is trained is in brackets of private-use characters."""
    said = f"{text}<|im_end|>"
    return f"<|im_start|>{role}\n" + (f"\ue000{said}\ue001\n" if trained else f"{said}\n")


def _chat(index: int, *, question: str = "", thoughts: str = "") -> str:
    answer = f"<think>\n{thoughts}\n</think>\n\n{_answer(index)}"
    return _turn("user", question or _question(index)) + _turn("assistant", answer, trained=True)


def _tool_chat(index: int) -> str:
    call = f'{{"name": "depth", "arguments": {{"lake": "{LAKES[index % 5]}"}}}}'
    result = f'<tool_response>\n{{"m": {index + 3}}}\n</tool_response>'
    return (
        _turn("system", f"<tools>\n{json.dumps(TOOL)}\n</tools>")
        + _turn("user", _question(index))
        + _turn("assistant", f"<tool_call>\n{call}\n</tool_call>", trained=True)
        + _turn("user", result)
        + _turn("assistant", f"<think>\n\n</think>\n\n{_answer(index)}", trained=True)
    )


def _tool_row(index: int) -> Row:
    function = {"name": "depth", "arguments": json.dumps({"lake": LAKES[index % 5]})}
    turns = [
        {"role": "user", "content": _question(index)},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "c1", "type": "function", "function": function}]},
        {"role": "tool", "tool_call_id": "c1", "content": json.dumps({"m": index + 3})},
        {"role": "assistant", "content": _answer(index)},
    ]
    return {"id": f"row-{index}", "messages": turns, "tools": [TOOL]}


def _sharegpt_row(index: int) -> Row:
    turns = [{"from": "human", "value": _question(index)}, {"from": "gpt", "value": _answer(index)}]
    return {"id": index, "conversations": turns}


def _alpaca_row(index: int) -> Row:
    return {"instruction": _question(index), "input": _input(index), "output": _answer(index)}


def _input(index: int) -> str:
    return f"Measured in {1900 + index % 90}." if index % 2 else ""


def _with_input(index: int) -> str:
    return "\n\n".join(filter(None, (_question(index), _input(index))))


def _pair(index: int) -> Row:
    return {"question": _question(index), "answer": _answer(index)}


def _rows(make: Callable[[int], Row], start: int = 0, stop: int = NUM_ROWS) -> list[Row]:
    return [make(index) for index in range(start, stop)]


def _openai(folder: Path) -> Path:
    return write_json_lines(folder / "chats.jsonl", _rows(_tool_row))


def _sharegpt(folder: Path) -> Path:
    path = folder / "sharegpt.json"
    path.write_text(json.dumps(_rows(_sharegpt_row)))
    return path


def _alpaca(folder: Path) -> Path:
    return write_json_lines(folder / "alpaca.jsonl", _rows(_alpaca_row))


def _parquet(folder: Path) -> Path:
    pq.write_table(pa.Table.from_pylist(_rows(_pair)), folder / "pairs.parquet")
    return folder / "pairs.parquet"


def _csv(folder: Path) -> Path:
    with (folder / "pairs.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["question", "answer"])
        writer.writeheader()
        writer.writerows(_rows(_pair))
    return folder / "pairs.csv"


def _saved(folder: Path) -> Path:
    Dataset.from_list(_rows(_sharegpt_row)).save_to_disk(folder / "saved")
    return folder / "saved"


def _splits(folder: Path) -> Path:
    parts = {"train": _rows(_pair, 0, 360), "test": _rows(_pair, 360)}
    DatasetDict({name: Dataset.from_list(rows) for name, rows in parts.items()}).save_to_disk(folder / "splits")
    return folder / "splits"


def _shards(folder: Path) -> Path:
    (folder / "shards").mkdir()
    for shard in range(20):
        with gzip.open(folder / "shards" / f"part-{shard:05}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(row) + "\n" for row in _rows(_sharegpt_row, shard * 20, shard * 20 + 20))
    return folder / "shards"


def _reasoning(folder: Path) -> Path:
    rows = [{"question": _question(i), "thinking": _thinking(i), "answer": _answer(i)} for i in range(NUM_ROWS)]
    return write_json_lines(folder / "reasoning.jsonl", rows)


FORMS: dict[str, tuple[Callable[[Path], Path], Callable[[int], str]]] = {
    "openai-tools": (_openai, _tool_chat),
    "sharegpt": (_sharegpt, _chat),
    "alpaca": (_alpaca, lambda index: _chat(index, question=_with_input(index))),
    "parquet": (_parquet, _chat),
    "csv": (_csv, _chat),
    "saved": (_saved, _chat),
    "splits": (_splits, _chat),
    "shards": (_shards, _chat),
    "reasoning": (_reasoning, lambda index: _chat(index, thoughts=_thinking(index))),
}


def _texts(artifact_folder: Path, split: str, tokenizer: Path) -> Iterator[str]:
    """Yield the text of each sequence; what is trained is in brackets, as by `_turn`."""
    artifact = opened_artifact(artifact_folder)
    decode = load_tokenizer(TokenizerConfig(name_or_path=str(tokenizer))).decode
    found = next(one for one in artifact.manifest.splits if one.name == split)
    numbers = range(found.statistics.num_packs)
    packs = read_packs(artifact, split, numbers)
    for number, entries in entries_of_packs(artifact, split, numbers).items():
        pack = packs[number]
        for entry in entries:
            start = int(pack.seq_start_id[entry.position])
            stop = start + entry.runtime_length
            trained = [0, *pack.loss_mask[start:stop].astype(int).tolist()]
            yield "".join(_marked(pack.input_ids[start : stop + 1].tolist(), trained, decode))


def _marked(ids: list[int], trained: list[int], decode: Callable[[list[int]], str]) -> Iterable[str]:
    for bit, places in groupby(range(len(ids)), key=trained.__getitem__):
        text = decode([ids[place] for place in places])
        yield f"\ue000{text}\ue001" if bit else text


@pytest.mark.full
@pytest.mark.parametrize("form", FORMS)
def test_own_data(tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    monkeypatch.chdir(tmp_path)
    write, expected = FORMS[form]
    tokenizer = write_tokenizer(tmp_path / "tokenizer", QWEN)
    data = write(tmp_path)
    options = ("--model", "Qwen/Qwen3-1.7B", "--num-gpus", "1", "--seq-length", "1024", "--method", "lora")
    lines = (
        ("new", "mine", *options, "--data", data.name, "--tokenizer", tokenizer.name),
        ("check", "mine.yaml"),
        ("build", "mine.yaml", "--output", "made", "--check", "--report"),
    )

    for line in lines:
        done = command(*line)
        assert done.code == 0, f"{line}\n{done.output}\n{done.errors}"

    made = {split: [*_texts(tmp_path / "made", split, tokenizer)] for split in ("training", "validation")}
    assert Counter(made["training"] + made["validation"]) == Counter(map(expected, range(NUM_ROWS)))
    if form == "splits":
        assert len(made["validation"]) == 40
    assert (tmp_path / "made" / "report.html").is_file()
