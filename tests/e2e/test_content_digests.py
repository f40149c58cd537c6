"""What builds of the reference data hold, row by row, is what it was: ids, masks, starts, order and counts of drops.

Only contents count, not the bytes of files. `COVERED` says what is built of which data set with which tokenizer: each
setting for one or two of them, as the others share its code. `BRIDGEPACK_REGENERATE=1 pytest
tests/e2e/test_content_digests.py` writes the digests anew; then tokens, masks, packs or their order are others.
"""

import gzip
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from tokenizers import Tokenizer

import bridgepack
from bridgepack.api import repack
from bridgepack.data.served.switches import NO_SWITCH
from bridgepack.data.served.tally import ServedTally
from tests.support.golden import renewed_by
from tests.support.small_builds import AS_HOST

GOLDEN = Path(__file__).parents[1] / "golden" / "content_digests.json"
TOKENIZERS = ("qwen3", "deepseek_v3")
MULTIPLES = (1, 4, 8, 64)
ALGORITHMS = ("best_fit_decreasing", "first_fit_decreasing", "first_fit_shuffle")
EVERY_PACKING = [(multiple, algorithm) for multiple in MULTIPLES for algorithm in ALGORITHMS]
#: Each multiple and each algorithm at least once.
SOME_PACKINGS = [(multiple, ALGORITHMS[index % 3]) for index, multiple in enumerate(MULTIPLES)]
PLAIN_PACKING, ALIGNED_PACKING = SOME_PACKINGS[:1], [(8, "best_fit_decreasing")]
#: What is built -> the setting that it is for.
SETTINGS = {
    "chat assistant": "kind chat: the answers of each data set by each family of markers; every way of packing",
    "chat last_turn": "loss_mode last_turn",
    "chat full": "loss_mode full",
    "chat cut": "over_long truncate, masks_control_tokens, null_content",
    "chat capped": "max_sequences_per_pack, seed",
    "chat strict": "control_tokens drop, engine auto",
    "chat plain": "loader tokenizer_json",
    "pairs completion": "kind prompt_completion",
    "pairs full": "loss_mode full of pairs, strip_whitespace",
    "pairs cut right": "over_long truncate, a template with a separator, ends_cut_completions",
    "pairs cut left": "truncation_method left, add_bos",
    "ids labels": "kind tokenized with labels",
    "ids masks": "kind tokenized with a mask, from Parquet, over_long truncate",
    **{f"chat {name}": "the form of the input" for name in ("lines.jsonl", "array.json", "table.parquet")},
    **{f"chat {name}": "the form of the input" for name in ("lines.jsonl.gz", "array.json.zst", "table.arrow")},
    "chat spoiled.jsonl": "rows that are dropped",
}
FORMS = {label: ALIGNED_PACKING for label, setting in SETTINGS.items() if "form of" in setting or "dropped" in setting}
#: (data set, tokenizer) -> what is built of it, and the ways of packing. `fastchat` with `qwen3` builds each way, the
#: others repack the first, which must give the same, sooner.
COVERED = {
    ("fastchat", "qwen3"): {
        "chat assistant": EVERY_PACKING,
        "chat last_turn": PLAIN_PACKING,
        "chat capped": ALIGNED_PACKING,
        "pairs full": ALIGNED_PACKING,
        "ids labels": SOME_PACKINGS,
    },
    ("fastchat", "deepseek_v3"): {
        "chat assistant": ALIGNED_PACKING,
        "chat last_turn": SOME_PACKINGS,
        "chat cut": PLAIN_PACKING,
        "pairs cut left": ALIGNED_PACKING,
    },
    ("glaive", "qwen3"): {
        "chat assistant": ALIGNED_PACKING,
        "chat cut": SOME_PACKINGS,
        "chat strict": ALIGNED_PACKING,
        **FORMS,
    },
    ("glaive", "deepseek_v3"): {
        "chat assistant": EVERY_PACKING,
        "chat plain": ALIGNED_PACKING,
        "ids masks": SOME_PACKINGS,
    },
    ("gsm8k", "qwen3"): {
        "chat assistant": ALIGNED_PACKING,
        "chat full": SOME_PACKINGS,
        "pairs completion": SOME_PACKINGS,
        "pairs cut left": ALIGNED_PACKING,
    },
    ("gsm8k", "deepseek_v3"): {
        "chat assistant": ALIGNED_PACKING,
        "pairs cut right": SOME_PACKINGS,
        "pairs full": ALIGNED_PACKING,
    },
}
#: Data set -> its size of packs and its longest sequence, which a few of its rows exceed.
SIZES = {"gsm8k": (1024, 256), "fastchat": (512, 64), "glaive": (2048, 1024)}
NUM_ROWS = {"gsm8k": 200, "fastchat": 200, "glaive": 120}
_OF_DEEPSEEK = {"assistant_start": "<｜Assistant｜>", "assistant_end": "<｜end▁of▁sentence｜>"}
MARKERS = {"qwen3": {}, "deepseek_v3": {"assistant_markers": _OF_DEEPSEEK}}
#: What bad rows are: replaced by these, every tenth row in turn.
SPOILED = ("{", "{}", "[1, 2]", '{"conversations": []}', '{"conversations": [{"from": "nobody", "value": "?"}]}', "")

