"""A new release is one file: check, --fix, to_bridge, trace and the guard follow it, and 0.6 stays as it is."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from bridgepack.canaries.cpu import ENVIRONMENT
from bridgepack.config.write import recipe_to_yaml
from bridgepack.host.roots import CANONICAL
from tests.support.guarded_runs import RunRequest
from tests.support.host_forks import asked
from tests.support.planted_release import (
    NEW_FIELD,
    NEW_NAME,
    NEW_SEED,
    NEW_SWITCH,
    OLD_NAME,
    OLD_SEED,
    OLD_SWITCH,
    ROOT,
    VERSION,
    Planted,
    plant,
)
from tests.support.small_builds import build, conversations_recipe, write_conversations
from tests.support.tiny_recipes import ON_CPU, VOCAB_SIZE, write_weights

pytestmark = [pytest.mark.bridge, pytest.mark.full]

SPECS = "offline_packing_specs"
#: Saves the config that the planted host makes of a recipe, and prints what is made of it live, with its packs and with
#: its packing off; in a process that has the host.
TO_BRIDGE = """
import json, sys
from bridgepack.api import load_recipe
from bridgepack.bridge.adopting.adopt import from_bridge, pack_for
from bridgepack.bridge.validating.fields import keep_fields, path_of_fields
keep_fields("{version}", path_of_fields())
from bridgepack.bridge.targets import load_target
from bridgepack.errors import ConfigError
try:
    load_target("{old_root}.recipes.qwen:qwen3_8b_sft_config")
except ConfigError as error:
    cure = str(error)
