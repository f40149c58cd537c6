"""What holds for the artifact of any rows, against the rows themselves."""

import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.data.artifact.checking import ArtifactOnDisk
from bridgepack.data.packing.plan import ALGORITHMS
from bridgepack.errors import DataError
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.support.examples import examples
from tests.support.judging import check_artifact
from tests.support.small_builds import assert_balanced, build, tokenized_recipe

EOS = 2
Sequences = list[tuple[tuple[int, ...], tuple[int, ...]]]

#: Rows drawn here may train EOS after EOS, which is taken for padding, and more than a fifth of them may be dropped.
FOUND_IN_SUCH_ROWS = {"BP335", "BP543"}
#: A build takes a fifth of a second.
few_examples = examples(0.12, suppress_health_check=[HealthCheck.function_scoped_fixture])


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw rows of ids and masks; some too short, some too long, some with nothing trained, EOS anywhere."""
    found = []
    for _ in range(draw(st.integers(1, 25))):
        length = draw(st.integers(0, 20))
        ids = draw(st.lists(st.sampled_from([EOS, 5, 6, 7, 8]), min_size=length, max_size=length))
        mask = draw(st.lists(st.integers(0, 1), min_size=length, max_size=length))
        found.append({"input_ids": ids, "loss_mask": mask})
    return found


CHANGES = st.fixed_dictionaries(
    {
        "packing__algorithm": st.sampled_from(ALGORITHMS),
        "packing__packed_sequence_size": st.sampled_from([8, 16, 32]),
        "packing__max_sequences_per_pack": st.none() | st.integers(1, 4),
        "packing__max_sequence_length": st.none() | st.integers(4, 8),
        "packing__seed": st.integers(0, 2**32 - 1),
        "parallelism__context_parallel_size": st.sampled_from([1, 2]),
        "preprocessing__over_long": st.sampled_from(["drop", "truncate", "split"]),
        "preprocessing__labels_after_eos": st.sampled_from(["mask", "train"]),
    }
)


def _expected(rows: Sequence[dict[str, Any]], recipe: SFTRecipe) -> Sequences:
    """Return (ids, mask of the labels) of the rows that can be trained on, as long as they may be."""
    longest = recipe.resolve().max_sequence_length.value
    over_long = recipe.preprocessing.over_long
    found = []
    for row in rows:
        ids, mask = row["input_ids"], row["loss_mask"]
        if len(ids) - 1 > longest and over_long == "drop":
            continue
        starts = range(0, len(ids) - 1, longest) if over_long == "split" else [0]
        for start in starts:
            part, bits = ids[start : start + longest + 1], mask[start : start + longest + 1]
            by_every_release = tuple(
                int(bit and before != EOS) for bit, before in zip(bits[1:], part[:-1], strict=False)
            )
            if any(by_every_release):
                is_masked = recipe.preprocessing.labels_after_eos == "mask"
                found.append((tuple(part), by_every_release if is_masked else tuple(bits[1:])))
    return found


def _trained_pairs(sequences: Iterable[tuple[Sequence[int], Sequence[int]]]) -> Counter[tuple[int, int]]:
    """Count (input token, label) of what is trained at run time; masks are the labels'."""
    return Counter(
        (before, label)
        for ids, mask in sequences
        for before, label, bit in zip(ids[:-1], ids[1:], mask, strict=False)
        if bit and before != EOS
    )


def _found(output: Path, multiple: int) -> Sequences:
    """Return (ids, mask of the labels) of an artifact's sequences, by its plan, without padding."""
    plan = pq.read_table(output / "plan" / "training.parquet").to_pylist()
    batches = Artifact(output).iter_batches("training")
    packs = [batch.row(index) for batch in batches for index in range(batch.num_rows)]
    found = []
    for entry in plan:
        pack = packs[entry["pack"]]
        start, length = int(pack.seq_start_id[entry["position"]]), entry["runtime_length"]
        end = start + 1 + -(-length // multiple) * multiple
        assert set(pack.input_ids[start + length + 1 : end].tolist()) <= {EOS}
        assert not pack.loss_mask[start + length : end].any()
        found.append((tuple(pack.input_ids[start : start + length + 1]), tuple(pack.loss_mask[start : start + length])))
    return found


@few_examples
@given(rows=rows(), changes=CHANGES)
def test_every_trainable_row_is_in(chatml_tokenizer: Path, rows: list[dict[str, Any]], changes: dict[str, Any]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        train = Path(folder) / "a.jsonl"
        train.write_text("".join(json.dumps(row) + "\n" for row in rows))
        recipe = tokenized_recipe(train, chatml_tokenizer, **changes)
        expected = _expected(rows, recipe)
        output = Path(folder) / "out"
        if not expected:
            with pytest.raises(DataError, match="no sequences left"):
                build(recipe, output)
            return
        manifest = build(recipe, output).manifest

        assert Counter(_found(output, manifest.pad_seq_to_mult)) == Counter(expected)
        assert_balanced(manifest)
        if recipe.preprocessing.over_long == "split":
            whole = ((row["input_ids"], row["loss_mask"][1:]) for row in rows)
            assert _trained_pairs(_found(output, manifest.pad_seq_to_mult)) == _trained_pairs(whole)
            assert verify_artifact(output, VerifyOptions()).outcome == "same"
        findings = check_artifact(ArtifactOnDisk(output)).findings
        assert {finding.code for finding in findings if finding.severity == "error"} <= FOUND_IN_SUCH_ROWS
        numbers = manifest.splits[0].statistics
        assert numbers.num_tokens == sum(len(ids) - 1 for ids, _ in expected)
        assert numbers.num_trained_tokens == sum(sum(mask) for _, mask in expected)
        assert sum(count for _, count in numbers.length_histogram) == len(expected)