Row = dict[str, Any]
Packing = tuple[int, str]


def _read(folder: Path, name: str) -> list[Row]:
    if name == "gsm8k":
        rows = [json.loads(line) for line in (folder / "gsm8k_train.jsonl").read_text().splitlines()]
    else:
        file = {"fastchat": "fastchat_dummy_conversation.json", "glaive": "glaive_toolcall_demo.json"}[name]
        rows = json.loads((folder / file).read_text())
    return rows[: NUM_ROWS[name]]


def _pair(row: Row) -> Row:
    """Return the first question and answer of a row, spaces around them."""
    texts = [row["question"], row["answer"]] if "question" in row else [turn["value"] for turn in row["conversations"]]
    return {"prompt": f"  {texts[0]} ", "completion": f" {texts[1]}"}


def _write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def _write_rows(path: Path, rows: list[Row]) -> Path:
    return _write_lines(path, [json.dumps(row) for row in rows])


class Builds:
    """Small builds of one data set with one tokenizer, which share a token store."""

    def __init__(self, folder: Path, reference: Path, name: str, tokenizer: str) -> None:
        self.folder, self.name, self.tokenizer = folder, name, tokenizer
        self.rows = _read(reference / "data", name)
        self.tokenizer_folder = reference / "tokenizers" / tokenizer
        self.store = str(folder / "tokens")
        self.covered = COVERED[name, tokenizer]
        self.found: dict[str, Row] = {}

    def add(self, label: str, train: Path, preprocessing: Row, **sections: Row) -> None:
        """Build what is covered with the first way of packing, repack with the others, and note what is in each."""
        if label not in self.covered:
            return
        size, longest = SIZES[self.name]
        recipe = bridgepack.SFTRecipe.from_mapping(
            {
                "name": "digest",
                "data": {"train": str(train), "validation_fraction": 0.1} | sections.get("data", {}),
                "tokenizer": {"name_or_path": str(self.tokenizer_folder), "engine": "tokenizers"}
                | sections.get("tokenizer", {}),
                "preprocessing": preprocessing,
                "packing": {"packed_sequence_size": size, "max_sequence_length": longest} | sections.get("packing", {}),
            }
        )
        first = None
        for multiple, algorithm in self.covered[label]:
            changes = {"packing.pad_seq_to_mult": multiple, "packing.algorithm": algorithm}
            output = self.folder / f"{label} {multiple} {algorithm}"
            if first is None or (self.name, self.tokenizer) == ("fastchat", "qwen3"):
                bridgepack.build(recipe, output=output, overrides=changes, num_workers=0, store=self.store)
                first = first or output
            else:
                repack(first, changes, output=output, num_workers=0, store=self.store)
            self.found[f"{self.name} {self.tokenizer} {output.name}"] = contents(output)


def contents(artifact: Path) -> Row:
    """Return the numbers of rows and drops of an artifact, and a digest of each row's ids, mask and starts in order."""
    digest = hashlib.sha256()
    num_rows, drops = {}, {}
    for split in json.loads((artifact / "manifest.json").read_text())["splits"]:
        name = split["name"]
        num_rows[name] = 0
        drops[name] = dict(sorted(split["drops"].items()))
        digest.update(name.encode())
        for shard in split["shards"]:
            for row in pq.read_table(artifact / shard["path"]).to_pylist():
                values = (row["input_ids"], row["loss_mask"], row["seq_start_id"])
                digest.update(json.dumps(values).encode())
                num_rows[name] += 1
    return {"rows": num_rows, "drops": drops, "sha256": digest.hexdigest()}


def _chats(builds: Builds) -> None:
    kind = {"kind": "chat"} | AS_HOST | MARKERS[builds.tokenizer]
    rows = _write_rows(builds.folder / "chats.jsonl", builds.rows)
    for mode in ("assistant", "last_turn", "full"):
        builds.add(f"chat {mode}", rows, kind | {"loss_mode": mode})
    cut = kind | {"over_long": "truncate", "masks_control_tokens": False, "null_content": "empty"}
    builds.add("chat cut", rows, cut)
    builds.add("chat capped", rows, kind, packing={"max_sequences_per_pack": 3, "seed": 7})
    builds.add("chat strict", rows, kind | {"control_tokens": "drop"}, tokenizer={"engine": "auto"})
    builds.add("chat plain", rows, kind, tokenizer={"loader": "tokenizer_json"})


