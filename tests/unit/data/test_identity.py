"""What changes a fingerprint, what does not, and what the code's digest sees."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data import identity as fingerprint_module
from bridgepack.data.build import planned_build
from bridgepack.data.identity import code_digest, source_digest, store_key, tokenization_identity
from bridgepack.data.results import BuildOptions
from bridgepack.data.templates.facts import TemplateFacts
from bridgepack.data.templates.identity import identity_of
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.errors import DataError
from tests.support.small_builds import AS_HOST, tokenized_recipe, tokenized_row, with_changes, write_json_lines

PAIR = {"kind": "prompt_completion", "prompt": "{prompt}", "completion": "{completion}"}
CHATS = {"kind": "chat", "messages": [{"from_column": "messages"}]}
ROWS = [tokenized_row(5, 6, 7), tokenized_row(8, 9)]


def _fingerprint(recipe: SFTRecipe) -> str:
    with planned_build(recipe, options=BuildOptions(num_workers=0)) as plan:
        return plan.spec.fingerprint


@pytest.fixture
def recipe(tmp_path: Path, chatml_tokenizer: Path, monkeypatch: pytest.MonkeyPatch) -> SFTRecipe:
    """Return a recipe whose data and tokenizer lie in the current folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(chatml_tokenizer, "tokenizer")
    write_json_lines(Path("data/a.jsonl"), ROWS)
    write_json_lines(Path("data/b.jsonl"), ROWS[:1])
    template = Path("tokenizer/chat_template.jinja").read_text()
    Path("same.jinja").write_text(template)
    Path("other.jinja").write_text(template + "{# strftime_now #}{{ a }}")
    return tokenized_recipe("data", Path("tokenizer"), packing__packed_sequence_size=32)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "other"},
        {"batch__global_batch_size": 64},
        {"packing__pad_cu_seqlens": True},
        {f"parallelism__{name}_model_parallel_size": 4 for name in ("pipeline", "expert", "tensor")},
        {"data__train": ["data/a.jsonl", "data/b.jsonl"]},
        {"data__train": "data/*.jsonl"},
        {"data__on_bad_row": "error"},
        {"tokenizer__chat_template": "same.jinja"},
    ],
)
def test_what_changes_no_row_changes_nothing(recipe: SFTRecipe, changes: dict[str, Any]) -> None:
    assert _fingerprint(with_changes(recipe, changes)) == _fingerprint(recipe)


@pytest.mark.parametrize(
    "changes",
    [
        {"packing__seed": 7},
        {"packing__algorithm": "first_fit_shuffle"},
        {"packing__packed_sequence_size": 64},
        {"packing__max_sequence_length": 8},
        {"packing__max_sequences_per_pack": 2},
        {"packing__pad_seq_to_mult": 2},
        {"parallelism__context_parallel_size": 2},
        {"preprocessing__over_long": "truncate"},
        {"preprocessing__kind": "prompt_completion", "data__layout": PAIR},
        {"data__role_aliases": {"bard": "assistant"}},
        {"data__validation_fraction": 0.5},
        {"data__validation": "data/b.jsonl"},
        {"data__train": "data/a.jsonl"},
        {"data__train": ["data/b.jsonl", "data/a.jsonl"]},
        {"data__train": ["data", "data/a.jsonl"]},
        {"tokenizer__chat_template": "other.jinja"},
    ],
)
def test_what_can_change_a_row_changes_it(recipe: SFTRecipe, changes: dict[str, Any]) -> None:
    assert _fingerprint(with_changes(recipe, changes)) != _fingerprint(recipe)


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        *(("tokenizer", item) for item in ({"chat_template_kwargs": {"a": 1}}, {"template_date": "2025-06-30"})),
        *(("preprocessing", {name: "mask"}) for name in ("message_weights", "reasoning_loss")),
        *(("preprocessing", item) for item in ({"tool_arguments": "object"}, {"content_parts": "join_text"})),
        *(("preprocessing", {name: value}) for name, value in AS_HOST.items()),
        ("data", {"layout": {"kind": "chat", "messages": [{"from_column": "turns"}]}}),
    ],
)
def test_settings_of_chats_count_for_packs_and_for_stored_tokens(
    recipe: SFTRecipe, section: str, setting: dict[str, Any]
) -> None:
    plain = recipe.override(
        {"preprocessing": {"kind": "chat"}, "tokenizer.chat_template": "other.jinja", "data.layout": CHATS}
    )
    changed = with_changes(plain, {f"{section}__{name}": value for name, value in setting.items()})

    assert _fingerprint(changed) != _fingerprint(plain)
    identities = []
    for item in (plain, changed):
        tokenizer = load_tokenizer(item.tokenizer)
        identities.append(identity_of(item, tokenizer, TemplateFacts.of_recipe(item, tokenizer)))
    keys = {
        store_key(tokenization_identity(item, identity, "tokenizers"))
        for item, identity in zip((plain, changed), identities, strict=True)
    }
    assert len(keys) == 2


