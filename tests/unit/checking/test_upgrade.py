"""`check --bridge-version` of a later release says what an upgrade changes for a recipe and its packs."""

import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from bridgepack import api, host
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.checking.upgrade import HABITS
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host import V06, V07, HostRelease
from bridgepack.records import Upgrade, UpgradeChange
from bridgepack.reporting.formats import render_report
from tests.support.small_builds import build, conversations_recipe, small_recipe, write_conversations

DENSE = {"name": "llama32_1b_sft_1gpu_h100_bf16_config"}
EXPERTS = {"name": "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"}
IN_BATCH = {"packing": {"mode": "in_batch", "packed_sequence_size": 64}}


def upgrade_of(target: Any, version: str = "0.7.0", **options: Any) -> Upgrade | None:
    return check_target(target, CheckOptions(bridge_version=version, looks_at_files=False, **options)).upgrade


def changes_of(target: Any, version: str = "0.7.0", **options: Any) -> dict[str, UpgradeChange]:
    upgrade = upgrade_of(target, version, **options)
    assert upgrade is not None
    return {change.what: change for change in upgrade.changes}


def recipe(**sections: Any) -> SFTRecipe:
    return small_recipe("train.jsonl", "tokenizer", **sections)


def test_only_a_later_release_than_the_runs_own_is_an_upgrade() -> None:
    assert upgrade_of(recipe(), "0.6.2") is None
    assert upgrade_of(recipe(bridge_version="0.7.0")) is None
    assert upgrade_of(recipe(bridge_version="0.7.0"), "0.6.2") is None
    assert check_target(recipe(bridge_version="0.7.0"), CheckOptions(looks_at_files=False)).upgrade is None
    found = upgrade_of(recipe())
    assert found is not None
    assert (found.before, found.after) == ("0.6", "0.7")


def test_findings_that_go_and_habits_that_concern_the_model_are_told() -> None:
    dense, experts = changes_of(recipe(model=DENSE)), changes_of(recipe(model=EXPERTS))
    gone = experts["BP806 router-counts-padding"]
    assert (gone.kind, gone.after) == ("finding", "")
    assert gone.before.startswith("advice at bridge_overrides.model.moe_")
    assert "BP806 router-counts-padding" not in dense
    assert [title for title in experts if title.startswith("padding in packs ")]
    assert not [title for title in dense if title.startswith("padding in packs ")]
    ignored = recipe(model=EXPERTS, ignore={"BP806": "we know"})
    assert "BP806 router-counts-padding" not in changes_of(ignored)


@pytest.fixture(scope="module")
def packs(tmp_path_factory: pytest.TempPathFactory) -> tuple[SFTRecipe, Path]:
    """Return a recipe whose rows train labels after an EOS, and its packs."""
    folder = write_conversations(tmp_path_factory.mktemp("run"), limit=60)
    made = conversations_recipe(
        folder,
        packing={"packed_sequence_size": 256, "max_sequence_length": 256},
        preprocessing={"kind": "chat", "over_long": "truncate", "labels_after_eos": "train"},
        batch={"global_batch_size": 1},
    )
    build(made, folder / "packs")
    return made, folder / "packs"


def test_labels_that_one_release_trains_are_counted(packs: tuple[SFTRecipe, Path]) -> None:
    made, folder = packs
    labels = changes_of(made, artifact=folder)["labels after an EOS"]
    manifest = json.loads((folder / "manifest.json").read_text())
    stated = sum(split["statistics"]["num_trained_tokens"] for split in manifest["splits"])
    assert labels.after == f"trains {stated:,}"
    fewer = int(labels.before.removeprefix("trains ").removesuffix(" labels of the packs").replace(",", ""))
    assert 0 < fewer < stated
    without = changes_of(made)["labels after an EOS"]
    assert (without.before, without.after[:7]) == ("not trained", "trained")


def test_the_text_and_the_json_have_a_part_of_its_own() -> None:
    report = check_target(recipe(model=EXPERTS), CheckOptions(bridge_version="0.7.0", looks_at_files=False))
    assert report.upgrade is not None
    text = render_report(report)
    assert f"\n0.6 -> 0.7: {len(report.upgrade.changes)} changes for this" in f"\n{text}"
    assert "  finding   BP806 router-counts-padding: no longer " in text
    values = json.loads(render_report(report, "json"))["upgrade"]
    assert (values["before"], values["after"], len(values["changes"])) == ("0.6", "0.7", len(report.upgrade.changes))
    assert (
        json.loads(render_report(check_target(recipe(), CheckOptions(looks_at_files=False)), "json"))["upgrade"] is None
    )


def test_a_llama_cannot_load_the_checkpoints_that_it_saves() -> None:
    what = "checkpoints that the release saves of a model that is built from parts, such as Llama"
    found = changes_of(recipe(model=DENSE))[what]

    assert (found.before, found.after[:22]) == ("can be loaded again", "cannot be loaded again")
    assert what not in changes_of(recipe(model=EXPERTS))