def _pairs(builds: Builds) -> None:
    rows = _write_rows(builds.folder / "pairs.jsonl", [_pair(row) for row in builds.rows])
    kind = {"kind": "prompt_completion"}
    builds.add("pairs completion", rows, kind)
    builds.add("pairs full", rows, kind | {"loss_mode": "full", "strip_whitespace": False})
    formed = kind | {"over_long": "truncate", "separator": "A: ", "ends_cut_completions": False}
    layout = {"kind": "prompt_completion", "prompt": "Q: {prompt}\n", "completion": "{completion}"}
    builds.add("pairs cut right", rows, formed, data={"layout": layout})
    cut_left = {"over_long": "truncate", "truncation_method": "left", "add_bos": builds.tokenizer == "deepseek_v3"}
    builds.add("pairs cut left", rows, kind | cut_left)


def _tokenised(builds: Builds) -> None:
    encode = Tokenizer.from_file(str(builds.tokenizer_folder / "tokenizer.json")).encode
    pairs = [[encode(text).ids for text in _pair(row).values()] for row in builds.rows]
    kind = {"kind": "tokenized"}
    labelled = [{"input_ids": one + two, "labels": [-100] * len(one) + two} for one, two in pairs]
    builds.add("ids labels", _write_rows(builds.folder / "labels.jsonl", labelled), kind)
    masked = [{"ids": one + two, "mask": [0] * len(one) + [1] * len(two)} for one, two in pairs]
    layout = {"kind": "tokenized", "input_ids": "ids", "loss_mask": "mask"}
    pq.write_table(pa.Table.from_pylist(masked), builds.folder / "masks.parquet")
    cut = kind | {"over_long": "truncate"}
    builds.add("ids masks", builds.folder / "masks.parquet", cut, data={"layout": layout})


def _forms(folder: Path, rows: list[Row]) -> Iterator[tuple[str, Path]]:
    """Write the same rows in every form of input, and lines some of which are bad."""
    lines = [json.dumps(row) for row in rows]
    text = "\n".join(lines).encode()
    array = ("[\n  " + ",\n  ".join(lines) + "\n]").encode()
    files = {
        "lines.jsonl": text,
        "array.json": array,
        "lines.jsonl.gz": gzip.compress(text, mtime=0),
        "array.json.zst": zstandard.compress(array),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
        yield name, folder / name
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, folder / "table.parquet", row_group_size=64)
    yield "table.parquet", folder / "table.parquet"
    with pa.OSFile(str(folder / "table.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    yield "table.arrow", folder / "table.arrow"
    bad = [SPOILED[index // 10 % len(SPOILED)] if index % 10 == 0 else line for index, line in enumerate(lines)]
    yield "spoiled.jsonl", _write_lines(folder / "spoiled.jsonl", bad)


def _input_forms(builds: Builds) -> None:
    for label, path in _forms(builds.folder, builds.rows):
        builds.add(f"chat {label}", path, {"kind": "chat"} | AS_HOST | MARKERS[builds.tokenizer])


def _as_lines(found: dict[str, Row]) -> str:
    entries = ",\n".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in sorted(found.items()))
    return f"{{\n{entries}\n}}\n"


@pytest.mark.parametrize(("name", "tokenizer"), COVERED)
def test_contents_are_those_on_file(
    tmp_path: Path, reference_data: Path, monkeypatch: pytest.MonkeyPatch, name: str, tokenizer: str
) -> None:
    # What servers show is no part of the contents, and comparing it takes as long as the rest of a small build.
    monkeypatch.setattr("bridgepack.data.served.sample.sample_answers", lambda *_: ServedTally().record(NO_SWITCH, {}))
    builds = Builds(tmp_path, reference_data, name, tokenizer)

    for make in (_chats, _pairs, _tokenised, _input_forms):
        make(builds)

    expected = json.loads(GOLDEN.read_text()) if GOLDEN.exists() else {}
    if os.environ.get("BRIDGEPACK_REGENERATE"):
        GOLDEN.write_text(_as_lines(expected | builds.found))
    else:
        assert builds.found == {key: expected.get(key) for key in builds.found}, renewed_by(__file__)
    assert len(builds.found) == sum(map(len, builds.covered.values()))


def test_every_setting_is_covered_and_nothing_else_is_on_file() -> None:
    labels = {label for covered in COVERED.values() for label in covered}
    keys = {
        f"{name} {tokenizer} {label} {multiple} {algorithm}"
        for (name, tokenizer), covered in COVERED.items()
        for label, packings in covered.items()
        for multiple, algorithm in packings
    }

    assert labels == set(SETTINGS)
    assert {name for name, _ in COVERED} == set(SIZES)
    assert {tokenizer for _, tokenizer in COVERED} == set(TOKENIZERS)
    assert json.loads(GOLDEN.read_text()).keys() == keys
