"""A real artifact: broken in every way we know, the right rule refuses it; unbroken it passes, however it was made."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import bridgepack
from bridgepack.data.artifact import checking
from bridgepack.errors import ArtifactError
from bridgepack.reporting.rules import named_rule
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity
from tests.support import artifact_mutations as mutations
from tests.support import artifact_mutations_files as files
from tests.support import artifact_mutations_manifest as manifests
from tests.support import artifact_mutations_metadata as metadata
from tests.support import artifact_mutations_rows as in_rows
from tests.support.artifact_mutations import IDS, MASK, STARTS, Mutation, read_manifest, rewrite_table
from tests.support.varied_builds import PACKED_SEQUENCE_SIZE, Variant, build_variant, write_inputs

pytestmark = pytest.mark.full

MUTATIONS = mutations.mutations_of(files, in_rows, manifests, metadata)
NAMED = {mutation.name: mutation for mutation in MUTATIONS}
REPORTED = [mutation for mutation in MUTATIONS if not mutation.message]
UNREADABLE = [mutation for mutation in MUTATIONS if mutation.message]
SEEN_IN_ROWS = [mutation for mutation in REPORTED if not mutation.needs_manifest]
#: What the manifest promises of a file's bytes.
PROMISES = {"BP342", "BP343", "BP344"}


BASES = (
    Variant(name="plain"),
    Variant(name="aligned", packing={"pad_seq_to_mult": 8}),
    Variant(name="wide", packing={"pad_seq_to_mult": 8, "packed_sequence_size": 512}),
    Variant(name="shuffled", packing={"pad_seq_to_mult": 8, "algorithm": "first_fit_shuffle", "seed": 7}),
)
#: The host makes Python lists of the rows, so none of this matters to it.
HARMLESS: dict[str, Callable[[Any], Any]] = {
    "the same again": lambda table: table,
    "wider integers": lambda table: table.cast(_schema(pa.list_(pa.int64()))),
    "unsigned integers": lambda table: table.cast(_schema(pa.list_(pa.uint32()))),
    "large lists": lambda table: table.cast(_schema(pa.large_list(pa.int32()))),
    "mask of booleans": lambda table: table.set_column(1, MASK, table.column(MASK).cast(pa.list_(pa.bool_()))),
    "columns in another order": lambda table: table.select([STARTS, MASK, IDS]),
    "one column more": lambda table: table.append_column("source", pa.array(["chats"] * table.num_rows)),
    "metadata of the writer": lambda table: table.replace_schema_metadata({"writer": "another"}),
}
MULTIPLES = {"plain": 1, "aligned": 8}


def _schema(kind: Any) -> Any:
    return pa.schema([(IDS, kind), (MASK, kind), (STARTS, kind)])


BEST_FIT = "best_fit_decreasing"
CHAT, PAIRS = {"kind": "chat"}, {"kind": "prompt_completion"}
UNBROKEN = (
    *(
        Variant(
            name=f"{rows}-{preprocessing.get('loss_mode')}-{algorithm}-{multiple}",
            rows=rows,
            preprocessing=preprocessing,
            packing={"algorithm": algorithm, "pad_seq_to_mult": multiple},
        )
        for rows, preprocessing, algorithm in (
            *(("chats", CHAT, algorithm) for algorithm in ("first_fit_decreasing", "first_fit_shuffle", BEST_FIT)),
            *(("turns", CHAT | {"loss_mode": mode}, BEST_FIT) for mode in ("assistant", "last_turn", "full")),
            *(("pairs", PAIRS | {"loss_mode": mode}, BEST_FIT) for mode in ("completion", "full")),
            ("ids", {"kind": "tokenized"}, BEST_FIT),
        )
        for multiple in (1, 8)
    ),
    Variant(name="multiple-of-topology", parallelism={"context_parallel_size": 2}),
    Variant(name="multiple-of-128", packing={"pad_seq_to_mult": 128}),
    Variant(name="few-sequences", packing={"max_sequences_per_pack": 3, "pad_seq_to_mult": 8}),
    Variant(name="one-sequence", packing={"max_sequences_per_pack": 1}),
    Variant(name="short-sequences", packing={"max_sequence_length": 64}),
    Variant(name="padded-boundaries", packing={"pad_cu_seqlens": True, "pad_seq_to_mult": 8}),
    Variant(name="cut", preprocessing=CHAT | {"over_long": "truncate"}, packing={"pad_seq_to_mult": 8}),
    Variant(name="cut-pairs", rows="pairs", preprocessing=PAIRS | {"over_long": "truncate"}),
    Variant(name="begins-with-bos", rows="pairs", preprocessing=PAIRS | {"add_bos": True}),
    Variant(name="control-tokens-trained", preprocessing=CHAT | {"masks_control_tokens": False}),
    Variant(name="validation-fraction", has_validation=False, data={"validation_fraction": 0.2}),
    Variant(name="no-validation", has_validation=False),
)


def _by_name(item: Mutation | Variant) -> str:
    return item.name


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with inputs of every kind."""
    return write_inputs(tmp_path_factory.mktemp("inputs"))


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory: pytest.TempPathFactory, inputs: Path, chatml_tokenizer: Path) -> Path:
    """Return a folder with the artifacts of `BASES`, each of three training shards and one of validation."""
    folder = tmp_path_factory.mktemp("artifacts")
    for variant in BASES:
        built = build_variant(variant, folder, inputs=inputs, tokenizer=chatml_tokenizer)
        manifest = read_manifest(built)
        shards = [shard["path"] for split in manifest["splits"] for shard in split["shards"]]
        assert shards[1:] == [mutations.SHARD, mutations.OTHER_SHARD, mutations.VALIDATION_SHARD]
        assert [split["drops"] for split in manifest["splits"]] == [{"over_long": 1}, {}]
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


