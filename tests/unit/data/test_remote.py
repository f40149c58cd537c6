"""Packs in an object store are judged as on disk, also without a manifest; fsspec's store in memory stands for one."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import fsspec
import pytest

from bridgepack.data.reading import remote
from bridgepack.data.reading.remote import CloudPath, artifact_place
from tests.support.small_builds import Command, file_bytes, tokenized_recipe, tokenized_row
from tests.support.traced_artifacts import build_traced, write_source

GIVEN = ("--given", "packed_sequence_size=16")


@pytest.fixture(autouse=True)
def memory(monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    monkeypatch.setitem(remote.PACKAGES, "memory", "fsspec")
    filesystem = fsspec.filesystem("memory", use_listings_cache=False)
    yield filesystem
    filesystem.store.clear()


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory, chatml_tokenizer: Path) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("remote")
    held_out = write_source(folder / "held-out.jsonl", [tokenized_row(9, 5, 6, 7, 8, 2) for _ in range(12)])
    return file_bytes(build_traced(folder, chatml_tokenizer, data__validation=str(held_out)))


def _flipped(content: bytes) -> bytes:
    return content[:-20] + bytes([content[-20] ^ 0xFF]) + content[-19:]


@pytest.mark.parametrize(
    ("left_out", "codes"),
    [
        ((), (0, 0, 0)),
        (("manifest.json",), (2, 2, 0)),
        (("manifest.json", "plan/"), (0, 0, 0)),
        (("manifest.json", "plan/", "validation/", "bridge_metadata"), (0, 0, 0)),
        (("manifest.json", "plan/", "validation/", "training/"), (2, 2, 2)),
    ],
)
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_prefix_answers_as_a_folder(
    built: dict[str, bytes],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    memory: fsspec.AbstractFileSystem,
    command: Command,
    left_out: tuple[str, ...],
    codes: tuple[int, ...],
    is_damaged: bool,
) -> None:
    """An upload that was ended early leaves some files; the manifest is the last."""
    monkeypatch.chdir(tmp_path)
    for name, whole in built.items():
        if not name.startswith(left_out):
            content = _flipped(whole) if is_damaged and name.startswith("training/") else whole
            (tmp_path / "runs" / "packed" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "runs" / "packed" / name).write_bytes(content)
            memory.pipe(f"/runs/packed/{name}", content)

    answers = [
        [
            command("check", place),
            command("report", place, "--output", "report.html"),
            command("check", place, *GIVEN),
        ]
        for place in ("runs/packed", "memory://runs/packed")
    ]

    for here, there in zip(*answers, strict=True):
        assert there.code == here.code, there
        assert there.output.replace("memory://", "") == here.output
        assert there.errors.replace("memory://", "") == here.errors
    assert is_damaged or tuple(one.code for one in answers[0]) == codes


def test_what_only_a_disk_can_do_is_one_message(tmp_path: Path, memory: fsspec.AbstractFileSystem) -> None:
    memory.pipe("/runs/packed/training/a.parquet", b"x")
    place = artifact_place("memory://runs/packed")

    assert isinstance(place, CloudPath)
    with pytest.raises(OSError, match=r"object store, .*; copy it here: .*a.parquet"):
        shutil.copy(place / "training" / "a.parquet", tmp_path)
    assert [path.name for path in (place / "training").glob("*.parquet")] == ["a.parquet"]


def test_dry_run_refuses_where_the_build_cannot_write(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    memory: fsspec.AbstractFileSystem,
    command: Command,
    chatml_tokenizer: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    write_source(tmp_path / "a.jsonl", [tokenized_row(9, 5, 6, 7)])
    recipe = tokenized_recipe(tmp_path / "a.jsonl", chatml_tokenizer)
    (tmp_path / "r.yaml").write_text(recipe.model_dump_json(), encoding="utf-8")  # JSON is YAML
    (tmp_path / "file").touch()
    memory.pipe("/foreign/thesis.txt", b"x")
    memory.pipe("/other/manifest.json", b'{"fingerprint": "0123"}')
    build_to = ("build", "r.yaml", "--num-workers", "1", "--output")
    refused = {
        "memory://foreign": "--output is 'memory://foreign', which has files that are not an artifact: thesis.txt.",
        "memory://other": "--output is 'memory://other', which holds another artifact: its fingerprint is 0123;",
        "memory://new --store file": "the token store is 'file'; '",
        "file/new": "output is 'file/new'; '",
    }

    for options, message in refused.items():
        planned, built = (command(*build_to, *options.split(), *more) for more in (("--dry-run",), ()))
        assert planned == built
        assert (planned.code, planned.errors.startswith(f"error: {message}")) == (2, True), planned.errors
    planned = command(*build_to, "memory://new/place", "--dry-run")
    assert planned.code == 0
    assert planned.output.splitlines()[2] == "copy: memory://new/place"
    assert json.loads(command(*build_to, "memory://new", "--dry-run", "--json").output)["copy"] == "memory://new"
    assert not memory.exists("/new")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "file", "r.yaml"]