def test_multiple_counts_however_it_came_about(recipe: SFTRecipe) -> None:
    by_topology = [
        {"parallelism__context_parallel_size": 2},
        {"parallelism__eval_context_parallel_size": 2},
        {"parallelism__tensor_model_parallel_size": 4, "parallelism__sequence_parallel": True},
    ]

    assert len({_fingerprint(with_changes(recipe, changes)) for changes in by_topology}) == 1


def test_place_of_data_and_tokenizer_changes_nothing(recipe: SFTRecipe) -> None:
    moved = with_changes(recipe, {"data__train": "moved", "tokenizer__name_or_path": "elsewhere"})
    before = _fingerprint(recipe)
    for old, new in (("data", "moved"), ("moved/a.jsonl", "moved/0.jsonl"), ("tokenizer", "elsewhere")):
        shutil.move(old, new)

    assert _fingerprint(moved) == before


def _append(name: str, text: str) -> Callable[[], object]:
    path = Path("tokenizer") / name
    return lambda: path.write_text((path.read_text() if path.exists() else "") + text)


@pytest.mark.parametrize(
    ("edit", "counts"),
    [
        (lambda: write_json_lines(Path("data/b.jsonl"), [tokenized_row(4, 6, 7)]), True),
        (lambda: Path("data/b.jsonl").unlink(), True),
        (lambda: Path("data/c.jsonl").write_text("\n"), True),
        (_append("chat_template.jinja", "{# changed #}"), True),
        *((_append(name, "\n"), True) for name in ("tokenizer_config.json", "tokenizer.json", "vocab.txt")),
        *((_append(name, "{}"), False) for name in ("README.md", "model.safetensors")),
        *((_append(name, "{}"), False) for name in ("config.json", "generation_config.json")),
    ],
)
def test_bytes_of_data_and_tokenizer_count(recipe: SFTRecipe, edit: Callable[[], object], counts: bool) -> None:
    before = _fingerprint(recipe)
    edit()

    assert (_fingerprint(recipe) != before) == counts


@pytest.mark.parametrize("name", fingerprint_module.library_versions())
def test_versions_of_libraries_count(recipe: SFTRecipe, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before, versions = _fingerprint(recipe), fingerprint_module.library_versions()
    assert len(versions) == 5
    monkeypatch.setattr(fingerprint_module, "library_versions", lambda: {**versions, name: "0"})

    assert _fingerprint(recipe) != before


def test_hub_data_set_counts_by_its_rows(recipe: SFTRecipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    whole, part = (
        {"data__train": {"dataset": str(tmp_path / "data"), "split": split}} for split in ("train", "train[:1]")
    )
    first = _fingerprint(with_changes(recipe, whole))
    shutil.rmtree(tmp_path / "cache")

    assert _fingerprint(with_changes(recipe, whole)) == first
    assert _fingerprint(with_changes(recipe, part)) != first


def test_a_change_anywhere_changes_the_digest(tmp_path: Path) -> None:
    package = tmp_path / "bridgepack"
    shutil.copytree(Path(bridgepack.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    digests = {source_digest(package)}
    assert digests == {code_digest()}
    modules = list({module.parent: module for module in package.rglob("*.py")}.values())
    for module in modules:
        with module.open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        digests.add(source_digest(package))

    (package / "geometry.py").rename(package / "config" / "geometry.py")
    digests.add(source_digest(package))

    assert len(digests) == len(modules) + 2
    assert any(len(module.relative_to(package).parts) > 2 for module in modules)


def test_a_folder_without_source_has_no_digest(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no Python files"):
        source_digest(tmp_path)