def test_completions_without_a_trained_token_concern_runs_whose_rows_the_host_makes() -> None:
    completions = {"kind": "prompt_completion"}
    what = "completions without a trained token, such as one that is cut away"
    by_host = {"mode": "none", "packed_sequence_size": 16}
    found = changes_of(recipe(preprocessing=completions, packing=by_host, model=DENSE))[what]

    assert (found.kind, found.before[:15], found.after[:12]) == ("habit", "reach the model", "stop the run")
    whole = {**completions, "loss_mode": "full"}
    assert what not in changes_of(recipe(preprocessing=whole, packing=by_host, model=DENSE))
    assert what not in changes_of(recipe(preprocessing=completions, model=DENSE))


def test_a_page_has_the_part_of_the_upgrade(packs: tuple[SFTRecipe, Path], tmp_path: Path) -> None:
    made, folder = packs
    pages = [tmp_path / "plain.html", tmp_path / "upgrade.html"]
    api.report(folder, output=pages[0], recipe=made)
    api.report(folder, output=pages[1], recipe=made, bridge_version="0.7.0")
    plain, page = (one.read_text(encoding="utf-8") for one in pages)
    number = len(changes_of(made, artifact=folder))

    assert "Changes of the upgrade" not in plain
    assert f"<h3>Megatron-Bridge 0.6 -&gt; 0.7: {number} change{'s' if number != 1 else ''} for this" in page
    assert re.search(r"<tr><th scope=.row.>habit</th><td[^>]*>labels .* EOS: trains \d", page)


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HostRelease:
    """Plant a release with a renamed field, another default, and another habit than 0.7."""
    facts = json.loads(V07.bases.read_text().replace('"pad_seq_to_mult"', '"sequence_multiple"'))
    facts["usual"]["rerun_state_machine"]["spiky_loss_factor"] = 5.0
    (tmp_path / "bases.json").write_text(json.dumps(facts))
    renamed = {"dataset.offline_packing_specs.pad_seq_to_mult": "dataset.offline_packing_specs.sequence_multiple"}
    release = replace(
        V07,
        name="0.8",
        versions=">=0.8,<0.9",
        bridge="0.8.0",
        bases=tmp_path / "bases.json",
        renames={**V07.renames, **renamed},
        trains_after_eos=False,
    )
    monkeypatch.setattr(host, "RELEASES", (V06, V07, release))
    return release


def test_it_follows_from_the_data_of_any_release(planted: HostRelease) -> None:
    made = recipe(bridge_version="0.7.0", packing={"packed_sequence_size": 16, "pad_seq_to_mult": 4})
    upgrade = upgrade_of(made, "0.8.0")
    assert upgrade is not None
    assert (upgrade.before, upgrade.after) == ("0.7", "0.8")
    changes = {change.what: change for change in upgrade.changes}
    assert changes["packing.pad_seq_to_mult"] == UpgradeChange(
        kind="renamed",
        what="packing.pad_seq_to_mult",
        before="dataset.offline_packing_specs.pad_seq_to_mult",
        after="dataset.offline_packing_specs.sequence_multiple",
    )
    factor = changes["bridge_overrides.rerun_state_machine.spiky_loss_factor"]
    assert (factor.kind, factor.before, factor.after) == ("value", "10.0", "5.0")
    labels = changes["labels after an EOS"]
    assert (labels.before[:7], labels.after) == ("trained", "not trained")


@pytest.mark.parametrize(
    ("sections", "is_said"),
    [
        (IN_BATCH, True),
        ({"packing": IN_BATCH["packing"], "preprocessing": {"kind": "chat", "loss_mode": "full"}}, False),
        ({}, False),
    ],
)
def test_openings_of_thoughts_concern_chats_that_the_host_reads(sections: dict[str, Any], is_said: bool) -> None:
    made = recipe(**sections)
    told = [change for what, change in changes_of(made).items() if what.startswith("<think></think>")]
    assert [(change.before, change.after[:14]) for change in told] == [("is trained", "is not trained")] * is_said


def test_every_habit_has_words() -> None:
    habits = {field.name for field in fields(HostRelease) if isinstance(getattr(V06, field.name), bool)} - {"is_known"}
    assert habits <= HABITS.keys()


@pytest.mark.parametrize(("loader", "is_said"), [("single", True), ("batch", False)])
def test_a_rest_that_ranks_cannot_share_concerns_one_loader(
    packs: tuple[SFTRecipe, Path], loader: str, is_said: bool
) -> None:
    made, folder = packs
    num_packs = next(iter(json.loads((folder / "manifest.json").read_text())["splits"]))["statistics"]["num_packs"]
    changed = made.override(
        {
            "bridge_overrides.dataset": {"dataloader_type": loader, "drop_last": False},
            "parallelism.num_gpus": num_packs - 1,
            "batch.global_batch_size": num_packs - 1,
        }
    )
    rest = [what for what in changes_of(changed, artifact=folder) if what.startswith("packs that data-parallel ranks")]
    assert bool(rest) is is_said
