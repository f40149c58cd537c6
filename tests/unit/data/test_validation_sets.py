"""Named validation sets: packs of one source each, what is said of them, and which evaluations read them."""

import json
from collections import defaultdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from bridgepack import check, inspect
from bridgepack.config.recipe.fingerprint import fingerprint_of_manifest
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.plan import iter_plan_columns
from bridgepack.data.packing.plan import plan_packs, plan_packs_apart
from bridgepack.planning.preview import preview_recipe
from bridgepack.records import Manifest, SourceRecord
from bridgepack.reporting.results.artifacts import source_table
from tests.support import small_builds as small

#: Rows and runtime tokens of each validation set; a pack holds 32 tokens.
SETS = {"web/code": (24, 8), "math": (8, 8)}


def _recipe(folder: Path, tokenizer: Path, *, names: tuple[str | None, ...], **sections: Any) -> SFTRecipe:
    files = []
    for index, (num_rows, length) in enumerate(SETS.values()):
        rows = (
            small.tokenized_row(*range(100 * index + row, 100 * index + row + length + 1)) for row in range(num_rows)
        )
        files.append(str(small.write_json_lines(folder / f"{index}.jsonl", rows)))
    train = small.write_json_lines(folder / "train.jsonl", [small.tokenized_row(*range(9)) for _ in range(64)])
    validation = [
        path if name is None else {"path": path, "name": name} for path, name in zip(files, names, strict=True)
    ]
    data = {"train": str(train), "validation": validation}
    sizes = {"packing": {"packed_sequence_size": 32}, "preprocessing": {"kind": "tokenized"}, "data": data}
    return small.small_recipe("", tokenizer, **sizes, **sections)


def _sources_of_packs(folder: Path) -> list[set[int]]:
    sources: defaultdict[int, set[int]] = defaultdict(set)
    for packs, files in iter_plan_columns(Artifact(folder), "validation", ("pack", "file_index")):
        for pack, file in zip(packs.tolist(), files.tolist(), strict=True):
            sources[pack].add(file)
    return [sources[pack] for pack in sorted(sources)]


def _records(manifest: Manifest) -> tuple[SourceRecord, ...]:
    split = manifest.split("validation")
    assert split is not None
    return split.sources


def test_packs_of_named_sets_hold_one_source(tmp_path: Path, chatml_tokenizer: Path) -> None:
    recipe = _recipe(tmp_path, chatml_tokenizer, names=tuple(SETS))
    artifact = small.build(recipe, tmp_path / "sets")

    packs = _sources_of_packs(artifact.output)
    assert [len(sources) for sources in packs] == [1] * 8
    # 6 packs of the first set, 2 of the second, spread over the split
    assert [next(iter(sources)) for sources in packs] == [0, 0, 1, 0, 0, 0, 1, 0]
    assert [(source.name, source.num_packs) for source in _records(artifact.manifest)] == [
        (("web/code",), 6),
        (("math",), 2),
    ]
    assert preview_recipe(recipe).num_packs == {"training": 16, "validation": 8}
    split = artifact.manifest.split("validation")
    assert split is not None
    table = source_table(split)
    assert (table.columns[-1].name, [row[-1] for row in table.rows]) == ("Packs", ["6", "2"])
    assert table.head.endswith(" packs")
    assert fingerprint_of_manifest(artifact.manifest) == artifact.manifest.fingerprint
    report = json.loads(json.dumps(inspect(artifact.output).to_dict()))
    assert '"num_packs": 6' in json.dumps(report)
    assert not [finding for finding in check(artifact.output).findings if finding.code == "BP305"]


def test_without_a_name_for_each_packs_are_what_they_were(tmp_path: Path, chatml_tokenizer: Path) -> None:
    built = small.build(_recipe(tmp_path, chatml_tokenizer, names=("web/code", None)), tmp_path / "mixed")

    assert max(map(len, _sources_of_packs(built.output))) == 2
    assert {source.num_packs for source in _records(built.manifest)} == {None}
    assert "num_packs" not in json.loads((built.output / "manifest.json").read_text())["splits"][1]["sources"][0]
    names = small.build(_recipe(tmp_path, chatml_tokenizer, names=tuple(SETS)), tmp_path / "sets")
    assert names.manifest.fingerprint != built.manifest.fingerprint


def test_sources_take_turns() -> None:
    plan_of = partial(plan_packs, packed_sequence_size=8, algorithm="sequential")
    plan = plan_packs_apart(np.full(6, 8), np.array([0, 1, 0, 0, 1, 0]), plan_of)

    assert plan.sequence_order.tolist() == [0, 1, 2, 3, 4, 5]
    assert plan.pack_offsets.tolist() == [0, 1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("algorithm", ["best_fit_decreasing", "equal_cost", "first_fit_shuffle", "sequential"])
def test_one_source_is_packed_as_without_sets(algorithm: str) -> None:
    lengths = np.random.default_rng(3).integers(1, 30, 500)
    plan_of = partial(plan_packs, packed_sequence_size=64, algorithm=algorithm)

    apart, plain = plan_packs_apart(lengths, np.zeros(500, dtype=np.int64), plan_of), plan_of(lengths)
    assert apart.sequence_order.tolist() == plain.sequence_order.tolist()
    assert apart.pack_offsets.tolist() == plain.pack_offsets.tolist()


@pytest.mark.parametrize(("eval_iters", "sets_left_out"), [(4, set()), (1, {"math"})])
def test_evaluations_that_read_no_pack_of_a_set_are_named(
    tmp_path: Path, chatml_tokenizer: Path, eval_iters: int, sets_left_out: set[str]
) -> None:
    recipe = _recipe(
        tmp_path,
        chatml_tokenizer,
        names=tuple(SETS),
        batch={"global_batch_size": 2, "eval_global_batch_size": 2},
        schedule={"train_iters": 8, "eval_iters": eval_iters, "eval_interval": 2},
        parallelism={"num_gpus": 1},
        model={"name": "llama32_1b_sft_config"},
    )
    artifact = small.build(recipe, tmp_path / "sets")

    findings = [
        item for item in check(recipe, artifact=artifact.output, looks_at_files=False).findings if item.code == "BP644"
    ]
    assert {name for item in findings for name in SETS if repr(name) in str(item.found)} == sets_left_out
