"""Configurations that the host accepts and then breaks on: kernels, graphs, experts (catalogue section 4).

A number is the row of the catalogue's table. Row 35 is the metadata's and is tested with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import subject_of

SPECS = "dataset.offline_packing_specs"
CONTEXT_PARALLEL = {"model.context_parallel_size": 2, f"{SPECS}.pad_seq_to_mult": 4}
FLASH = {"_target_": "megatron.core.transformer.enums.AttnBackend", "_args_": [1], "_call_": True, "_name_": "flash"}
#: A full row of 8 runtime tokens; only its second sequence ends on padding.
BLIND_ROW = [[11, 12, 13, 14, 15, 21, 22, 2, 2, 2], [0, 1, 1, 1, 0, 0, 1, 0, 0, 0], [0, 5]]
IN_BATCH = {
    "_target_": "megatron.bridge.data.builders.direct_hf_sft.DirectHFSFTDatasetConfig",
    "enable_in_batch_packing": True,
    "seq_length": 4096,
}


def severities(settings: Mapping[str, Any], **case: Any) -> dict[str, Severity]:
    """Return code -> severity of what the rules find in the healthy run with these settings."""
    findings = judge_run(subject_of({"set": dict(settings), **case}), RUN_RULES).findings
    return {found.code: Severity(found.severity) for found in findings}


def test_case_22_expert_overlap_with_packing() -> None:
    found = severities({"model.overlap_moe_expert_parallel_comm": True})
    assert found["BP802"] == Severity.ERROR


def test_case_23_multi_token_prediction_with_packing() -> None:
    padded = severities({"model.mtp_num_layers": 1, f"{SPECS}.pad_seq_to_mult": 4})
    assert (padded["BP803"], padded["BP804"]) == (Severity.ERROR, Severity.WARNING)
    unpadded = severities({"model.mtp_num_layers": 1})
    assert unpadded["BP804"] == Severity.WARNING
    assert "BP803" not in unpadded


@pytest.mark.parametrize("modules", ["full", "attn", ["attn", "mlp"], []])
def test_case_25_layer_graphs_with_attention(modules: Any) -> None:
    graphs = {"model.cuda_graph_impl": "transformer_engine", "model.cuda_graph_modules": modules}
    quiet = {"model.cuda_graph_scope": None, f"{SPECS}.pad_cu_seqlens": True, "rng.te_rng_tracker": True}
    found = severities(graphs | quiet)
    assert {code for code, severity in found.items() if severity == Severity.ERROR} == {"BP923"}


@pytest.mark.parametrize("impl", ["transformer_engine", "full_iteration"])
def test_case_26_packing_in_the_batch_with_graphs(impl: str) -> None:
    found = severities({"dataset": IN_BATCH, "train.micro_batch_size": 2, "model.cuda_graph_impl": impl})
    assert found["BP926"] == Severity.ERROR


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"model.cp_comm_type": "all_gather"}, "BP704"),
        ({"model.cp_comm_type": "a2a+p2p", "model.hierarchical_context_parallel_sizes": [2, 1]}, "BP705"),
        ({"model.cp_comm_type": "a2a", "model.num_query_groups": 1}, "BP706"),
        ({"model.window_size": [127, 0]}, "BP708"),
        ({"model.softmax_type": "learnable"}, "BP709"),
    ],
)
def test_case_27_exchange_of_keys_and_values(settings: Mapping[str, Any], code: str) -> None:
    assert severities({**CONTEXT_PARALLEL, **settings})[code] == Severity.ERROR


def test_case_28_only_the_last_boundary_is_padded() -> None:
    sizes = {f"{SPECS}.packed_sequence_size": 8, "dataset.seq_length": 8, "model.seq_length": 8}
    artifact = {"packed_sequence_size": 8, "pad_seq_to_mult": 4, "rows": {"training": [BLIND_ROW]}}
    assert severities({**CONTEXT_PARALLEL, **sizes}, artifact=artifact)["BP703"] == Severity.WARNING
    newer = severities({**CONTEXT_PARALLEL, **sizes}, artifact=artifact, versions={"transformer-engine": "2.18.0"})
    assert "BP703" not in newer


def test_case_29_flash_attention_over_padding_and_fp8_attention() -> None:
    flash = severities({"model.attention_backend": FLASH, f"{SPECS}.pad_seq_to_mult": 4})
    assert flash["BP702"] == Severity.WARNING
    fp8 = {"mixed_precision": "bf16_with_fp8_current_scaling_mixed", "model.fp8_dot_product_attention": True}
    assert severities({**CONTEXT_PARALLEL, **fp8})["BP721"] == Severity.ERROR


def test_case_32_fp8_with_widths_that_vary() -> None:
    tensor = {"model.tensor_model_parallel_size": 2, "model.sequence_parallel": True}
    fp8 = {"mixed_precision": "bf16_with_fp8_current_scaling_mixed", "dataset.dataset_kwargs": {}}
    assert severities({**CONTEXT_PARALLEL, **tensor, **fp8})["BP930"] == Severity.WARNING


def test_case_33_hybrid_dispatch_and_tensor_overlap_with_widths_that_vary() -> None:
    dispatch = {"model.moe_token_dispatcher_type": "flex", "model.moe_flex_dispatcher_backend": "hybridep"}
    graphs = {"model.cuda_graph_impl": "full_iteration", "dataset.dataset_kwargs": {}}
    assert severities({"model.num_moe_experts": 8, **dispatch, **graphs})["BP808"] == Severity.WARNING
    overlap = {"comm_overlap": {"tp_comm_overlap": True}, "dataset.dataset_kwargs": {}}
    tensor = {"model.tensor_model_parallel_size": 2, "model.sequence_parallel": True}
    assert severities({**overlap, **tensor})["BP809"] == Severity.WARNING


def test_middle_pipeline_stages_of_old_versions() -> None:
    old = {"megatron-bridge": "0.4.2", "megatron-core": "0.17.1", "transformer-engine": "2.14.1"}
    stages = {"model.pipeline_model_parallel_size": 4}
    assert severities(stages, versions=old)["BP801"] == Severity.ERROR
    assert "BP801" not in severities(stages)