@pytest.mark.parametrize("variant", UNBROKEN, ids=_by_name)
def test_sound_artifact_has_no_finding(variant: Variant, tmp_path: Path, inputs: Path, chatml_tokenizer: Path) -> None:
    folder = build_variant(variant, tmp_path, inputs=inputs, tokenizer=chatml_tokenizer)

    report = bridgepack.check(folder)

    assert report.findings == ()
    assert report.num_sound_rows == report.num_rows > 0


@pytest.mark.parametrize("base", BASES, ids=_by_name)
def test_unbroken_base_has_no_finding_with_any_option(base: Variant, artifacts: Path, tmp_path: Path) -> None:
    manifest = read_manifest(artifacts / base.name)
    padded = {"padded_vocab_size": 512}
    options: list[dict[str, Any]] = [{}, {"max_examples": 1}, {"given": padded}]
    folder = shutil.copytree(artifacts / base.name, tmp_path / "without-manifest")
    (folder / "manifest.json").unlink()
    facts = {"eos_token_id": 2, "vocab_size": 400, "loss_mode": "assistant"}
    facts |= {name: manifest[name] for name in ("packed_sequence_size", "pad_seq_to_mult")}

    assert [bridgepack.check(artifacts / base.name, **option).findings for option in options] == [()] * len(options)
    with pytest.raises(ArtifactError, match=r"has no manifest\.json, but"):
        bridgepack.check(folder)
    assert bridgepack.check(folder, given=facts | padded).findings == ()


def test_several_processes_find_the_same(
    artifacts: Path, mutated: Callable[[Mutation], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "BYTES_PER_WORKER", 1)
    broken = mutated(NAMED["masks_not_rolled"])

    for folder, has_errors in ((artifacts / "aligned", False), (broken, True)):
        one, three = (bridgepack.check(folder, num_workers=num_workers) for num_workers in (1, 3))
        assert one == three
        assert one.has_errors == has_errors


def test_harmless_changes_of_how_rows_are_stored_have_no_finding(artifacts: Path, tmp_path: Path) -> None:
    for name, change in HARMLESS.items():
        folder = shutil.copytree(artifacts / "aligned", tmp_path / name)
        rewrite_table(folder, change)
        assert bridgepack.check(folder).findings == (), name


@pytest.mark.parametrize("mutation", REPORTED, ids=_by_name)
def test_mutation_is_reported(mutation: Mutation, mutated: Callable[[Mutation], Path]) -> None:
    report = bridgepack.check(mutated(mutation), given=mutation.given)

    codes = _assert_as_documented(mutation, report)
    assert not (mutation.fits_manifest and PROMISES & codes)


@pytest.mark.parametrize("mutation", SEEN_IN_ROWS, ids=_by_name)
def test_mutation_is_reported_without_a_manifest(
    mutation: Mutation, mutated: Callable[[Mutation], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their shards can be read, so none is opened in a process first, as those of sound artifacts are above."""
    monkeypatch.setattr(checking, "why_not_openable", lambda _: {})
    folder = mutated(mutation)
    (folder / "manifest.json").unlink()
    given = {"packed_sequence_size": PACKED_SEQUENCE_SIZE, "pad_seq_to_mult": MULTIPLES[mutation.base]}

    report = bridgepack.check(folder, given={"eos_token_id": 2, "vocab_size": 400, **given, **mutation.given})

    _assert_as_documented(mutation, report)


@pytest.mark.parametrize("mutation", UNREADABLE, ids=_by_name)
def test_manifest_that_cannot_be_read_is_an_error(mutation: Mutation, mutated: Callable[[Mutation], Path]) -> None:
    folder = mutated(mutation)

    with pytest.raises(ArtifactError) as caught:
        bridgepack.check(folder)

    assert mutation.message in str(caught.value)
    assert "manifest.json" in str(caught.value)


def _assert_as_documented(mutation: Mutation, report: CheckReport) -> set[str]:
    """Assert that its rules report a mutation, as severe as they are, and where; return all codes of the report."""
    for code in mutation.codes:
        rule = named_rule(code)
        assert rule.severity in (Severity.ERROR, Severity.WARNING)
        assert {finding.severity for finding in report.findings if finding.code == code} == {rule.severity}
    first = [finding for finding in report.findings if finding.code == mutation.codes[0]]
    places = [place for finding in first for place in finding.examples]
    assert any(mutation.where in place for place in places), places
    return {finding.code for finding in report.findings}