config = load_recipe(sys.argv[1]).to_bridge(sys.argv[2])
config.to_yaml(sys.argv[3])
config.dataset.offline_packing_specs.{multiple} = 2
packed = pack_for(config, sys.argv[2])
mode = from_bridge(config, model=sys.argv[4], num_gpus=2).packing.mode
config.dataset.{switch} = False
config.dataset.offline_packing_specs = None
plain = pack_for(config)
found = {{change.path: change.value for one in (packed, plain) for change in one.changes}}
print(json.dumps({{
    "cure": cure,
    "of_old_package": [name for name in sys.modules if name.startswith("{old_root}")],
    "mode": mode,
    "multiple": packed.config.dataset.offline_packing_specs.{multiple},
    "switch": plain.config.dataset.{switch},
    "size": plain.config.dataset.offline_packing_specs.packed_sequence_size,
    "changed": [path for path in found if path.endswith(("{multiple}", "{switch}", "pad_seq_to_mult", "packing"))],
}}))
"""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return plant(tmp_path_factory.mktemp("planted"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, planted: Planted) -> Path:
    """Return a folder with a recipe, its packs, and the config that the planted host makes of them, saved."""
    folder = write_conversations(tmp_path_factory.mktemp("run"), limit=120, vocab_size=VOCAB_SIZE)
    write_weights(folder / "model", num_layers=2)
    recipe = conversations_recipe(
        folder,
        name="planted",
        packing={"packed_sequence_size": 256, "max_sequence_length": 256},
        preprocessing={"kind": "chat", "over_long": "truncate", "labels_after_eos": "train"},
        batch={"global_batch_size": 4},
        model={"name": str(folder / "model")},
        parallelism={"context_parallel_size": 2, "num_gpus": 2},
        schedule={"train_iters": 2, "eval_iters": 0},
        checkpoint={"pretrained": str(folder / "model")},
        bridge_overrides={
            **ON_CPU,
            "checkpoint": {"save": None, "load": None},
            "dataset": {"num_workers": 0, "persistent_workers": False},
        },
        guard={"first_steps": 2, "every_steps": None},
        ignore={"BP984": "trained on CPU", "BP916": "trained on CPU"},
    )
    build(recipe, folder / "packs")
    (folder / "recipe.yaml").write_text(recipe_to_yaml(recipe), encoding="utf-8")
    (folder / "to_bridge.py").write_text(
        TO_BRIDGE.format(multiple=NEW_NAME, switch=NEW_SWITCH, version=VERSION, old_root=CANONICAL), encoding="utf-8"
    )
    words = ("to_bridge.py", "recipe.yaml", "packs", "run_config.yaml", str(folder / "model"))
    made = planted.run(*words, folder=folder, has_host=True)
    assert made.returncode == 0, made.stderr[-4000:]
    (folder / "adopted.json").write_text(made.stdout.splitlines()[-1], encoding="utf-8")
    return folder


def _bridgepack(planted: Planted, folder: Path, *words: object) -> tuple[int, Any]:
    found = planted.run("-m", "bridgepack", *words, folder=folder)
    assert "Traceback" not in found.stderr, found.stderr
    assert found.stdout, found.stderr
    return found.returncode, json.loads(found.stdout) if "--json" in words else found.stdout


def _saved(folder: Path, **changes: Any) -> Path:
    """Return the saved config with other fields of `dataset`; of None they are left out."""
    values = yaml.safe_load((folder / "run_config.yaml").read_text())
    dataset = values["dataset"]
    for name, value in changes.items():
        holder = dataset[SPECS] if name in (OLD_NAME, NEW_NAME) else dataset
        assert name in holder, name
        if value is None:
            del holder[name]
        else:
            holder[name] = value
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(values), encoding="utf-8")
    return path


def test_to_bridge_writes_the_new_name(folder: Path) -> None:
    dataset = yaml.safe_load((folder / "run_config.yaml").read_text())["dataset"]

    assert dataset[SPECS][NEW_NAME] == 4
    assert OLD_NAME not in dataset[SPECS]
    assert dataset[NEW_SWITCH] is True
    assert OLD_SWITCH not in dataset


def test_a_live_config_is_packed_and_read_back_under_its_own_names(folder: Path) -> None:
    found = json.loads((folder / "adopted.json").read_text())

    assert (found["mode"], found["multiple"], found["switch"], found["size"]) == ("offline", 4, True, 256)
    assert found["changed"] == [f"dataset.{SPECS}.{OLD_NAME}", f"dataset.{OLD_SWITCH}"]


def test_the_planted_host_lies_in_another_package(planted: Planted, folder: Path) -> None:
    values = yaml.safe_load((folder / "run_config.yaml").read_text())
    adopted = json.loads((folder / "adopted.json").read_text())
    assert values["_target_"] == f"{ROOT}.training.config.ConfigContainer"
    assert adopted["of_old_package"] == []
    assert f"{ROOT}.recipes.qwen:qwen3_8b_sft_config" in adopted["cure"]

    ours, theirs = folder / "run_config.yaml", folder / "older.yaml"
    theirs.write_text(ours.read_text().replace(f"{ROOT}.", f"{CANONICAL}."))
    for path, version, package, right in ((theirs, VERSION, CANONICAL, ROOT), (ours, "0.6.2", ROOT, CANONICAL)):
        words = ("--bridge-version", version, "--json")
        _, report = _bridgepack(planted, folder, "check", path, *words)
        (finding,) = [finding for finding in report["findings"] if finding["code"] == "BP016"]
        assert finding["where"] == "model._target_"
        assert package in finding["found"]
        assert right in finding["allowed"]

        mended = folder / "mended.yaml"
        mended.write_text(path.read_text().replace(f"{package}.", f"{right}."))
        _, after = _bridgepack(planted, folder, "check", mended, *words)
        codes = [sorted(finding["code"] for finding in found["findings"]) for found in (report, after)]
        assert codes[0] == sorted(["BP016", *codes[1]])


def test_check_reads_the_new_name_in_a_saved_config_and_fix_writes_it(planted: Planted, folder: Path) -> None:
    path = _saved(folder, **{NEW_NAME: 2})

    code, report = _bridgepack(planted, folder, "check", path, "--bridge-version", VERSION, "--json")
    found = {one["code"]: one for one in report["findings"]}
    assert code == 1
    assert found["BP101"]["where"] == f"dataset.{SPECS}.{NEW_NAME}"

    planted.run("-m", "bridgepack", "check", path, "--bridge-version", VERSION, "--fix", folder=folder)
    specs = yaml.safe_load(path.read_text())["dataset"][SPECS]
    assert specs[NEW_NAME] == 4
    assert OLD_NAME not in specs


def test_a_field_that_no_facts_record_is_known_from_the_host_s_own_classes(planted: Planted, folder: Path) -> None:
    path = _saved(folder, **{NEW_FIELD: True, NEW_SWITCH: False, SPECS: None})
    words = ("check", path, "--bridge-version", VERSION, "--select", "BP935", "--json")

    _, without = _bridgepack(planted, folder, *words)
    assert [finding["where"] for finding in without["findings"]] == [f"dataset.{NEW_FIELD}"]
    ran = planted.run("-m", "bridgepack", *words, "--real-validate", folder=folder, has_host=True)
    assert json.loads(ran.stdout)["findings"] == []
    assert json.loads(ran.stdout)["rules_run"] == ["BP935"]


def test_the_planted_host_says_itself_what_it_takes_and_where_it_refuses(planted: Planted, folder: Path) -> None:
    of_recipe = ("check", "recipe.yaml", "--artifact", "packs")
    of_saved = ("check", "run_config.yaml", "--world-size", 2, "--trust-config", "pathlib")

    def verdict(*words: object, version: str = VERSION) -> dict[str, Any]:
        options = ("--bridge-version", version, "--real-validate", "--json")
        found = planted.run("-m", "bridgepack", *words, *options, folder=folder, has_host=True)
        assert found.stdout, found.stderr
        return dict(json.loads(found.stdout)["real_validate"])

    accepted, refused = verdict(*of_recipe), verdict(*of_saved, "--set", "train.micro_batch_size=2")
    assert (accepted["state"], accepted["version"], accepted["reason"]) == ("accepted", VERSION, "")
    assert (refused["state"], refused["version"], refused["stage"]) == ("refused", VERSION, "validate()")
    assert "Micro batch size" in refused["reason"]
    assert refused["place"].startswith(f"{ROOT.replace('.', '/')}/training/config.py:")
    assert verdict(*of_recipe, version="0.6.2")["state"] == "other version"


def test_an_override_has_the_name_of_the_recipes_release(planted: Planted, folder: Path) -> None:
    words = ("check", "recipe.yaml", "--json", "--set", f"bridge_overrides.dataset.{SPECS}.{{}}=2")
    mended = [word.format(NEW_NAME) for word in words]
    _, report = _bridgepack(planted, folder, *mended, "--bridge-version", VERSION)
    assert [one["where"] for one in report["findings"] if one["code"] == "BP101"] == [
        f"bridge_overrides.dataset.{SPECS}.{NEW_NAME}"
    ]

    _, today = _bridgepack(planted, folder, *mended)
    assert [one["where"] for one in today["findings"] if one["code"] == "BP044"] == [
        f"bridge_overrides.dataset.{SPECS}.{NEW_NAME}"
    ]


def test_the_supported_release_is_judged_as_before(planted: Planted, folder: Path) -> None:
    _, upgraded = _bridgepack(planted, folder, "check", "recipe.yaml", "--bridge-version", VERSION, "--json")
    roots = [(change["before"], change["after"]) for change in upgraded["upgrade"]["changes"]]
    assert (CANONICAL, ROOT) in roots

    for version in ((), ("--bridge-version", "0.6.2")):
        _, report = _bridgepack(planted, folder, "check", "recipe.yaml", "--artifact", "packs", "--json", *version)
        _, newer = _bridgepack(
            planted, folder, "check", "recipe.yaml", "--artifact", "packs", "--json", "--bridge-version", VERSION
        )
        today, later = ({one["code"] for one in found["findings"]} for found in (report, newer))
        assert today - later == {"BP528"}  # labels after an EOS, which the planted host trains
        assert later <= today
        assert "0.6.2" in report["versions"]
        assert VERSION in newer["versions"]


def test_trace_takes_the_new_default_and_the_new_habit(planted: Planted, folder: Path) -> None:
    def read(version: str, **changes: Any) -> list[tuple[int, int]]:
        """Return (pack, trained tokens) of the first step."""
        run = ("--recipe", _saved(folder, **changes), "--world-size", 2, "--bridge-version", version)
        _, found = _bridgepack(planted, folder, "trace", "packs", *run, "--step", 1, "--rank", 0, "--json")
        (batch,) = found["batches"]
        (rank,) = batch["ranks"]
        return [(pack["pack"], pack["num_trained_tokens"]) for (pack,) in rank["micro_batches"]]

    new, old, today = read(VERSION, seed=NEW_SEED), read(VERSION, seed=OLD_SEED), read("0.6.2", seed=None)
    assert [pack for pack, _ in new] != [pack for pack, _ in old]
    assert read(VERSION, seed=None) == new
    assert [pack for pack, _ in today] == [pack for pack, _ in old]
    assert sum(tokens for _, tokens in today) < sum(tokens for _, tokens in old)


def test_the_guard_lets_the_planted_host_train_to_its_end(planted: Planted, folder: Path) -> None:
    run = RunRequest(
        world_size=2,
        arguments=(
            *("--recipe", str(folder / "recipe.yaml"), "--run-folder", str(folder / "run")),
            *("--artifact", str(folder / "packs")),
        ),
        log=str(folder / "logs"),
    )
    variables = {**ENVIRONMENT, **planted.variables(), "MEGATRON_CONFIG_LOCK_DIR": str(folder)}
    (result,) = asked("tests.support.guarded_runs", [run], folder, limit_s=300, **variables)
    assert result["exit_codes"] == [0, 0], "\n".join(result["outputs"])[-6000:]
