"""Ten broken recipes, data sets and artifacts, and how the commands of SKILL.md mend each."""

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

#: Forms of SKILL.md, as they stand there.
PREVIEW = "bridgepack preview RECIPE --json"
BUILD = "bridgepack build RECIPE --output ARTIFACT --check --json"
BUILD_WITH = "bridgepack build RECIPE --output ARTIFACT --set PATH=VALUE --json"
REPLACE = "bridgepack build RECIPE --output ARTIFACT --replace --check --json"
CHECK = "bridgepack check RECIPE --json"
CHECK_PACKS = "bridgepack check ARTIFACT --json"
CHECK_BOTH = "bridgepack check RECIPE --artifact ARTIFACT --json"
FIX = "bridgepack check RECIPE --fix --json"
REPACK = "bridgepack repack ARTIFACT --set PATH=VALUE --output FOLDER --json"
VERIFY = "bridgepack prove sources ARTIFACT --json"

RECIPE = """\
name: small
data: {train: data/training.jsonl}
tokenizer: {name_or_path: data/tokenizer}
preprocessing: {kind: chat, loss_mode: assistant, over_long: drop}
packing: {packed_sequence_size: 4096, pad_seq_to_mult: 1}
batch: {micro_batch_size: 1, global_batch_size: 1}
"""

type Document = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """One command, and what has to come of it."""

    form: str  #: as SKILL.md has it
    code: int
    shows: Callable[[Document], bool] = bool  #: says whether the JSON document is right
    words: Mapping[str, str] = field(default_factory=dict)  #: what stands for PATH=VALUE, ARTIFACT and FOLDER


type Steps = Iterator[Step]


def recipe_with_a_misspelt_field() -> Steps:
    edit("packed_sequence_size", "packed_seq_size")
    yield Step(form=CHECK, code=2, shows=lambda said: said["error"]["problems"][0]["file"] == "recipe.yaml")
    edit("packed_seq_size", "packed_sequence_size")
    yield Step(form=CHECK, code=0)


def recipe_with_two_packs_a_micro_batch() -> Steps:
    edit("micro_batch_size: 1, global_batch_size: 1", "micro_batch_size: 2, global_batch_size: 2")
    yield Step(form=CHECK, code=1, shows=lambda said: "batch.micro_batch_size" in places(said))
    yield Step(form=FIX, code=0, shows=lambda _: "micro_batch_size: 1" in Path("recipe.yaml").read_text())


def recipe_with_a_batch_of_more_packs_than_there_are() -> Steps:
    edit("global_batch_size: 1", "global_batch_size: 512")
    yield Step(form=BUILD, code=1, shows=lambda said: "BP601" in codes(said["check"]))
    edit("global_batch_size: 512", "global_batch_size: 1")
    yield Step(form=BUILD, code=0, shows=lambda said: "BP601" not in codes(said["check"]))


def recipe_whose_tokenizer_is_not_there() -> Steps:
    edit("data/tokenizer", "data/tokeniser")
    yield Step(form=BUILD, code=2, shows=lambda said: "tokenizer.name_or_path" in said["error"]["message"])
    edit("data/tokeniser", "data/tokenizer")
    yield Step(form=BUILD, code=0)


def packs_that_are_not_aligned_for_context_parallelism() -> Steps:
    yield Step(form=BUILD, code=0)
    Path("recipe.yaml").write_text(RECIPE + "parallelism: {context_parallel_size: 2}\n")
    yield Step(form=CHECK_BOTH, code=1, shows=lambda said: "packing.pad_seq_to_mult" in places(said))
    yield Step(form=FIX, code=0)
    multiple = {"PATH=VALUE": "packing.pad_seq_to_mult=4", "FOLDER": "aligned"}
    yield Step(form=REPACK, code=0, shows=lambda said: said["pad_seq_to_mult"] == 4, words=multiple)
    yield Step(form=CHECK_BOTH, code=0, words={"ARTIFACT": "aligned"})


def artifact_with_a_damaged_shard() -> Steps:
    yield Step(form=BUILD, code=0)
    shard = next(Path("packed/training").iterdir())
    shard.write_bytes(shard.read_bytes()[:-9])
    yield Step(form=CHECK_PACKS, code=1, shows=lambda said: any(shard.name in place for place in places(said)))
    yield Step(form=BUILD, code=0)
    yield Step(form=CHECK_BOTH, code=0)


def artifact_that_lost_its_manifest() -> Steps:
    yield Step(form=BUILD, code=0)
    Path("packed/manifest.json").unlink()
    yield Step(form=CHECK_PACKS, code=2, shows=lambda said: "manifest.json" in said["error"]["message"])
    yield Step(form=BUILD, code=0, words={"ARTIFACT": "again"})
    yield Step(form=CHECK_BOTH, code=0, words={"ARTIFACT": "again"})


def artifact_whose_source_was_changed() -> Steps:
    yield Step(form=BUILD, code=0)
    data = Path("data/training.jsonl")
    data.write_text("".join(data.read_text().splitlines(keepends=True)[3:]))
    yield Step(form=VERIFY, code=1, shows=lambda said: "training.jsonl" in json.dumps(said))
    yield Step(form=REPLACE, code=0)
    yield Step(form=VERIFY, code=0, shows=lambda said: said["outcome"] == "same")


def data_with_a_row_that_is_no_json() -> Steps:
    with Path("data/training.jsonl").open("a") as file:
        file.write('{"messages": [\n')
    yield Step(form=PREVIEW, code=0, shows=lambda said: num_dropped(said) == 1)
    stop = {"PATH=VALUE": "data.on_bad_row=error"}
    yield Step(form=BUILD_WITH, code=2, shows=lambda said: "training.jsonl" in said["error"]["message"], words=stop)
    data = Path("data/training.jsonl")
    data.write_text("".join(data.read_text().splitlines(keepends=True)[:-1]))
    yield Step(form=BUILD, code=0, shows=lambda said: not any(said["splits"][0]["drops"].values()))


def data_with_rows_longer_than_a_pack() -> Steps:
    edit("packed_sequence_size: 4096", "packed_sequence_size: 64")
    yield Step(form=PREVIEW, code=0, shows=lambda said: num_dropped(said) > 0)
    edit("packed_sequence_size: 64", "packed_sequence_size: 4096")
    yield Step(form=PREVIEW, code=0, shows=lambda said: num_dropped(said) == 0)
    yield Step(form=BUILD, code=0, shows=lambda said: not any(said["splits"][0]["drops"].values()))


def edit(before: str, after: str) -> None:
    text = Path("recipe.yaml").read_text()
    if before not in text:
        raise ValueError(f"recipe.yaml has no {before!r}")
    Path("recipe.yaml").write_text(text.replace(before, after))


def codes(report: Document) -> set[str]:
    return {finding["code"] for finding in report["findings"]}


def places(report: Document) -> set[str]:
    return {place for finding in report["findings"] for place in (*finding["where"].split(", "), *finding["examples"])}


def num_dropped(preview: Document) -> int:
    return sum(drop["num_rows"] for source in preview["sources"] for drop in source["drops"])


TASKS = (
    recipe_with_a_misspelt_field,
    recipe_with_two_packs_a_micro_batch,
    recipe_with_a_batch_of_more_packs_than_there_are,
    recipe_whose_tokenizer_is_not_there,
    packs_that_are_not_aligned_for_context_parallelism,
    artifact_with_a_damaged_shard,
    artifact_that_lost_its_manifest,
    artifact_whose_source_was_changed,
    data_with_a_row_that_is_no_json,
    data_with_rows_longer_than_a_pack,
)
