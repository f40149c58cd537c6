"""After --fix nothing that was fixable is found, and the file keeps its comments and says nothing else anew."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st
from ruamel.yaml import YAML

from bridgepack.bridge.adopting.corrections import rounds_of_changes
from bridgepack.checking.check import CheckOptions, check_target
from bridgepack.checking.fix import fix_target, write_edit
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.rules.judging.rule import Severity

COMMENTS = ("# the run of the week", "# rows of chat", "# agreed on with everybody")
TEMPLATE = """\
{comments[0]}
name: mine
data:
  train: rows.jsonl  {comments[1]}
tokenizer:
  name_or_path: tokenizer
packing:
  packed_sequence_size: {size}
{packing}parallelism:
{parallelism}{comments[2]}
batch:
{batch}bridge_overrides:
{overrides}"""
SIZES = st.sampled_from([1024, 4096, 8192])
TOPOLOGY = st.fixed_dictionaries(
    {},
    optional={
        "tensor_model_parallel_size": st.sampled_from([1, 2, 4]),
        "pipeline_model_parallel_size": st.sampled_from([1, 2, 3]),
        "context_parallel_size": st.sampled_from([1, 2, 4, 8]),
        "eval_context_parallel_size": st.sampled_from([None, 1, 2, 4]),
        "expert_model_parallel_size": st.sampled_from([1, 2]),
    },
)
PACKING = st.fixed_dictionaries(
    {}, optional={"pad_seq_to_mult": st.sampled_from([1, 2, 3, 8, 64]), "pad_cu_seqlens": st.booleans()}
)
BATCH = st.fixed_dictionaries(
    {"micro_batch_size": st.sampled_from([1, 2, 4]), "global_batch_size": st.sampled_from([4, 8, 128])},
    optional={"eval_micro_batch_size": st.sampled_from([1, 2]), "eval_global_batch_size": st.sampled_from([1, 6, 8])},
)
SWITCHES = (
    *("model.calculate_per_token_loss", "ddp.average_in_collective", "model.overlap_moe_expert_parallel_comm"),
    *("model.fused_single_qkv_rope", "model.fp8_dot_product_attention", "model.hybrid_context_parallel"),
    *("rerun_state_machine.check_for_nan_in_loss", "dataset.dataset_kwargs.answer_only_loss"),
    *("dataset.dataset_kwargs.return_cu_seqlen", "dataset.do_test"),
)
OVERRIDES: dict[str, st.SearchStrategy[Any]] = {
    **dict.fromkeys(SWITCHES, st.booleans()),
    "model.cp_comm_type": st.sampled_from(["p2p", "a2a", "all_gather", "a2a+p2p"]),
    "model.mtp_num_layers": st.sampled_from([None, 1]),
    "model.attention_backend": st.sampled_from(["auto", "flash", "unfused", "local"]),
    "model.cuda_graph_impl": st.sampled_from(["none", "transformer_engine", "full_iteration"]),
    "dataset.dataset_kwargs.pad_to_max_length": st.sampled_from([True, False, "true"]),
    "dataset.dataset_kwargs.pad_seq_length_to_mult": st.sampled_from([1, 16, 24]),
    "dataset.dataloader_type": st.sampled_from(["batch", "single", "cyclic"]),
    "train.rampup_batch_size": st.sampled_from([None, [2, 2, 100]]),
    "train.train_iters": st.sampled_from([10, 1000]),
}


def _lines(values: dict[str, Any], indent: str = "  ") -> str:
    """Return YAML of nested plain values."""
    text = ""
    for name, value in values.items():
        if isinstance(value, dict):
            text += f"{indent}{name}:\n{_lines(value, indent + '  ')}"
        else:
            text += f"{indent}{name}: {json.dumps(value)}\n"
    return text


@st.composite
def recipes(draw: st.DrawFn) -> str:
    """Return the text of a recipe with all kinds of faults."""
    paths = draw(st.lists(st.sampled_from(sorted(OVERRIDES)), unique=True, max_size=5))
    nested: dict[str, Any] = {"model": {"bf16": True}}
    for path in paths:
        *sections, leaf = path.split(".")
        node = nested
        for section in sections:
            node = node.setdefault(section, {})
        node[leaf] = draw(OVERRIDES[path])
    topology = {"num_gpus": 16, **draw(TOPOLOGY)}
    topology["sequence_parallel"] = topology.get("tensor_model_parallel_size", 1) > 1 and draw(st.booleans())
    return TEMPLATE.format(
        comments=COMMENTS,
        size=draw(SIZES),
        packing=_lines(draw(PACKING)),
        parallelism=_lines(topology),
        batch=_lines(draw(BATCH)),
        overrides=_lines(nested),
    )


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=recipes())
def test_after_fixing_nothing_fixable_is_found(text: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    try:
        SFTRecipe.from_mapping(YAML(typ="safe", pure=True).load(text))
    except ConfigError:
        reject()  # a meaningless object is no subject of rules
    before = check_target(str(file), CheckOptions())
    outcome = fix_target(str(file), CheckOptions())
    event(f"{len(outcome.changes)} changes")
    assert file.read_text(encoding="utf-8") == text, "nothing is written before it is asked for"
    if outcome.edit is None:
        assert not any(found.changes for found in before.findings if found.severity != Severity.ADVICE)
        return
    write_edit(outcome.edit)
    after = check_target(str(file), CheckOptions())
    assert [found.code for found in after.findings if found.changes and found.severity != Severity.ADVICE] == []
    assert {found.code for found in after.findings} == {found.code for found in outcome.report.findings}
    written = file.read_text(encoding="utf-8")
    assert all(comment in written for comment in COMMENTS)
    again = fix_target(str(file), CheckOptions())
    assert again.edit is None


def test_changes_that_never_end_are_told() -> None:
    with pytest.raises(ConfigError, match=r" a, b contradict each"):
        list(rounds_of_changes(lambda: {"b": 1, "a": 2}))
