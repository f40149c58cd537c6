"""Inputs from a real object store give the bytes of a disk, and artifacts arrive there whole."""

import gzip
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.build import build_artifact
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.results import BuildOptions, BuildResult
from bridgepack.data.tasks import SilentProgress
from bridgepack.data.upload import Upload, _StoredObjects, upload_artifact
from bridgepack.errors import ArtifactError, ConfigError, DataError
from tests.support import small_builds as small
from tests.support.messages import mentions
from tests.support.object_store import running_object_store, s3_client, store_that_fails

pytestmark = pytest.mark.full

ROWS = [small.chat_row(f"question {index}", f"answer {index} " * (index % 40 + 1)) for index in range(3000)]
DATA_FILES = ("a.jsonl", "b.jsonl.gz", "c.parquet", "d.csv.gz")
FIRST, SECOND, THIRD = ROWS[:1000], ROWS[1000:2000], ROWS[2000:]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with running_object_store(tmp_path_factory.mktemp("swift")) as variables:
        yield variables


@pytest.fixture
def client(store: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, value in store.items():
        monkeypatch.setenv(name, value)
    return s3_client(store)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    small.write_json_lines(tmp_path / "data" / "a.jsonl", FIRST)
    lines = "".join(json.dumps(row) + "\n" for row in SECOND)
    (tmp_path / "data" / "b.jsonl.gz").write_bytes(gzip.compress(lines.encode(), mtime=0))
    pq.write_table(pa.Table.from_pylist(THIRD), tmp_path / "data" / "c.parquet", row_group_size=300)
    table = "prompt,completion\n" + "".join(f'"question\n{index}",answer\n' for index in range(500))
    (tmp_path / "data" / "d.csv.gz").write_bytes(gzip.compress(table.encode(), mtime=0))
    (tmp_path / "data" / "README.md").write_text("no rows")
    return tmp_path


def fill(client: Any, bucket: str, folder: Path) -> None:
    client.create_bucket(Bucket=bucket)
    for name, content in small.file_bytes(folder).items():
        client.put_object(Bucket=bucket, Key=f"sets/{name}", Body=content)


def recipe_of(train: str, tokenizer: Path) -> SFTRecipe:
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 1024}
    return small.tokenized_recipe(train, tokenizer, **changes)


def upload_of(recipe: SFTRecipe, url: str, *, replaces: bool = False) -> BuildResult:
    return build_artifact(recipe, output=url, options=BuildOptions(num_workers=0, replaces=replaces))


def objects(client: Any, bucket: str, prefix: str) -> dict[str, bytes]:
    found = client.list_objects_v2(Bucket=bucket, Prefix=prefix).get("Contents", [])
    return {
        item["Key"].removeprefix(prefix): client.get_object(Bucket=bucket, Key=item["Key"])["Body"].read()
        for item in found
    }


def test_inputs_of_a_prefix(project: Path, chatml_tokenizer: Path, store: dict[str, str], client: Any) -> None:
    fill(client, "inputs", project / "data")
    small.build(recipe_of("data", chatml_tokenizer), project / "disk")

    small.write_recipe(project / "recipe.yaml", recipe_of("s3://inputs/sets", chatml_tokenizer))
    arguments = ("--output", "cloud", "--num-workers", "2", "--store", "another", "--json")
    result = small.run_cli(project, "build", "recipe.yaml", *arguments, **store)

    assert result.returncode == 0, result.stderr
    inputs = json.loads(result.stdout)["splits"][0]["inputs"]
    assert [item["path"] for item in inputs] == [f"s3://inputs/sets/{name}" for name in DATA_FILES]
    assert small.data_bytes(project / "cloud") == small.data_bytes(project / "disk")


def test_an_artifact_is_written_whole_and_sent_where_missing(
    project: Path, chatml_tokenizer: Path, client: Any
) -> None:
    client.create_bucket(Bucket="outputs")
    recipe, url = recipe_of("data/a.jsonl", chatml_tokenizer), "s3://outputs/runs/first"

    first = upload_of(recipe, url)
    local = small.file_bytes(first.output)
    assert objects(client, "outputs", "runs/first/") == local
    num_bytes = sum(map(len, local.values()))
    assert first.upload == Upload(url=url, num_sent=len(local), num_files=len(local), num_bytes=num_bytes)
    assert upload_of(recipe, url).upload == replace(first.upload, num_sent=0)

    shard = next(name for name in local if name.startswith("training/"))
    client.put_object(Bucket="outputs", Key=f"runs/first/{shard}", Body=bytes(len(local[shard])))
    client.delete_object(Bucket="outputs", Key="runs/first/manifest.json")
    assert upload_of(recipe, url).upload == replace(first.upload, num_sent=2)
    assert objects(client, "outputs", "runs/first/") == local

    changed = small.with_changes(recipe, {"packing__seed": 7})
    with pytest.raises(ArtifactError, match=r"holds another artifact: .*fingerprint is .*--replace"):
        upload_of(changed, url)
    assert objects(client, "outputs", "runs/first/") == local
    other = upload_of(changed, url, replaces=True)
    assert objects(client, "outputs", "runs/first/") == small.file_bytes(other.output) != local


