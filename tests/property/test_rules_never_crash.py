"""Whatever the settings hold, and whatever else is known of a run, its rules judge or say why they do not."""

import copy
import datetime
import math
from collections.abc import Mapping
from functools import cache
from pathlib import PurePosixPath
from typing import Any

from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.records import RunConfig
from bridgepack.rules.judging.environment import target_versions
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.subject import Environment, Run
from bridgepack.rules.registry import RUN_RULES
from bridgepack.rules.run.kinds import KINDS
from tests.support.examples import examples
from tests.unit.rules.in_memory_artifact import GOOD_ROWS, artifact_facts
from tests.unit.rules.run_cases import RECIPE, InMemoryFiles, base_values, set_value

#: What a file or a program may hold anywhere, sensible or not.
ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, 2, 3, 7, 8, 4096, -1, -(2**63), 2**63, 10**40, 0.5, 4096.0, math.nan, math.inf),
    *("", " ", "8", "true", "auto", "batch", "cyclic", "p2p", "a2a+p2p", "full_iteration", "fp8", "a/*.parquet"),
    *("x.npy", "[", "{prompt", "{0}", "train[:10%]+validation", "://", "/", "gs://bucket/packs", "é\udcff"),
    *([], [1, "a"], [[1], {}], [None], ["p2p", 3], (2, 2), {}, {"_target_": 5}, {"_target_": "a.B"}, {"_name_": 3}),
    *({"_target_": "a.AttnBackend", "_name_": "flash"}, {"a": {"b": [1]}}, {1: 2}, {"pad_to_max_length": True}),
    *(PurePosixPath("/data/x"), PurePosixPath(), b"bytes", datetime.date(2026, 1, 1), frozenset({1})),
)
#: Paths that rules read and that a run need not have.
RARE_PATHS = (
    *("dataset.packed_sequence_specs", "dataset.packed_sequence_specs.packed_sequence_size"),
    *("dataset.pack_sequences_in_batch", "dataset.enable_in_batch_packing", "dataset.sequence_length"),
    *("dataset.source", "dataset.micro_batch_size", "dataset.packing_buffer_size", "dataset.pad_to_max_length"),
    *("dataset.preprocessing.loss_mode", "dataset.preprocessing.separator", "dataset.hf_dataset.dataset_name"),
    *("dataset.dataset_kwargs.pad_seq_length_to_mult", "dataset.dataset_kwargs.answer_only_loss"),
    *("dataset.dataset_kwargs.chat_template", "dataset.dataset_kwargs.virtual_tokens", "dataset._target_"),
    *("model.hybrid_layer_pattern", "model.multi_latent_attention", "model.softmax_type", "model.transformer"),
    *("model.max_position_embeddings", "model.dist_train", "model.dynamic_context_parallel", "model._target_"),
    *("comm_overlap.tp_comm_overlap", "comm_overlap.overlap_moe_expert_parallel_comm", "mixed_precision.fp8"),
    *("validation.eval_micro_batch_size", "dist.eval_context_parallel_size", "scheduler.lr_warmup_fraction"),
)
DATASETS = (
    *("GPTSFTDatasetConfig", "FinetuningDatasetConfig", "HFDatasetConfig", "DirectHFSFTDatasetConfig"),
    *("EnergonDatasetConfig", "MockVLMSFTDatasetConfig", "GPTDatasetConfig", "MyProvider"),
)
MODELS = (
    *("GPTModelProvider", "MLAModelProvider", "HybridModelProvider", "MambaModelProvider", "Gemma2ModelProvider"),
    *("GPTModelConfig", "Qwen25VLModelProvider", "Qwen3VLModelProvider", "DistillationProvider"),
    *("MegatronMIMOProvider", "NemotronHModelProvider"),
)
RECIPE = RECIPE | {"model": {"name": "openai/gpt-oss-20b"}}


def test_the_bases_are_judged() -> None:
    for values, is_complete in ((base_values(), True), (_recipe_values(), False)):
        judged = judge_run(_subject(values, is_complete=is_complete), RUN_RULES)
        assert len(judged.rules_run) > 60
    assert {found.code for found in judged.findings} >= {"BP708", "BP709"}


