"""Options of a check from Python: of the right kinds, or one clear message."""

import json
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.bridge_recipes import DENSE, recipe_of
from tests.support.catalogue import SMALL


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"wrold_size": 8}, "check has no option 'wrold_size'; allowed: artifact, world_size"),
        ({"world_size": "8"}, "world_size is '8'"),
        ({"world_size": 0}, "world_size is 0; allowed"),
        ({"world_size": True}, "world_size is True; allowed"),
        ({"bridge_version": 0.6}, "bridge_version is 0.6; allowed: a text"),
        ({"environment": {"torch": "2.9"}}, "environment is {'torch': '2.9'}; allowed: an Environment"),
        ({"environment": "none.txt"}, "--environment is 'none.txt', which cannot be read"),
        ({"overrides": ["a=1"]}, r"overrides is \['a=1'\]; allowed: a dict"),
        ({"overrides": {3: 1}}, "overrides is {3: 1}; allowed: a dict"),
        ({"select": "BP1"}, "select is 'BP1'"),
        ({"ignore": [3]}, r"ignore is \[3\]"),
        ({"given": {"vocabsize": 3}}, "Did you mean vocab_size?"),
        ({"given": {"vocab_size": "3"}}, "--given vocab_size is '3'; allowed: a whole number"),
        ({"looks_at_files": "no"}, "looks_at_files is 'no'; allowed: True or False."),
        ({"num_workers": 0}, "num_workers is 0"),
        ({"max_examples": 0}, "max_examples is 0"),
        ({"progress": 3}, "progress is 3"),
        ({"artifact": 3}, "artifact is 3; allowed: a path."),
    ],
)
def test_an_option_of_a_wrong_kind(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bridgepack.check(SFTRecipe.from_mapping(SMALL), **options)


def test_an_option_that_is_none_is_as_if_left_out_and_an_environment_has_a_name() -> None:
    recipe = SFTRecipe.from_mapping(SMALL)
    options = dict.fromkeys(CheckOptions.__dataclass_fields__)
    assert bridgepack.check(recipe, **options) == bridgepack.check(recipe)
    assert "BP984" in bridgepack.check(recipe, environment="here").rules_run


def test_a_check_says_what_an_override_replaces(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file, values = tmp_path / "mine.yaml", {**SMALL, "batch": {"tokens_per_step": 65536}}
    file.write_text(json.dumps(values))
    for target in (str(file), SFTRecipe.from_mapping(values)):
        caplog.clear()
        bridgepack.check(target, overrides={"batch.global_batch_size": 8})

        assert caplog.messages == ["batch.tokens_per_step 65536 is replaced by batch.global_batch_size 8"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (None, "SFTRecipe or a ConfigContainer."),
        ([SMALL], ".* Give one of these."),
        (lambda: None, ".* Call it first"),
        ("", "target is '', which names nothing."),
        (Path("none.yaml"), "recipe is 'none.yaml'"),
    ],
)
def test_targets_that_are_none(target: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        bridgepack.check(target)


@pytest.mark.parametrize("mode", ["in_batch", "none"])
def test_packs_that_a_run_does_not_read_are_refused(tmp_path: Path, mode: str) -> None:
    recipe = recipe_of(DENSE, packing__mode=mode, schedule={"num_epochs": 1})
    with pytest.raises(ConfigError, match=f"packing.mode is {mode}, .*no packs. Remove --artifact"):
        check_target(recipe, CheckOptions(artifact=tmp_path))

    assert "BP026" in {finding.code for finding in check_target(recipe, CheckOptions()).findings}


SAVED_IN_BATCH = """
_target_: megatron.bridge.training.config.ConfigContainer
model: {_target_: megatron.bridge.models.gpt_provider.GPTModelProvider, seq_length: 4096}
dataset: {_target_: megatron.bridge.data.builders.DirectHFSFTDatasetConfig, enable_in_batch_packing: true}
train: {_target_: megatron.bridge.training.config.TrainingConfig, train_iters: 9}
"""


def test_packs_of_a_config_that_packs_inside_the_batch_are_refused(tmp_path: Path) -> None:
    config = tmp_path / "run.yaml"
    config.write_text(SAVED_IN_BATCH)

    with pytest.raises(ConfigError, match=r"enable_in_batch_packing is true, .*no packs\. Remove"):
        bridgepack.check(config, artifact=tmp_path)
