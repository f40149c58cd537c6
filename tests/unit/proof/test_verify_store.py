"""Verifications of a tiny artifact from stored tokens: sources may be gone, and broken tokens are said."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from bridgepack.errors import StoreError
from bridgepack.proof.verify.records import VerifyReport
from bridgepack.proof.verify.verify import VerifyOptions, verify_artifact
from tests.support.traced_artifacts import build_traced, change_shard, restate


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return an artifact whose sources and tokenizer are gone."""
    shutil.copytree(chatml_tokenizer, tmp_path / "tokenizer")
    folder = build_traced(tmp_path, tmp_path / "tokenizer")
    shutil.rmtree(tmp_path / "tokenizer")
    (tmp_path / "rows.jsonl").unlink()
    return folder


def _verified(artifact: Path, num_packs: int | None = 6, **options: Any) -> VerifyReport:
    return verify_artifact(artifact, VerifyOptions(num_packs=num_packs, **{"origin": "store", **options}))


def _outcomes(report: VerifyReport) -> dict[str, str]:
    return {check.name: check.outcome for check in report.checks if check.outcome != "same"}


def _store(artifact: Path) -> Path:
    return artifact.parent / ".bridgepack" / "tokens"


def test_store_needs_no_sources_and_keeps_no_trace(artifact: Path) -> None:
    before = sorted((_store(artifact) / "builds").iterdir())
    for num_packs in (6, None):
        report = _verified(artifact, num_packs)
        assert (report.outcome, report.origin, report.num_packs_compared) == ("same", "store", 6), report.checks
    assert sorted((_store(artifact) / "builds").iterdir()) == before


def test_gone_sources_point_at_the_store(artifact: Path) -> None:
    report = _verified(artifact, origin="sources")

    assert report.outcome == "could not run"
    assert any("--from store needs no sources" in note for note in report.notes)


def test_one_flipped_token_is_found(artifact: Path) -> None:
    change_shard(artifact, 2, "input_ids", 3, 11)
    restate(artifact)
    report = _verified(artifact)
    first = report.differences[0]

    assert _outcomes(report) == {"packs": "differs"}
    assert (first.pack, first.in_artifact, first.causes) == (2, 11, ("artifact changed",))
    assert first.cause.startswith("the stored tokens have their checksums")


def test_broken_and_missing_tokens_could_not_be_compared(artifact: Path) -> None:
    (path,) = _store(artifact).rglob("*.tokens")
    content = bytearray(path.read_bytes())
    content[64] ^= 1
    path.write_bytes(content)
    broken = _verified(artifact)
    path.unlink()
    missing = _verified(artifact)

    assert (broken.outcome, missing.outcome) == ("could not run", "could not run")
    assert "its checksum does not match" in broken.checks[-1].detail
    assert "token store" in _outcomes(missing)
    assert _verified(artifact, None).outcome == "could not run"


def test_store_that_is_none_or_knows_nothing(artifact: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        _verified(artifact, store=artifact.parent / "nowhere")

    for record in (_store(artifact) / "builds").iterdir():
        record.unlink()
    assert _outcomes(_verified(artifact)) == {"token store": "could not run", "stored tokens": "could not run"}