@given(data=st.data())
@examples(3, suppress_health_check=list(HealthCheck))
def test_no_rule_crashes(data: st.DataObject) -> None:
    is_complete = data.draw(st.booleans())
    values = copy.deepcopy(base_values() if is_complete else _recipe_values())
    for path in data.draw(st.lists(st.sampled_from(_paths()), min_size=1, max_size=8, unique=True)):
        set_value(values, path, data.draw(st.sampled_from(ODD_VALUES)))
    if data.draw(st.booleans()):
        set_value(values, "dataset._target_", f"some.module.{data.draw(st.sampled_from(DATASETS))}")
        set_value(values, "model._target_", f"some.module.{data.draw(st.sampled_from(MODELS))}")
    subject = _subject(
        values,
        is_complete=is_complete,
        place=data.draw(st.sampled_from(("mine.yaml", "", "bridge:gemma2_2b_sft_config", "/a/llama3/x.py:recipe"))),
        versions=target_versions(data.draw(st.sampled_from((None, "0.6.0", "0.6.2", "0.7.0")))),
        world_size=data.draw(st.sampled_from((None, 0, -8, 1, 3, 8, 10**9))),
        artifact=data.draw(st.sampled_from((None, *_artifacts()))),
        environment=data.draw(st.sampled_from((None, *ENVIRONMENTS))),
        has_files=data.draw(st.booleans()),
    )
    judged = judge_run(subject, RUN_RULES)
    skipped = [rule.code for rule in judged.rules_skipped]
    assert all(rule.reason for rule in judged.rules_skipped)
    codes = sorted([*judged.rules_run, *skipped, *judged.rules_not_applicable])
    assert codes == sorted(rule.code for rule in RUN_RULES)


ENVIRONMENTS = (
    Environment(versions={}, origin="an empty one"),
    Environment(versions={"megatron-bridge": "unknown", "megatron-core": "", "transformer-engine": "x"}, origin="odd"),
    Environment(versions={"megatron-bridge": "0.5.1", "pyarrow": "1"}, python="three", origin="odd"),
    Environment(versions={"megatron-core": "0.19.2", "nvidia-cudnn-cu12": "9.1x"}, python="3.12.4", origin="odd"),
)


def _subject(values: Mapping[str, Any], **known: Any) -> Run:
    files = InMemoryFiles(
        files={"/data/packed/training/a_2.parquet": 3, "/data/packed/training/a_10.parquet": 3, "/data/x": 1},
        modified={"/data/packed/training": 5.0},
        read_only=("/data",),
    )
    return Run(
        config=RunConfig(values=values, is_complete=known["is_complete"], place=known.get("place", "mine.yaml")),
        versions=known.get("versions") or target_versions(),
        world_size_given=known.get("world_size", 8),
        artifact=known.get("artifact"),
        environment=known.get("environment"),
        files=files if known.get("has_files") else None,
    )


@cache
def _artifacts() -> tuple[ArtifactFacts, ...]:
    cases: tuple[dict[str, Any], ...] = (
        {},
        {"manifest": None},
        {"rows": {"training": []}},
        {"rows": {"training": GOOD_ROWS * 3, "validation": GOOD_ROWS}},
        {"rows": {"training": [[[], [], []]]}},
    )
    return tuple(artifact_facts(case) for case in cases)


def _recipe_values() -> dict[str, Any]:
    return dict(config_of_recipe(SFTRecipe.from_mapping(RECIPE)).values)


@cache
def _paths() -> tuple[str, ...]:
    """Return every path of the bases, sections too, and those of settings that they lack."""
    found = {*RARE_PATHS, *KINDS}
    for values in (base_values(), _recipe_values()):
        found |= set(_inside(values, ""))
    return tuple(sorted(found))


def _inside(values: Mapping[str, Any], prefix: str) -> list[str]:
    paths = []
    for name, value in values.items():
        paths.append(f"{prefix}{name}")
        if isinstance(value, Mapping):
            paths += _inside(value, f"{prefix}{name}.")
    return paths
