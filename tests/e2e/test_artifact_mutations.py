"""A real artifact: broken in every way we know, the right rule refuses it; unbroken it passes, however it was made."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.config.recipe import SFTRecipe
from bridgepack.data import splits
from bridgepack.errors import ArtifactError
from bridgepack.records import Finding
from bridgepack.rules import CheckReport
from bridgepack.rules.registry import find_rule
from bridgepack.rules.rule import Severity
from tests.support import (
    artifact_mutations_files,
    artifact_mutations_manifest,
    artifact_mutations_masks,
    artifact_mutations_metadata,
    artifact_mutations_rows,
)
from tests.support.artifact_mutations import (
    SHARD,
    VALIDATION_SHARD,
    Mutation,
    mutations_of,
    read_manifest,
)
from tests.support.small_builds import chat_row, run_cli, tokenized_row, write_json_lines

MUTATIONS = mutations_of(
    artifact_mutations_files,
    artifact_mutations_rows,
    artifact_mutations_masks,
    artifact_mutations_manifest,
    artifact_mutations_metadata,
)
REPORTED = [mutation for mutation in MUTATIONS if not mutation.message]
UNREADABLE = [mutation for mutation in MUTATIONS if mutation.message]
SEEN_IN_ROWS = [mutation for mutation in REPORTED if not mutation.needs_manifest]
#: What the manifest promises of a file's bytes.
PROMISES = {"BP342", "BP343", "BP344"}

WORDS = ("the", "user", "asks", "a", "question", "and", "assistant", "answers", "in", "one", "line", "of", "twelve")
PACKED_SEQUENCE_SIZE = 256
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "aligned": {"pad_seq_to_mult": 8},
    "wide": {"pad_seq_to_mult": 8, "packed_sequence_size": 512},
    "shuffled": {"pad_seq_to_mult": 8, "algorithm": "first_fit_shuffle", "seed": 7},
}


def _by_name(mutation: Mutation) -> str:
    return mutation.name


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with chats, prompts and ids for training and validation, every row of them different."""
    folder = tmp_path_factory.mktemp("inputs")
    rng = random.Random(1234)
    for split, num_rows in (("training", 240), ("validation", 40)):
        texts = [(f"{split} {index}: {_text(rng, 2, 8)}?", _text(rng, 2, 24)) for index in range(num_rows)]
        texts[7] = (texts[7][0], _text(rng, 800, 800))
        write_json_lines(folder / f"{split}.jsonl", (chat_row(*text) for text in texts))
        pairs = ({"prompt": question, "completion": answer} for question, answer in texts)
        write_json_lines(folder / f"{split}-pairs.jsonl", pairs)
        write_json_lines(folder / f"{split}-turns.jsonl", (_two_turns(*text) for text in texts))
        ids = ([5 + (split == "training"), *rng.choices(range(10, 400), k=rng.randint(5, 90)), 2] for _ in texts)
        write_json_lines(folder / f"{split}-ids.jsonl", (tokenized_row(*row, num_prompt=3) for row in ids))
    return folder


def _text(rng: random.Random, shortest: int, longest: int) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(shortest, longest)))


def _two_turns(question: str, answer: str) -> dict[str, Any]:
    return {"messages": [*chat_row(question, answer)["messages"], *chat_row("And?", answer[:20])["messages"]]}


def _build(folder: Path, inputs: Path, tokenizer: Path, *, data: str = "", **sections: Any) -> Path:
    sources = {split: str(inputs / f"{name}{data}.jsonl") for split, name in _SOURCES.items()}
    recipe = SFTRecipe.from_mapping(
        {
            "name": "mutated",
            "data": sections.pop("data_section", sources),
            "tokenizer": {"name_or_path": str(tokenizer)},
            "packing": {"packed_sequence_size": PACKED_SEQUENCE_SIZE, **sections.pop("packing", {})},
            **sections,
        }
    )
    return bridgepack.build(recipe, output=folder).output


_SOURCES = {"train": "training", "validation": "validation"}


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, inputs: Path, chatml_tokenizer: Path) -> Path:
    """Return a folder with the artifacts of `VARIANTS`, each of three training shards and one of validation."""
    folder = tmp_path_factory.mktemp("artifacts")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(splits, "_SHARD_TOKENS", 4000)
        for name, packing in VARIANTS.items():
            _build(folder / name, inputs, chatml_tokenizer, packing=packing)
            shards = [shard["path"] for split in read_manifest(folder / name)["splits"] for shard in split["shards"]]
            assert len(shards) == 4
            assert {SHARD, VALIDATION_SHARD} < set(shards)
    return folder


