"""A repack to another length of an artifact with conversations cut between exchanges has the bytes of a build."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.identity import library_versions
from bridgepack.data.reading import lines as line_blocks
from bridgepack.data.repack import repack_artifact
from bridgepack.data.results import BuildOptions, BuildResult, Kept
from bridgepack.data.sequences.loading import LoadedStage
from bridgepack.data.workplace import BuildInterrupted
from bridgepack.errors import ArtifactError
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.messages import mentions
from tests.support.thoughtful import said
from tests.zoo import exchanges
from tests.zoo import tokenizers as families
from tests.zoo.tokenizers import write_tokenizer

CUTS = ["truncate_history", "split_exchanges"]
SYSTEM = said("system", "answer in one line")


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("exchanges"), exchanges.FAMILIES["exchanges"])


def _conversation(number: int, num_exchanges: int) -> list[thoughtful.Message]:
    turns = [SYSTEM]
    for exchange in range(num_exchanges):
        turns += [said("user", f"ask {number} {exchange}"), said("assistant", "say " * (1 + number % 7))]
    return turns


#: Of 1 to 12 exchanges; one too long for any size used here, one with a turn behind the last answer, one without turns.
ROWS = [
    *(_conversation(number, 1 + number % 12) for number in range(60)),
    [SYSTEM, said("user", "x"), said("assistant", "long " * 400), said("user", "y"), said("assistant", "z")],
    [*_conversation(7, 9), said("user", "thanks")],
    [],
]


def _recipe(folder: Path, tokenizer: Path, action: str, rows: Any = ROWS, **changes: Any) -> SFTRecipe:
    source = thoughtful.write_rows(folder / "a.jsonl", rows)
    packing = {"packed_sequence_size": 128}
    recipe = small.small_recipe(source, tokenizer, preprocessing={"kind": "chat", "over_long": action}, packing=packing)
    return small.with_changes(recipe, changes)


def _repack(artifact: Path, output: Path, size: int, **options: Any) -> BuildResult:
    changes = {"packing.packed_sequence_size": size}
    given = {"num_workers": 0, **options}
    return repack_artifact(artifact, changes, output=output, options=BuildOptions(**given))


@pytest.mark.parametrize("action", CUTS)
@pytest.mark.parametrize("size", [96, 256])
def test_the_bytes_are_those_of_a_build(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, action: str, size: int
) -> None:
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 4000)
    more = {"data__validation_fraction": 0.2, "data__deduplicate": "exact"}
    recipe = _recipe(tmp_path, tokenizer, action, **more)
    built = small.build(recipe, tmp_path / "out").output
    fresh = small.build(
        recipe.override({"packing.packed_sequence_size": size}), tmp_path / "fresh", store=tmp_path / "other"
    )

    result = _repack(built, tmp_path / "again", size)

    assert small.file_bytes(tmp_path / "again") == small.file_bytes(tmp_path / "fresh")
    assert result.kept.num_ranges_tokenized == fresh.kept.num_ranges_tokenized > 2
    assert fresh.kept.num_rows_copied == 0
    assert 10 < result.kept.num_rows_copied < len(ROWS) - 20
    assert verify_artifact(result.output, VerifyOptions(num_packs=None)).outcome == "same"


@pytest.mark.parametrize("action", CUTS)
def test_only_rows_that_a_length_cuts_are_tokenised_again(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    short, long = _conversation(1, 2), _conversation(2, 12)
    recipe = _recipe(tmp_path, tokenizer, action, [short, long, short, []], data__on_bad_row="drop")
    built = small.build(recipe, tmp_path / "out").output
    seen: list[int] = []
    batches = LoadedStage.batches

    def watched(stage: LoadedStage, rows: Any, **limits: Any) -> Any:
        found = list(rows)
        seen.extend(row for row, _ in found)
        return batches(stage, found, **limits)

    monkeypatch.setattr(LoadedStage, "batches", watched)

    assert _repack(built, tmp_path / "again", 192).kept.num_rows_copied == 2
    assert seen == [2, 4]


def test_pieces_of_conversations_are_copied_as_well(tmp_path: Path, tokenizer: Path) -> None:
    """A row of several sequences is cut only if one of them is."""
    thinking = [
        [
            {**turn, "reasoning_content": "why"} if turn["role"] == "assistant" else turn
            for turn in _conversation(number, 1 + number)
        ]
        for number in range(12)
    ]
    split = {"preprocessing__split_conversations": "when_context_differs"}
    recipe = _recipe(tmp_path, tokenizer, "truncate_history", thinking, **split)
    built = small.build(recipe, tmp_path / "out").output
    longer = recipe.override({"packing.packed_sequence_size": 160})
    small.build(longer, tmp_path / "fresh", store=tmp_path / "other")

    result = _repack(built, tmp_path / "again", 160)

    assert small.file_bytes(tmp_path / "again") == small.file_bytes(tmp_path / "fresh")
    assert 1 < result.kept.num_rows_copied < 12


def test_what_nobody_reads_is_counted_as_by_a_build(tmp_path: Path, tokenizer: Path) -> None:
    """A template may refuse what one length leaves of a row; then the range is tokenised as a whole."""
    picky = write_tokenizer(
        tmp_path / "picky",
        families.Family(
            name="picky",
            template=exchanges.EXCHANGES.replace(
                "{%- for message in messages -%}",
                "{%- if messages | length == 5 -%}{{- raise_exception('five turns') -}}{%- endif -%}"
                "{%- for message in messages -%}",
                1,
            ),
        ),
    )
    rows = [{"messages": _conversation(1, number), "note": f"a note of {number} words"} for number in (1, 3, 6)]
    source = small.write_json_lines(tmp_path / "a.jsonl", rows)
    chat = {"kind": "chat", "over_long": "truncate_history"}
    recipe = small.small_recipe(source, picky, preprocessing=chat, packing={"packed_sequence_size": 256})
    built = small.build(recipe, tmp_path / "out")
    assert small.dropped(built.output) == []
    changed = {"packing.packed_sequence_size": 64}
    fresh = small.build(recipe.override(changed), tmp_path / "fresh", store=tmp_path / "other")
    assert [row for row, _ in small.dropped(fresh.output)] != []

    result = _repack(built.output, tmp_path / "again", 64)

    assert result.kept.num_rows_copied == 0
    assert small.file_bytes(tmp_path / "again") == small.file_bytes(tmp_path / "fresh")
    assert result.manifest.splits[0].unread


@pytest.mark.parametrize("action", CUTS)
def test_an_interrupted_repack_goes_on(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch, action: str
) -> None:
    monkeypatch.setattr(line_blocks, "MIN_BLOCK_BYTES", 4000)
    recipe = _recipe(tmp_path, tokenizer, action)
    built = small.build(recipe, tmp_path / "out").output
    small.build(recipe.override({"packing.packed_sequence_size": 256}), tmp_path / "fresh", store=tmp_path / "other")
    with monkeypatch.context() as patched:
        watch = Kept.add_range

        def interrupted(kept: Kept, result: Any) -> None:
            watch(kept, result)
            if kept.num_ranges_tokenized == 3:
                raise KeyboardInterrupt

        patched.setattr(Kept, "add_range", interrupted)
        with pytest.raises(BuildInterrupted, match="the tokens of 3 input ranges are in"):
            _repack(built, tmp_path / "again", 256)

    result = _repack(built, tmp_path / "again", 256)

    assert result.kept.num_ranges_found == 3
    assert small.file_bytes(tmp_path / "again") == small.file_bytes(tmp_path / "fresh")
    assert _repack(built, tmp_path / "again", 256).was_built_before


def _built(tmp_path: Path, tokenizer: Path) -> Path:
    recipe = _recipe(tmp_path, shutil.copytree(tokenizer, tmp_path / "tokenizer"), "truncate_history")
    return small.build(recipe, tmp_path / "out").output


def test_inputs_that_are_gone_or_changed_are_refused(tmp_path: Path, tokenizer: Path, command: small.Command) -> None:
    built, source = _built(tmp_path, tokenizer), tmp_path / "a.jsonl"
    shutil.move(source, tmp_path / "moved")
    set_size = ("--set", "packing.packed_sequence_size=256", "--output", tmp_path / "again")

    gone = command("repack", built, *set_size)
    shutil.copy(tmp_path / "moved", source)
    source.write_text(source.read_text().replace("ask 3 0", "ask 3 1"))
    changed = command("repack", built, *set_size)

    why = "repack to another packing.max_sequence_length reads the rows that preprocessing.over_long truncate_history "
    assert (gone.code, changed.code) == (2, 2)
    assert mentions(gone.errors, f"error: {why}", f"but: data.train is {str(source)!r}; ", "no such file")
    assert mentions(changed.errors, f"error: {why}", "but 1 of", "training files differ")
    assert f"was built from: {source}. Restore them, or use `bridgepack build`" in changed.errors
    assert not (tmp_path / "again").exists()
    assert [item.name for item in tmp_path.iterdir() if "again" in item.name] == []


def test_another_tokenizer_or_version_is_refused(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = _built(tmp_path, tokenizer)
    monkeypatch.setattr("bridgepack.data.build.library_versions", lambda: {**library_versions(), "transformers": "9.9"})
    with pytest.raises(ArtifactError, match=r"but transformers .* -> 9\.9 has changed since"):
        _repack(built, tmp_path / "again", 256)
    monkeypatch.undo()
    template = tmp_path / "tokenizer" / "chat_template.jinja"
    template.write_text(template.read_text() + "{# other #}")

    with pytest.raises(ArtifactError, match=r"but tokenizer\.name_or_path has changed since .*`bridgepack build`"):
        _repack(built, tmp_path / "again", 256)


def test_tokens_that_were_made_otherwise_are_not_copied(
    tmp_path: Path, tokenizer: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tokens of another version of bridgepack, for one."""
    recipe = _recipe(tmp_path, tokenizer, "truncate_history")
    with monkeypatch.context() as patched:
        patched.setattr("bridgepack.data.identity.code_digest", lambda: "another")
        built = small.build(recipe, tmp_path / "out").output

    assert _repack(built, tmp_path / "again", 256).kept.num_rows_copied == 0


def test_the_plan_says_that_inputs_are_read(tmp_path: Path, tokenizer: Path, command: small.Command) -> None:
    built = _built(tmp_path, tokenizer)

    texts = {
        setting: command("repack", built, "--dry-run", "--set", setting).output
        for setting in ("packing.packed_sequence_size=256", "packing.algorithm=sequential")
    }

    said_so = [setting for setting, text in texts.items() if "tokenising again the conversations" in text]
    assert said_so == ["packing.packed_sequence_size=256"]
    plan = command("repack", built, "--dry-run", "--json", "--set", said_so[0]).output
    assert json.loads(plan)["tokenises_again"] is True
    done = command("repack", built, "--set", said_so[0], "--output", tmp_path / "again").output
    assert mentions(done, "both lengths leave whole", "before; the others now")
