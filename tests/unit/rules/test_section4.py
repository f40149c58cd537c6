"""The 46 configurations of section 4 of the rule catalogue, which the host accepts and then breaks: each is reported.

A case is its number, a run's case as in `run_cases` or, under `rows`, an artifact's, and the codes that are an error or
a warning of it; `not BP101` must not be there.
"""

from __future__ import annotations

from typing import Any

import pytest

from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import ERROR, WARNING, Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.in_memory_artifact import check
from tests.unit.rules.run_cases import subject_of

SPECS, KWARGS = "dataset.offline_packing_specs", "dataset.dataset_kwargs"
MULTIPLE, SIZE = f"{SPECS}.pad_seq_to_mult", f"{SPECS}.packed_sequence_size"
TRAIN, VALIDATION = f"{SPECS}.packed_train_data_path", f"{SPECS}.packed_val_data_path"
METADATA, PADDED = f"{SPECS}.packed_metadata_path", f"{SPECS}.pad_cu_seqlens"
CONTEXT, TENSOR = "model.context_parallel_size", "model.tensor_model_parallel_size"
EVALUATION_CONTEXT = "dist.eval_context_parallel_size"
PIPELINE, SEQUENCE = "model.pipeline_model_parallel_size", "model.sequence_parallel"
GRAPHS, GRAPH_MODULES = "model.cuda_graph_impl", "model.cuda_graph_modules"
HOST_PACKS = {TRAIN: None, VALIDATION: None}
BY_CONTEXT = {CONTEXT: 2, MULTIPLE: 4}
BY_TENSOR = {TENSOR: 2, SEQUENCE: True}
UNPACKED = {"dataset.enable_offline_packing": False, SPECS: None}
PACKS = {
    "/data/packed/training/shard-00000.idx.parquet": 10,
    "/data/packed/validation/shard-00000.idx.parquet": 10,
    "/data/packed/bridge_metadata.json": 1,
}
TWO_SPLITS = {"/data/packs/training_4096.idx.parquet": 10, "/data/packs/validation_4096.idx.parquet": 10}
RAW, TEMPLATE = "/data/chats/training.jsonl", "/models/llama/chat_template.jinja"
CACHE = "/data/chats/packed/meta-llama--Llama-3.2-1B_pad_seq_to_mult1_sft_0123456789ab/training_4096.idx.parquet"
#: Runtime lengths 3 and 2; of 17 tokens; of 8, of which only the second sequence ends on padding.
ROW = [[11, 12, 13, 2, 21, 22, 2], [0, 1, 1, 0, 1, 1, 0], [0, 4]]
WIDE_ROW = [list(range(11, 29)), [0] + [1] * 16 + [0], [0]]
BLIND_ROW = [[11, 12, 13, 14, 15, 21, 22, 2, 2, 2], [0, 1, 1, 1, 0, 0, 1, 0, 0, 0], [0, 5]]
BOTH = {"training": [ROW], "validation": [ROW]}
#: Rows must be a multiple of 32 wide and are one of 16.
WIDE_NEED = {CONTEXT: 4, TENSOR: 8, SEQUENCE: True, KWARGS: None, MULTIPLE: 8}
IN_BATCH = {
    "_target_": "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig",
    "enable_in_batch_packing": True,
    "seq_length": 4096,
}
CUSTOM_DATASET = {"_target_": "my_package.MyProvider", "dataloader_type": "batch", "drop_last": True}
FLASH = {"_target_": "megatron.core.transformer.enums.AttnBackend", "_args_": [1], "_call_": True, "_name_": "flash"}
OWN_ATTENTION = {"_name_": "local", "_target_": "megatron.core.transformer.enums.AttnBackend"}
FP8 = {"mixed_precision": "bf16_with_fp8_current_scaling_mixed"}
HYBRID = {
    "model._target_": "megatron.bridge.models.hybrid.hybrid_provider.HybridModelProvider",
    "model.hf_model_id": "nvidia/Nemotron-H-8B-Base-8K",
    "model.hybrid_layer_pattern": "M-M-M*-M-",
}
GEMMA = {"model._target_": "megatron.bridge.models.gemma.gemma2_provider.Gemma2ModelProvider"}
FALCON = {"model._target_": "megatron.bridge.models.falcon_h1.falconh1_provider.FalconH1ModelProvider"}
SHIPPED = "megatron.bridge.recipes.llama:llama3_8b_sft_config"
OWN_GROUPS = {EVALUATION_CONTEXT: 4, "dist.use_decentralized_pg": True, "dist.use_gloo_process_groups": False}
RAMP_UP = {"train.rampup_batch_size": [8, 8, 1000], "train.global_batch_size": 64}
DISPATCH = {"model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "hybridep"}
OLD_HOST = {"megatron-bridge": "0.4.2", "megatron-core": "0.17.1", "transformer-engine": "2.14.1"}
NPY = {
    "shards/training/0/format": "npy",
    "shards/training/0/row_group_rows": [],
    "shards/training/0/row_group_tokens": [],
    "shards/training/0/value_types": {"seq_start_id": ["numpy.ndarray"]},
}
STALE = {"dataset_max_seqlen": 2, "max_samples_per_bin": 1, "min_packed_seqlen": 6, "pack_size": 16}


def sizes(tokens: int) -> dict[str, Any]:
    return {SIZE: tokens, "model.seq_length": tokens, "dataset.seq_length": tokens}


def packs(training: int, validation: int) -> dict[str, Any]:
    rows = {"training": [{"row": ROW, "times": training}], "validation": [{"row": ROW, "times": validation}]}
    return {"rows": rows, "packed_sequence_size": 5}


def rows_of(*rows: Any, **case: Any) -> dict[str, Any]:
    return {"rows": {"training": list(rows)}, "packed_sequence_size": 64, **case}


def quiet_graphs(modules: Any) -> dict[str, Any]:
    others = {"model.cuda_graph_scope": None, PADDED: True, "rng.te_rng_tracker": True}
    return {GRAPHS: "transformer_engine", GRAPH_MODULES: modules, **others}


def environment(**versions: str) -> dict[str, Any]:
    names = {"megatron-bridge": "0.6.2", **{name.replace("_", "-"): text for name, text in versions.items()}}
    return {"environment": {"versions": names}}


CASES: tuple[tuple[int, dict[str, Any], str], ...] = (
    (1, {"set": {CONTEXT: 2, MULTIPLE: 1}}, "BP101"),
    (1, {"set": BY_CONTEXT}, "not BP101"),
    (1, {"place": SHIPPED}, "BP105"),
    (1, {"place": SHIPPED, "set": {CONTEXT: 2}}, "BP101"),
    (2, {"set": BY_CONTEXT, "artifact": {"packed_sequence_size": 4096, "rows": BOTH}}, "BP106 BP121"),
    (3, {"set": {**HOST_PACKS, METADATA: None, SIZE: 2048}}, "BP008"),
    (4, {"set": {SIZE: 8192}}, "BP042"),
    (5, {"set": {**sizes(4098), **BY_CONTEXT}}, "BP103"),
    (5, {"set": {**sizes(4100), CONTEXT: 2, TENSOR: 4, SEQUENCE: True, MULTIPLE: 4}}, "BP102"),
    (
        6,
        {"set": sizes(16), "artifact": {"packed_sequence_size": 4096, "rows": {**BOTH, "training": [WIDE_ROW]}}},
        "BP107",
    ),
    (7, {"set": {MULTIPLE: None}}, "BP010"),
    (8, {"set": {**HOST_PACKS, METADATA: "/data/metadata.json"}}, "BP205"),
    (9, {"set": {TRAIN: "/data/packed/training.npy"}, "files": PACKS}, "BP203"),
    (10, {"set": {TRAIN: "/data/packed/training_4096.idx.parquet"}, "files": PACKS}, "BP204"),
    (10, {"files": PACKS}, "not BP204"),
    (11, {"set": {TRAIN: "/data/packed/training.npy", METADATA: None}}, "BP215"),
    (12, {"set": {VALIDATION: None}}, "BP206"),
    (12, {"set": {VALIDATION: None}, "files": PACKS}, "BP221"),
    (13, {"set": {f"{KWARGS}.chat_template": "{{ messages }}"}}, "BP507"),
    (14, {"set": {**HOST_PACKS, MULTIPLE: 8, KWARGS: {"pad_seq_length_to_mult": 4}}}, "BP111"),
    (14, {"set": {**HOST_PACKS, MULTIPLE: 8, KWARGS: {"pad_seq_length_to_mult": 4}, CONTEXT: 4}}, "BP119"),
    (15, {"set": {f"{KWARGS}.pad_to_max_len": True}}, "BP019"),
    (16, {"set": {f"{KWARGS}.answer_only_loss": False}}, "BP502"),
    (17, {"set": {"validation.eval_micro_batch_size": 2, "validation.eval_global_batch_size": 16}}, "BP005"),
    (18, {"set": RAMP_UP}, "BP038"),
    (18, {"set": RAMP_UP, "versions": {"megatron-core": "0.17.1"}}, "BP006"),
    (19, {"artifact": packs(16, 5)}, "BP604"),
    (19, {"set": {"dataset.do_test": True}, "files": {"/data/chats/test.jsonl": 3}}, "BP605"),
    (20, {"set": {**WIDE_NEED, "dataset.do_test": True}, "world_size": 32}, "BP207"),
    (21, {"set": {"model.calculate_per_token_loss": True, "ddp.average_in_collective": True}}, "BP013"),
    (22, {"set": {"model.overlap_moe_expert_parallel_comm": True}}, "BP802"),
    (23, {"set": {"model.mtp_num_layers": 1, MULTIPLE: 4}}, "BP803 BP804"),
    (23, {"set": {"model.mtp_num_layers": 1}}, "BP804 not BP803"),
    (24, {"set": {**HYBRID, "model.is_hybrid_model": False}}, "BP905"),
    (24, {"set": {**HYBRID, "model.is_hybrid_model": True}}, "not BP905"),
    *((25, {"set": quiet_graphs(modules)}, "BP923") for modules in ("full", "attn", ["attn", "mlp"], [])),
    (26, {"set": {"dataset": IN_BATCH, "train.micro_batch_size": 2, GRAPHS: "transformer_engine"}}, "BP926"),
    (26, {"set": {"dataset": IN_BATCH, "train.micro_batch_size": 2, GRAPHS: "full_iteration"}}, "BP926"),
    (26, {"set": {"dataset": {**IN_BATCH, "defer_in_batch_packing_to_step": False}}}, "BP931"),
    (27, {"set": {**BY_CONTEXT, "model.cp_comm_type": "all_gather"}}, "BP704"),
    (
        27,
        {"set": {**BY_CONTEXT, "model.cp_comm_type": "a2a+p2p", "model.hierarchical_context_parallel_sizes": [2, 1]}},
        "BP705",
    ),
    (27, {"set": {**BY_CONTEXT, "model.cp_comm_type": "a2a", "model.num_query_groups": 1}}, "BP706"),
    (27, {"set": {**BY_CONTEXT, "model.window_size": [127, 0]}}, "BP708"),
    (27, {"set": {**BY_CONTEXT, "model.softmax_type": "learnable"}}, "BP709"),
    (
        28,
        {"set": {**BY_CONTEXT, **sizes(8)}, "artifact": rows_of(BLIND_ROW, packed_sequence_size=8, pad_seq_to_mult=4)},
        "BP703",
    ),
    (
        28,
        {
            "set": {**BY_CONTEXT, **sizes(8)},
            "artifact": rows_of(BLIND_ROW, packed_sequence_size=8, pad_seq_to_mult=4),
            "versions": {"transformer-engine": "2.18.0"},
        },
        "not BP703",
    ),
    (29, {"set": {"model.attention_backend": FLASH, MULTIPLE: 4}}, "BP702"),
    (29, {"set": {**BY_CONTEXT, **FP8, "model.fp8_dot_product_attention": True}}, "BP721"),
    (30, {"set": GEMMA}, "BP903"),
    (
        30,
        {"recipe": True, "set": {"dataset.enable_offline_packing": True, "model.hf_model_id": "google/gemma-2-9b"}},
        "BP903",
    ),
    (30, {"set": {**FALCON, "model.transformer_impl": "local"}}, "BP905 BP916"),
    (30, {"set": {"model.attention_backend": OWN_ATTENTION}}, "BP904"),
    (30, {"set": {"model.transformer_impl": "local"}}, "BP916"),
    (31, {"set": {"model.hf_model_id": "Qwen/Qwen3-Next-80B-A3B-Instruct"}}, "BP901"),
    (31, {"set": {"model.hf_model_id": "zai-org/GLM-4.5"}}, "BP901"),
    (31, {"set": {"model.hf_model_id": "deepseek-ai/DeepSeek-V4-Flash"}}, "BP901"),
    (32, {"set": WIDE_NEED, "world_size": 32}, "BP112"),
    (32, {"set": {**BY_CONTEXT, **BY_TENSOR, **FP8, KWARGS: {}}}, "BP930"),
    (33, {"set": {"model.num_moe_experts": 8, **DISPATCH, GRAPHS: "full_iteration", KWARGS: {}}}, "BP808"),
    (33, {"set": {"comm_overlap": {"tp_comm_overlap": True}, KWARGS: {}, **BY_TENSOR}}, "BP809"),
    (34, {"set": {PIPELINE: 2, KWARGS: None, "dataset.dataloader_type": "single"}}, "BP114"),
    (34, {"set": {PIPELINE: 2, KWARGS: None, "dataset.dataloader_type": "cyclic"}}, "BP114"),
    (34, {"set": {PIPELINE: 4}, "versions": OLD_HOST}, "BP801"),
    (34, {"set": {PIPELINE: 4}}, "not BP801"),
    (35, {"rows": {"training": [ROW]}, "set": {"metadata/content": [STALE, STALE]}}, "BP405 BP406 BP407 BP408"),
    (35, {"set": {PADDED: True, METADATA: None}}, "BP421"),
    (
        35,
        {
            "set": {PADDED: True},
            "artifact": {"packed_sequence_size": 4096, "set": {"metadata/exists": False, "metadata/content": None}},
        },
        "BP421",
    ),
    (
        36,
        {
            "set": {
                **HOST_PACKS,
                METADATA: None,
                "tokenizer.tokenizer_model": "/models/llama",
                f"{SPECS}.tokenizer_model_name": "packs",
            },
            "files": {CACHE: 10, RAW: 100, TEMPLATE: 1},
            "modified": {CACHE: 10.0, RAW: 20.0, TEMPLATE: 30.0},
        },
        "BP208 BP209 BP210",
    ),
    (37, {"set": {**UNPACKED, "dataset.packed_sequence_specs": {"packed_sequence_size": 4096}}}, "BP015"),
    (37, {"set": {**UNPACKED, "dataset.pack_sequences_in_batch": True}}, "BP015"),
    (38, {"set": {"model.hybrid_context_parallel": True}}, "BP951"),
    (38, {"set": {"model.max_seqlen_per_dp_cp_rank": 4096}}, "BP956"),
    (39, {"set": {**BY_CONTEXT, **OWN_GROUPS}}, "BP101"),
    (39, {"set": {**BY_CONTEXT, **OWN_GROUPS, MULTIPLE: 8}}, "not BP101"),
    (39, {"set": {**BY_CONTEXT, **OWN_GROUPS, "validation.eval_iters": 0}}, "not BP101"),
    (39, {"set": {**BY_CONTEXT, EVALUATION_CONTEXT: 4}}, "BP953 not BP101"),  # with the groups of training
    (40, environment(megatron_core="0.19.2"), "BP964"),
    (40, environment(megatron_core="0.19.2", pyarrow="19.0.1"), "not BP964"),
    (40, environment(megatron_core="0.17.1"), "BP980"),
    (40, environment(megatron_core="0.18.0rc0"), "BP980"),
    (40, environment(megatron_core="0.18.0"), "BP981"),
    (41, {"set": HOST_PACKS, "files": {RAW: 3_000_000}}, "BP961"),
    (41, {"set": HOST_PACKS, "files": {RAW: 50_000}}, "not BP961"),
    (41, {"set": {**HOST_PACKS, "dataset.dataset_root": "/dev/shm/chats"}, "world_size": 16}, "BP962"),
    (41, {"set": {**HOST_PACKS, "dataset.dataset_root": "/dev/shm/chats"}, "world_size": 8}, "not BP962"),
    (42, {"set": {"train.train_iters": 12, "train.global_batch_size": 8}, "artifact": packs(16, 16)}, "BP607"),
    (43, {"set": {TRAIN: "/data/packs"}, "files": {**PACKS, **TWO_SPLITS}}, "BP212"),
    (44, {"set": {"dataset.max_train_samples": 10000}}, "BP610"),
    (45, rows_of([[11, 12, 13, 2], [0, 1, 1, 0], [0, 4]]), "BP305"),
    (45, rows_of([[11, 12, 13, 2], [0, 0, 1, 1], [0]]), "BP309"),
    (
        45,
        rows_of(*({"sequence": [[11, 9, token, 2, 5], [0, 0, 1, 1, 0]], "times": 4} for token in (31, 32, 33))),
        "BP332",
    ),
    (45, rows_of(ROW, set=NPY), "BP313"),
    (46, {"set": {"dataset": CUSTOM_DATASET, CONTEXT: 2, "model.calculate_per_token_loss": False}}, "BP032"),
)


@pytest.mark.parametrize(("number", "case", "expected"), CASES, ids=[str(case[0]) for case in CASES])
def test_case(number: int, case: dict[str, Any], expected: str) -> None:
    findings = check(case).findings if "rows" in case else judge_run(subject_of(case), RUN_RULES).findings
    severities = {found.code: Severity(found.severity) for found in findings}
    there, _, absent = expected.partition("not ")
    assert {severities.get(code) for code in there.split()} <= {ERROR, WARNING}
    assert not set(absent.split()) & set(severities)
    if number == 25:
        assert {code for code, severity in severities.items() if severity == ERROR} == {"BP923"}


def test_each_of_the_46_cases_is_there() -> None:
    assert {number for number, _, _ in CASES} == set(range(1, 47))