@pytest.fixture
def mutated(artifacts: Path) -> Iterator[Callable[[Mutation], Path]]:
    """Return what gives a mutated copy, which lies beside the whole artifacts."""
    folder = artifacts / "mutated"

    def copy_and_mutate(mutation: Mutation) -> Path:
        shutil.copytree(artifacts / mutation.base, folder)
        mutation.apply(folder)
        return folder

    yield copy_and_mutate
    shutil.rmtree(folder, ignore_errors=True)


def test_there_are_many_mutations_and_no_name_is_used_twice() -> None:
    names = [mutation.name for mutation in MUTATIONS]

    assert len(names) >= 60
    assert len(set(names)) == len(names)


def test_the_whole_artifacts_have_no_finding(artifacts: Path) -> None:
    for name in VARIANTS:
        assert _codes(bridgepack.check(artifacts / name)) == {}, name
    assert VARIANTS


@pytest.mark.parametrize("mutation", REPORTED, ids=_by_name)
def test_mutation_is_reported(mutation: Mutation, mutated: Callable[[Mutation], Path]) -> None:
    report = bridgepack.check(mutated(mutation), given=mutation.given)

    found = _codes(report)
    assert set(mutation.codes) <= found.keys()
    _assert_as_documented(mutation, found)
    if mutation.fits_manifest:
        assert not PROMISES & found.keys()


@pytest.mark.parametrize("mutation", SEEN_IN_ROWS, ids=_by_name)
def test_mutation_is_reported_without_a_manifest(mutation: Mutation, mutated: Callable[[Mutation], Path]) -> None:
    folder = mutated(mutation)
    (folder / "manifest.json").unlink()
    multiple = VARIANTS[mutation.base].get("pad_seq_to_mult", 1)
    given = {"packed_sequence_size": PACKED_SEQUENCE_SIZE, "pad_seq_to_mult": multiple, "eos_token_id": 2}

    report = bridgepack.check(folder, given={"vocab_size": 400, **given, **mutation.given})

    found = _codes(report)
    assert set(mutation.codes) <= found.keys()
    _assert_as_documented(mutation, found)


@pytest.mark.parametrize("mutation", UNREADABLE, ids=_by_name)
def test_manifest_that_cannot_be_read_is_an_error(mutation: Mutation, mutated: Callable[[Mutation], Path]) -> None:
    folder = mutated(mutation)

    with pytest.raises(ArtifactError) as caught:
        bridgepack.check(folder)

    assert mutation.message in str(caught.value)
    assert "manifest.json" in str(caught.value)


def test_the_command_says_what_is_broken(artifacts: Path, mutated: Callable[[Mutation], Path], tmp_path: Path) -> None:
    outcomes = {}
    for mutation in (
        artifact_mutations_masks.last_mask_element_one,
        artifact_mutations_metadata.max_length_too_large,
        artifact_mutations_manifest.manifest_cut_off,
    ):
        folder = mutated(mutation)
        ran = run_cli(tmp_path, "check", folder, "--strict")
        outcomes[mutation.name] = (ran.returncode, ran.stdout + ran.stderr)
        shutil.rmtree(folder)

    assert [code for code, _ in outcomes.values()] == [1, 1, 2]
    assert "BP309" in outcomes["last_mask_element_one"][1]
    assert "BP412" in outcomes["max_length_too_large"][1]
    assert "manifest.json cannot be read" in outcomes["manifest_cut_off"][1]
    assert "Traceback" not in "".join(text for _, text in outcomes.values())


def _codes(report: CheckReport) -> dict[str, list[Finding]]:
    """Return code -> findings."""
    return {
        code: [finding for finding in report.findings if finding.code == code]
        for code in sorted({finding.code for finding in report.findings})
    }


def _assert_as_documented(mutation: Mutation, found: dict[str, list[Finding]]) -> None:
    for code in mutation.codes:
        rule = find_rule(code)
        assert rule is not None
        assert rule.severity in (Severity.ERROR, Severity.WARNING)
        assert {finding.severity for finding in found[code]} == {rule.severity}
    places = [place for finding in found[mutation.codes[0]] for place in finding.examples]
    assert any(mutation.where in place for place in places), places
