"""The wiring that the documentation shows works with the real megatron-bridge."""

import shutil
from pathlib import Path
from typing import Any

import pytest

import bridgepack
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import Artifact
from tests.support.docs_blocks import blocks
from tests.support.host_datasets import build_host_datasets, load_host_tokenizer, snapshot
from tests.support.small_builds import conversations_recipe

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

PACKED_SEQUENCE_SIZE = 8192
PAD_SEQ_TO_MULT = 8


@pytest.fixture(scope="module")
def artifact(conversations: Path, tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    """Return packed/mine, the artifact of the snippets, with a few packs."""
    packing = {"packed_sequence_size": PACKED_SEQUENCE_SIZE, "pad_seq_to_mult": PAD_SEQ_TO_MULT}
    recipe = conversations_recipe(conversations, name="mine", packing=packing)
    return Artifact(bridgepack.build(recipe, output=tmp_path_factory.mktemp("packed") / "mine").output)


def _config(tokenizer: str) -> Any:
    from megatron.bridge.models.gpt_provider import GPTModelProvider
    from megatron.bridge.training import config as host

    return host.ConfigContainer(
        model=GPTModelProvider(num_layers=2, hidden_size=64, num_attention_heads=4, seq_length=512),
        dataset=host.GPTSFTDatasetConfig(dataset_root="elsewhere", seq_length=512),
        train=host.TrainingConfig(train_iters=1000, global_batch_size=128, micro_batch_size=4),
        validation=host.ValidationConfig(eval_interval=10, eval_iters=1),
        optimizer=host.OptimizerConfig(optimizer="adam", lr=1e-4, use_distributed_optimizer=True),
        scheduler=host.SchedulerConfig(lr_warmup_iters=0),
        ddp=host.DistributedDataParallelConfig(use_distributed_optimizer=True, average_in_collective=True),
        logger=host.LoggerConfig(),
        tokenizer=host.TokenizerConfig(tokenizer_type="HuggingFaceTokenizer", tokenizer_model=tokenizer),
        checkpoint=host.CheckpointConfig(),
    )


def _wired(artifact: Artifact) -> Any:
    """Return a configuration after the function of docs/megatron-bridge.md was called on it."""
    names: dict[str, Any] = {}
    exec(blocks("python", page="megatron-bridge.md")[0].text, names)
    cfg = _config(artifact.manifest.tokenizer["name_or_path"])
    names["train_on_artifact"](cfg, artifact.folder, num_epochs=3, global_batch_size=2, eval_global_batch_size=1)
    return cfg


def test_function_makes_a_configuration_that_validates(artifact: Artifact, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    num_packs = artifact.manifest.splits[0].statistics.num_packs

    cfg = _wired(artifact)
    cfg.validate()

    assert cfg.model.seq_length == cfg.dataset.seq_length == PACKED_SEQUENCE_SIZE
    assert cfg.dataset.offline_packing_specs.packed_sequence_size == PACKED_SEQUENCE_SIZE
    assert cfg.dataset.offline_packing_specs.pad_seq_to_mult == PAD_SEQ_TO_MULT
    assert cfg.train.train_iters == -(-3 * num_packs // 2)


@pytest.mark.parametrize("has_validation", [True, False])
def test_dataset_builder_takes_the_artifact_as_it_is(artifact: Artifact, tmp_path: Path, has_validation: bool) -> None:
    if not has_validation:
        recipe = SFTRecipe.from_mapping({**artifact.manifest.recipe, "name": "training-only"})
        recipe = recipe.override({"data.validation": None})
        artifact = Artifact(bridgepack.build(recipe, output=tmp_path / "alone").output)
    before = snapshot(artifact.folder)
    cfg = _wired(artifact)

    datasets = build_host_datasets(cfg.dataset, load_host_tokenizer(cfg.tokenizer.tokenizer_model))

    num_packs = [split.statistics.num_packs for split in artifact.manifest.splits]
    assert [len(one) for one in datasets if one is not None] == num_packs
    assert [one is None for one in datasets] == [False, not has_validation, True]
    assert datasets[0].collate_fn([datasets[0][0]])["tokens"].shape == (1, PACKED_SEQUENCE_SIZE)
    assert snapshot(artifact.folder) == before


def test_readme_s_specs_construct(artifact: Artifact, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(artifact.folder, tmp_path / "artifacts" / "mine")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}

    exec(blocks("python", page="README.md")[0].text, names)

    assert Path(names["specs"].packed_train_data_path).is_dir()
    assert names["specs"].packed_metadata_path.is_file()