@pytest.mark.parametrize("is_late", [False, True])
def test_one_of_two_builds_to_a_new_prefix_is_refused(
    project: Path, chatml_tokenizer: Path, client: Any, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    """The other writes its manifest while ours is sent, or right before; both began when nothing was there."""
    bucket = f"both-{is_late}".lower()
    client.create_bucket(Bucket=bucket)
    small.write_json_lines(project / "few.jsonl", ROWS[:20])
    recipe, url = recipe_of("few.jsonl", chatml_tokenizer), f"s3://{bucket}/packed"

    def write_other(objects: _StoredObjects, path: Path, name: str, **options: Any) -> bool:
        if name == "manifest.json" and not is_late:
            client.put_object(Bucket=bucket, Key=f"packed/{name}", Body=b"{}")
        sent = send(objects, path, name, **options)
        if name.startswith("training/") and is_late:
            client.put_object(Bucket=bucket, Key=f"packed/{name}", Body=b"of another build")
        return sent

    send = _StoredObjects.send
    monkeypatch.setattr(_StoredObjects, "send", write_other)
    with pytest.raises(ArtifactError) as raised:
        upload_of(recipe, url)

    assert mentions(str(raised.value), url, "another build", "--replace", "training/" if is_late else "manifest.json")


def test_a_large_file_is_sent_in_parts_and_verified(project: Path, client: Any) -> None:
    client.create_bucket(Bucket="large")
    content = bytes(range(256)) * (105 << 12)
    folder = project / "artifact"
    folder.mkdir()
    (folder / "bridge_metadata.json").write_bytes(content)
    (folder / "manifest.json").write_text("{}")

    assert upload_artifact(folder, "s3://large/a", SilentProgress()).num_sent == 2
    assert upload_artifact(folder, "s3://large/a", SilentProgress()).num_sent == 0
    assert client.head_object(Bucket="large", Key="a/bridge_metadata.json")["ContentLength"] == len(content)


def test_what_cannot_be_read_is_one_message(project: Path, client: Any) -> None:
    client.create_bucket(Bucket="others")
    client.put_object(Bucket="others", Key="place/notes.txt", Body=b"mine")
    client.put_object(Bucket="others", Key="place/data-00000.arrow", Body=b"mine")
    for name in ("train-0.jsonl", "test.csv"):
        client.put_object(Bucket="others", Key=f"splits/{name}", Body=b"a\n")
    cases = [
        ("s3://nowhere/a.jsonl", "s3://nowhere/a.jsonl"),
        ("s3://others/none.jsonl", "no such object or prefix"),
        ("s3://others/x*.jsonl", "matches no object"),
        ("s3://others/place/notes.txt", "is of an unknown kind"),
        ("s3://others/place/data-00000.arrow", "must be on a local disk"),
        ("s3://others/splits", "with files of several splits (test: test.csv; train: train-0.jsonl)"),
        ("ftp://others/place", "allowed: a path, or a URL with s3"),
        ("s3://", "Give only bucket and key"),
        ("gs://others/place", "pip install gcsfs"),
    ]
    for train, expected in cases:
        with pytest.raises((ConfigError, DataError), match=re.escape(expected)):
            find_inputs((train,), "data.train", "training", project)
    assert cases
    assert len(find_inputs(("s3://others/splits/*",), "data.train", "training", project)) == 2


def test_a_place_with_other_things_or_without_rights_is_refused_before_anything_is_built(
    project: Path, chatml_tokenizer: Path, store: dict[str, str], client: Any
) -> None:
    client.create_bucket(Bucket="mine")
    client.put_object(Bucket="mine", Key="place/notes.txt", Body=b"mine")
    recipe = recipe_of("data/a.jsonl", chatml_tokenizer)
    with pytest.raises(ArtifactError, match=r"not an artifact: notes\.txt"):
        upload_of(recipe, "s3://mine/place")
    assert not (project / "artifacts").exists()

    small.write_recipe(project / "recipe.yaml", recipe)
    wrong = {**store, "AWS_SECRET_ACCESS_KEY": "wrong"}
    result = small.run_cli(project, "build", "recipe.yaml", "--output", "s3://mine/new", **wrong)
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("error: --output is 's3://mine/new'")
    assert "signature" in result.stderr
    assert not (project / "artifacts").exists()
    with pytest.raises(ArtifactError, match=r"'s3://nothere/new'; .*no bucket 'nothere'"):
        upload_of(recipe, "s3://nothere/new")
    assert not (project / "artifacts").exists()


def test_reading_without_rights_or_a_store_is_one_message(
    project: Path, chatml_tokenizer: Path, store: dict[str, str], client: Any, monkeypatch: pytest.MonkeyPatch,
    command: small.Command,
) -> None:  # fmt: skip
    """A build in a process of its own, whose libraries would say something as it ends; the others in this one."""
    import s3fs

    fill(client, "private", project / "data")
    small.write_recipe(project / "recipe.yaml", recipe_of("s3://private/sets/a.jsonl", chatml_tokenizer))
    wrong_key = {"AWS_SECRET_ACCESS_KEY": "wrong"}
    no_store = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_MAX_ATTEMPTS": "1"}
    for reason, fault, *arguments in (
        ("signature", wrong_key, "build", "recipe.yaml", "--output", "packed"),
        ("signature", wrong_key, "check", "s3://private/packed"),
        ("connect", no_store, "preview", "recipe.yaml"),
        ("connect", no_store, "inspect", "s3://private/packed"),
    ):
        s3fs.S3FileSystem.clear_instance_cache()
        with monkeypatch.context() as patch:
            for name, value in {**store, **fault}.items():
                patch.setenv(name, value)
            if arguments[0] == "build":
                done = small.run_cli(project, *arguments)
                code, output, errors = done.returncode, done.stdout, done.stderr
            else:
                refused = command(*arguments)
                code, output, errors = refused.code, refused.output, refused.errors
        assert (code, output) == (2, ""), (arguments, errors)
        assert errors.startswith("error: "), errors
        assert reason in errors, errors
        assert "s3://private" in errors, errors
        assert len(errors.splitlines()) == 1, errors
    s3fs.S3FileSystem.clear_instance_cache()
    assert not (project / "packed").exists()


def test_msc_urls_are_read(project: Path, chatml_tokenizer: Path) -> None:
    small.build(recipe_of("data", chatml_tokenizer), project / "disk")
    recipe = recipe_of(f"msc://__filesystem__{project / 'data'}", chatml_tokenizer)
    small.build(recipe, project / "msc", store=project / "another")
    assert small.data_bytes(project / "msc") == small.data_bytes(project / "disk")


def test_artifact_is_read_where_it_lies(
    client: Any, project: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch, command: small.Command
) -> None:
    client.create_bucket(Bucket="read")
    recipe = recipe_of(str(project / "data"), chatml_tokenizer)
    built = upload_of(recipe, "s3://read/packed").output
    monkeypatch.setattr("bridgepack.data.artifact.checking.BYTES_PER_WORKER", 1 << 16)
    here, there = (
        json.loads(command("check", place, "--json", "--num-workers", "2").output)
        for place in (built, "s3://read/packed")
    )
    assert {**there, "target": ""} == {**here, "target": ""}
    assert there["summary"]["num_rows"] > 0
    assert command("check", "s3://read/packed").code == 0
    for arguments in ((), ("--pack", "3")):
        shown = [command("inspect", place, *arguments).output for place in (built, "s3://read/packed/")]
        assert shown[1].replace("s3://read/packed", str(built)) == shown[0] != ""
    for words in (("--step", "1", "--rank", "0", "--world-size", "1"), ("--source", "a.jsonl:7"), ("--pack", "2")):
        here, there = (command("trace", place, *words, "--json") for place in (built, "s3://read/packed"))
        assert (there.code, there.errors) == (here.code, here.errors) == (0, "")
        assert there.output.replace("s3://read/packed", str(built)) == here.output
    verified = command("prove", "sources", "s3://read/packed", "--all", "--json")
    assert (verified.code, json.loads(verified.output)["outcome"]) == (0, "same"), verified.output
    _assert_compared_judged_and_drawn(command, project, built, recipe)

    (shard,) = (built / "training").glob("*.parquet")
    client.put_object(Bucket="read", Key=f"packed/training/{shard.name}", Body=b"x" * shard.stat().st_size)
    client.put_object(Bucket="read", Key="packed/training/more.parquet", Body=b"x")
    shard.write_bytes(b"x" * shard.stat().st_size)
    (shard.parent / "more.parquet").write_bytes(b"x")
    broken = [command("check", place) for place in ("s3://read/packed", built)]
    assert (broken[0].code, broken[0].output.replace("s3://read/packed", str(built))) == (1, broken[1].output)
    assert "training/more.parquet" in broken[0].output
    refused = command("inspect", "s3://read/packed")
    assert refused.code == 2
    assert "changed after the build: " in refused.errors


def _assert_compared_judged_and_drawn(command: small.Command, project: Path, built: Path, recipe: SFTRecipe) -> None:
    """A URL answers `diff`, `check --artifact` and `report` as the folder does, from Python as well."""
    url, here = "s3://read/packed", "read/packed"
    shutil.copytree(built, project / here)
    compared = command("diff", here, url, "--html", "diff.html")
    assert (compared.code, compared.errors) == (0, "")
    assert "the same packs" in compared.output
    assert url in (project / "diff.html").read_text()
    small.write_recipe(project / "recipe.yaml", recipe)
    judged = [
        json.loads(command("check", "recipe.yaml", "--artifact", place, "--no-files", "--json").output)
        for place in (here, url)
    ]
    assert judged[0]["summary"]["num_errors"] == judged[1]["summary"]["num_errors"]
    assert [one["code"] for one in judged[0]["findings"]] == [one["code"] for one in judged[1]["findings"]]
    assert bridgepack.check(recipe, artifact=url).num_rows == judged[0]["summary"]["num_rows"] > 0
    refused = command("report", url)
    assert (refused.code, refused.errors.count("\n")) == (2, 1)
    assert "--output is not given; a report cannot be written to 's3://read/packed'" in refused.errors
    pages = []
    for place in (here, url):
        drawn = command("report", place, "--output", "page.html")
        assert drawn.code == 0, drawn.errors
        pages.append((project / "page.html").read_text().replace(url, here))
    assert pages[0] == pages[1]


def test_no_artifact_at_a_url_is_one_message(client: Any, command: small.Command) -> None:
    client.create_bucket(Bucket="empty")
    messages = {
        "s3://nothere/packed": "cannot be read: ",
        "s3://empty/packed": "has no objects below it",
        "ftp://host/packed": "allowed: a path, or a URL with s3",
        "s3://": "Give only bucket and key",
    }
    others = [
        ("inspect", "s3://"),
        ("prove sources", "s3://empty/packed"),
        ("report", "s3://"),
        ("diff here", "s3://"),
    ]
    for name, url in [*(("check", url) for url in messages), *others]:
        refused = command(*name.split(), url)
        assert (refused.code, refused.errors.count("\n")) == (2, 1)
        assert messages[url] in refused.errors


def test_a_store_that_does_not_answer_says_nothing_of_the_artifact(
    client: Any, project: Path, chatml_tokenizer: Path, store: dict[str, str], monkeypatch: pytest.MonkeyPatch,
    command: small.Command,
) -> None:  # fmt: skip
    import s3fs

    place = "s3://down/packed"
    client.create_bucket(Bucket="down")
    small.write_json_lines(project / "few.jsonl", ROWS[:20])
    upload_of(recipe_of("few.jsonl", chatml_tokenizer), place)
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 2)
    every = ("check", "inspect --pack 1", "prove sources", "report --output a.html")
    cases = [("manifest.json", False, every), ("manifest.json", True, every[1:2]), (".parquet", False, every[:3:2])]
    for wanted, is_cut, commands in cases:
        with store_that_fails(store["AWS_ENDPOINT_URL"], wanted, is_cut=is_cut) as endpoint:
            monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
            s3fs.S3FileSystem.clear_instance_cache()
            for words in commands:
                refused = command(*words.split(), place)
                assert (refused.code, refused.output, refused.errors.count("\n")) == (2, "", 1), (wanted, refused)
                assert mentions(refused.errors, place, "Nothing is known")
    s3fs.S3FileSystem.clear_instance_cache()
    assert not (project / "a.html").exists()
