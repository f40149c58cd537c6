"""Rules on splitting layers and heads over ranks, on recomputation, sharded parameters and checkpoints."""

from collections.abc import Iterator, Mapping

from bridgepack.host.modules import DELTA_NETS
from bridgepack.host.validated import RECOMPUTED_MODULES
from bridgepack.records.messages import join, say, setting
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.run.pipeline_layouts import LETTERS, stages_of
from bridgepack.rules.run.reading import acting, switches_on
from bridgepack.rules.run.validated.precision import scales_with_delay

_TENSOR = "model.tensor_model_parallel_size"
_PIPELINE = "model.pipeline_model_parallel_size"
_VIRTUAL = "model.virtual_pipeline_model_parallel_size"
_LAYOUT = "model.pipeline_model_parallel_layout"
_PATTERN = "model.hybrid_layer_pattern"
_ENDS = ("model.num_layers_in_first_pipeline_stage", "model.num_layers_in_last_pipeline_stage")
_ACCOUNTS = ("model.account_for_embedding_in_pipeline_split", "model.account_for_loss_in_pipeline_split")
#: Numbers of stages for which the model class lays out its 19 layers itself.
#: Source: megatron/bridge/models/sarvam/sarvam_provider.py:40.
_LAID_OUT_BY_CLASS: Mapping[str, tuple[int, ...]] = {"SarvamMoEModelProvider": (2, 4, 8)}


@rule("BP819", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def heads_not_divided(run: Run) -> Found:
    """The attention heads cannot be split evenly over tensor-parallel ranks.

    Bad: num_attention_heads 32, tensor_model_parallel_size 3. Good: tensor_model_parallel_size 4.
    Fix: Set {model.tensor_model_parallel_size} to a number that divides the heads, and that divides the query groups or
        is a multiple of them. BP726 checks the heads of linear attention. Source:
        core/transformer/transformer_config.py:1323,1339
    """
    tensor, heads = run.tensor_model_parallel_size, run.integer_or_none("model.num_attention_heads")
    if heads is None:
        return
    groups = run.integer("model.num_query_groups", default=heads)
    if heads % tensor:
        yield wrong(_TENSOR, f"{tensor} with {heads} attention heads", f"a divisor of {heads}")
    elif groups % tensor and tensor % groups:
        yield wrong(_TENSOR, f"{tensor} with {groups} query groups", f"a divisor or a multiple of {groups}")


def _ends(run: Run) -> dict[str, int]:
    sizes = {path: run.stated_integer(path) for path in _ENDS}
    return {path: size for path, size in sizes.items() if size is not None}


def _accounts(run: Run) -> list[str]:
    return [path for path in _ACCOUNTS if run.is_on(path)]


def _chunks(run: Run) -> int:
    return run.stated_integer(_VIRTUAL) or 1


def _spread_text(run: Run, layers: str, over: str) -> tuple[str, str]:
    chunks = f" of {_chunks(run)} virtual stages each" if _chunks(run) > 1 else ""
    return f"{layers} over {over}{chunks}", "sizes that split the layers evenly"


@rule("BP820", ERROR, noticed="model build", evidence="read in megatron-core 0.19.2")
def uneven_pipeline_stages(run: Run) -> Found:
    """The layers cannot be split evenly over the pipeline stages.

    Why: Crash when the model is built, on every rank, minutes after the start.
    Bad: 28 layers, pipeline_model_parallel_size 8. Good: pipeline_model_parallel_size 4.
    Fix: Choose {model.pipeline_model_parallel_size} x virtual stages that divides the layers, or list the layers of
        each stage in {model.pipeline_model_parallel_layout}; hybrid models use | in {model.hybrid_layer_pattern}.
    Source: core/transformer/transformer_block.py:70-182; core/models/hybrid/hybrid_layer_allocation.py:372-464
    """
    stages = run.pipeline_model_parallel_size
    is_laid_out = run.is_set(_LAYOUT) or bool(_ends(run)) or bool(_accounts(run))
    if stages == 1 or is_laid_out or stages in _LAID_OUT_BY_CLASS.get(run.class_name("model") or "", ()):
        return
    if run.is_on("model.is_hybrid_model"):
        yield from _uneven_pattern(run, stages)
        return
    layers = run.integer_or_none("model.num_layers")
    if layers is not None and layers % (stages * _chunks(run)):
        yield wrong(_PIPELINE, *_spread_text(run, f"{layers} layers", f"{stages} stages"))


@fixable_rule("BP836", ERROR, "core/parallel_state.py:827-831", noticed="setup")
def virtual_stages_without_pipeline(run: Run) -> Found:
    """virtual_pipeline_model_parallel_size is set, but there is only one pipeline stage.

    Why: Crash at setup: the host says "pipeline-model-parallel size should be greater than 1 with interleaved
        schedule".
    Bad: pipeline_model_parallel_size 1, virtual_pipeline_model_parallel_size 2. Good: no virtual stages.
    Fix: Remove {model.virtual_pipeline_model_parallel_size}, or raise {model.pipeline_model_parallel_size}.
    """
    size = run.stated_integer(_VIRTUAL)
    if size is not None and run.pipeline_model_parallel_size == 1 and not run.is_on("dist.use_decentralized_pg"):
        yield wrong(_VIRTUAL, f"{size} with one stage", "None", to=None, because="there is only one pipeline stage")


def _uneven_pattern(run: Run, stages: int) -> Found:
    """Yield findings on the stages of a hybrid model, whose pattern may separate them by `|`: `M*M-|M*M-`.

    Source: megatron/core/models/hybrid/hybrid_layer_allocation.py:372-464.
    """
    pattern = run.stated_value(_PATTERN) or run.stated_value("model.hybrid_override_pattern")
    if not isinstance(pattern, str):
        return
    first, *parts_after = pattern.partition("/")[0].split("|")
    if not parts_after and _chunks(run) > 1:
        yield wrong(_VIRTUAL, f"{_chunks(run)} with a layer pattern that has no |", "not set, or | between stages")
    number, parts = (len(parts_after) + 1, "parts between |") if parts_after else (len(first), "layers")
    if number % stages:
        yield wrong(_PIPELINE, f"{stages} for a pattern of {number} {parts}", f"a divisor of {number}")


@rule("BP821", ERROR, "core/transformer/transformer_config.py:1923-1933,1988-2100", noticed=VALIDATE, evidence=EXECUTED)
def stage_sizes_that_do_not_add_up(run: Run) -> Found:
    """The sizes of the first or last pipeline stage, or the embedding and loss counted as layers, do not fit the model.

    Bad: 32 layers, 4 stages, num_layers_in_first_pipeline_stage 4: 28 over 3 stages. Good: 5 in the first stage.
    Fix: Make the other layers a multiple of the other stages x their virtual stages. Sizes of the first or last stage
        exclude {model.account_for_embedding_in_pipeline_split} and {model.account_for_loss_in_pipeline_split}.
    """
    ends, accounts = _ends(run), _accounts(run)
    stages, chunks = run.pipeline_model_parallel_size, _chunks(run)
    if ends and accounts:
        yield wrong(accounts[0], join(["true with ", setting(*ends)], ""), "one of the two")
    if not (ends or accounts) or run.is_set(_LAYOUT):
        return
    for path, size in ends.items():
        if size < 1 or size % chunks:
            yield wrong(path, str(size), f"a positive multiple of {chunks}")
    layers, middle = run.integer("model.num_layers") + len(accounts) - sum(ends.values()), stages - len(ends)
    if bool(layers) != bool(middle) or (middle and layers % (middle * chunks)):
        beside = "beside the first and last stage" if ends else "with embedding or loss"
        yield wrong((*ends, *accounts)[0], *_spread_text(run, f"{layers} layers {beside}", f"{middle} stages"))


@rule("BP822", ERROR, noticed=VALIDATE, evidence=EXECUTED)
def layout_contradicts_stages(run: Run) -> Found:
    """The stages or layers of pipeline_model_parallel_layout do not match the model's.

    Bad: 16 layers on 2 stages, layout "Et*8|t*7L". Good: "Et*8|t*8L".
    Fix: List pipeline x virtual stages, with one E first, one L last, and one t per layer of the model; do not set
        {model.num_layers_in_first_pipeline_stage}, {model.num_layers_in_last_pipeline_stage} or account_for_*.
    Source: core/transformer/transformer_config.py:1935-1986; core/transformer/pipeline_parallel_layer_layout.py
    """
    if not run.is_set(_LAYOUT):
        return
    parts_after = [*_ends(run), *_accounts(run)]
    if parts_after:
        yield wrong(_LAYOUT, join(["set with ", setting(*parts_after)], ""), "the layout alone")
    stages, size = stages_of(run.value(_LAYOUT)), run.pipeline_model_parallel_size
    chunks, remainder = divmod(len(stages), size)
    if remainder:
        yield wrong(_LAYOUT, f"{len(stages)} stages", f"a multiple of pipeline_model_parallel_size {size}")
    elif run.is_set(_VIRTUAL) and _chunks(run) != chunks:
        yield wrong(
            _VIRTUAL, f"{_chunks(run)} with a layout of {len(stages)} stages on {size}", f"{chunks}, or not set"
        )
    else:
        yield from _misplaced_layers(run, stages, first_of_last_chunks=len(stages) - size)


def _misplaced_layers(run: Run, stages: list[list[str]], *, first_of_last_chunks: int) -> Found:
    kinds = [kind for stage in stages for kind in stage]
    foreign = sorted(set(kinds) - set(LETTERS.values()))
    if foreign:
        yield wrong(_LAYOUT, f"layers {', '.join(map(repr, foreign))}", "embedding (E), decoder (t), mtp (m), loss (L)")
    elif kinds[:1] + kinds[-1:] != ["embedding", "loss"] or kinds.count("embedding") + kinds.count("loss") != 2:
        yield wrong(
            _LAYOUT,
            "embedding or loss at a wrong place, or not exactly once",
            "embedding (E) once at the beginning, loss (L) once at the end",
        )
    num_layers = {"decoder": run.integer("model.num_layers"), "mtp": run.num_mtp_layers}
    for kind, number in num_layers.items():
        if kinds.count(kind) != number:
            yield wrong(_LAYOUT, f"{kinds.count(kind)} {kind} layers", f"{number}, as the model has")
    holders = [index for index, stage in enumerate(stages) if "mtp" in stage]
    if holders and (len(holders) > 1 or holders[0] < first_of_last_chunks or "decoder" in kinds[kinds.index("mtp") :]):
        yield wrong(
            _LAYOUT, "mtp layers separated, or before decoders", "all in one of the last virtual stages, after decoders"
        )


_RECOMPUTED = "model.recompute_granularity"
_METHODS = ("block", "uniform")


@fixable_rule("BP834", ERROR, "core/transformer/transformer_config.py:1721-1838", noticed=VALIDATE, evidence=EXECUTED)
def recomputation_half_described(run: Run) -> Found:
    """The recompute settings are incomplete or contradict recompute_granularity.

    Bad: recompute_granularity full, recompute_method not set. Good: full, uniform, recompute_num_layers 1.
    Fix: With full, set {model.recompute_method} to uniform or block, and {model.recompute_num_layers}. With selective,
        set neither, and name modules in {model.recompute_modules} that the model has.
    """
    granularity, method = run.stated_value(_RECOMPUTED), run.stated_value("model.recompute_method")
    if granularity is None:
        return
    if granularity not in ("full", "selective"):
        yield wrong(_RECOMPUTED, repr(granularity), "full, selective or None")
    if method not in _METHODS and (method is not None or granularity != "selective"):
        yield wrong("model.recompute_method", f"{method} with {granularity}", " or ".join(_METHODS))
    layers = run.stated_value("model.recompute_num_layers")
    if (layers is None) != (granularity == "selective"):
        allowed_values = "None" if granularity == "selective" else "a number of layers"
        yield wrong("model.recompute_num_layers", f"{layers} with {granularity}", allowed_values)
    if run.is_on("model.distribute_saved_activations") and run.splits_sequence:
        yield wrong("model.distribute_saved_activations", "true with sequence_parallel true", "false", to=False)
    if granularity == "selective":
        for name, allowed_values in _wrong_recomputation(run):
            yield wrong("model.recompute_modules", repr(name), allowed_values)


def _wrong_recomputation(run: Run) -> Iterator[tuple[str, str]]:
    """Yield (module, what is allowed) of those that cannot be recomputed in this model.

    Source: megatron/core/transformer/transformer_config.py:1765-1838.
    """
    fits = {
        "moe_act": run.is_on("model.moe_grouped_gemm"),
        "mla_up_proj": run.is_on("model.multi_latent_attention"),
        "gdn_norm_out": run.stated_value("model.experimental_attention_variant") in DELTA_NETS,
        "shared_experts": not (
            run.is_set("model.moe_shared_expert_intermediate_size") and run.is_on("model.moe_shared_expert_overlap")
        ),
    }
    for name in map(str, run.items("model.recompute_modules")):
        if name in ("moe_act", "layernorm") and scales_with_delay(run):
            yield name, "other modules with delayed FP8 scaling"
        elif name not in RECOMPUTED_MODULES:
            yield name, ", ".join(RECOMPUTED_MODULES)
        elif not fits.get(name, True):
            yield name, f"with {RECOMPUTED_MODULES[name]}"


@fixable_rule("BP835", ERROR, "core/model_parallel_config.py:545-558", noticed=VALIDATE, evidence=EXECUTED)
def embedding_gradient_deferred_without_pipeline(run: Run) -> Found:
    """The gradient of the output embedding is deferred to the pipeline's end, but there is no pipeline or no limit.

    Bad: defer_embedding_wgrad_compute true, pipeline_model_parallel_size 1, as in a Llama 3.1 405B recipe scaled down.
    Good: defer_embedding_wgrad_compute false.
    Fix: Set {model.defer_embedding_wgrad_compute} to false; with a pipeline, set {model.wgrad_deferral_limit} to 0 or
        more.
    """
    deferral, limit = acting(run, "defer_embedding_wgrad_compute"), acting(run, "wgrad_deferral_limit")
    if run.stated_value(deferral) is not True:
        return
    if run.pipeline_model_parallel_size == 1:
        fix = say("Set {path} to false.", path=setting(deferral))
        yield wrong(deferral, "true with one pipeline stage", "false", to=False, fix=fix)
    number = run.stated_integer(limit)
    if (number is None and limit.startswith("comm_overlap.")) or (number is not None and number < 0):
        value, fix = "not set" if number is None else number, say("Set {path} to 0 or more.", path=setting(limit))
        actual = say("{value}, with {path} true", value=value, path=setting(deferral))
        yield wrong(limit, actual, "0 or more", fix=fix)


_FORMAT = "checkpoint.ckpt_format"
_SHARDED_FORMAT = "fsdp_dtensor"
_HASHES = "train.check_weight_hash_across_dp_replicas_interval"
_MEGATRON_FSDP = ("dist.use_megatron_fsdp", "ddp.use_megatron_fsdp")


def _keeps_checkpoints(run: Run) -> bool:
    return run.is_set("checkpoint.save") or run.is_set("checkpoint.load")


@fixable_rule("BP823", ERROR, "bridge/training/config.py:1065-1116,1341-1346,1390", noticed=VALIDATE, evidence=EXECUTED)
def sharded_parameters_contradicted(run: Run) -> Found:
    """Fully sharded data parallelism is on with settings that exclude it, or its checkpoint format is set without it.

    Bad: use_megatron_fsdp true, checkpoint.save set, ckpt_format torch_dist. Good: ckpt_format fsdp_dtensor.
    Fix: With Megatron-FSDP write checkpoints as fsdp_dtensor, and turn {dist.use_torch_fsdp2},
        {dist.use_tp_pp_dp_mapping} and {ddp.fsdp_manual_registration} (without {ddp.nccl_ub}) off. Without
        Megatron-FSDP use torch_dist.
    """
    switched_on, is_saved_so = switches_on(run, *_MEGATRON_FSDP), run.stated_value(_FORMAT) == _SHARDED_FORMAT
    if not switched_on:
        if is_saved_so and _keeps_checkpoints(run):
            yield wrong(_FORMAT, "fsdp_dtensor without Megatron-FSDP", "torch_dist", to="torch_dist")
        return
    with_it = say("with {path} true", path=setting(switched_on[0]))
    if _keeps_checkpoints(run) and not is_saved_so:
        actual = join([str(run.stated_value(_FORMAT)), with_it], " ")
        yield wrong(
            _FORMAT, actual, _SHARDED_FORMAT, to=_SHARDED_FORMAT, because="Megatron-FSDP has its own checkpoint format"
        )
    if run.is_on("dist.use_torch_fsdp2") and (_MEGATRON_FSDP[0] in switched_on or _keeps_checkpoints(run)):
        yield wrong("dist.use_torch_fsdp2", join(["true", with_it], " "), "one of the two")
    if run.stated_value("ddp.megatron_fsdp_version") == 2:  # BP838
        return
    if run.is_on("ddp.fsdp_manual_registration") and not run.is_on("ddp.nccl_ub"):
        yield wrong("ddp.fsdp_manual_registration", say("true without {ddp.nccl_ub}"), "false, or with nccl_ub")
    if run.stated_value("ddp.data_parallel_sharding_strategy") == "optim_grads_params" and run.is_set(_HASHES):
        yield wrong(_HASHES, f"{run.value(_HASHES)} with sharding optim_grads_params", "None")
    if run.is_on("dist.use_tp_pp_dp_mapping"):
        yield wrong("dist.use_tp_pp_dp_mapping", join(["true", with_it], " "), "false", to=False)


@fixable_rule("BP824", ERROR, "bridge/training/config.py:600,1397,1412,1419-1426", noticed=VALIDATE, evidence=EXECUTED)
def checkpoints_without_their_groups(run: Run) -> Found:
    """The process groups or the checkpoint format do not support the way checkpoints are written.

    Bad: use_gloo_process_groups false, a distributed optimizer, ckpt_format torch. Good: ckpt_format torch_dist.
    Fix: Use torch_dist if checkpoints are written asynchronously, or if a distributed optimizer runs without gloo. Turn
        {dist.use_gloo_process_groups} off with {dist.use_decentralized_pg}.
    """
    gloo = "dist.use_gloo_process_groups"
    if run.is_on("dist.use_decentralized_pg") and run.is_on(gloo):
        yield wrong(
            gloo, "true with use_decentralized_pg true", "false", to=False, because="decentralized groups use NCCL only"
        )
    if run.is_on("checkpoint.async_save") and not run.is_set("checkpoint.save"):
        yield wrong("checkpoint.async_save", say("true without {checkpoint.save}"), "false", to=False)
    if run.stated_value(_FORMAT) in (None, "torch_dist", _SHARDED_FORMAT):
        return
    is_sharded = switches_on(
        run, "optimizer.use_distributed_optimizer", "ddp.use_distributed_optimizer", *_MEGATRON_FSDP
    )
    reasons = ["async_save true"] * run.is_on("checkpoint.async_save")
    reasons += ["a distributed optimizer and no gloo"] * (run.stated_value(gloo) is False and bool(is_sharded))
    if reasons:
        actual = f"{run.value(_FORMAT)} with {' and '.join(reasons)}"
        yield wrong(_FORMAT, actual, "torch_dist or fsdp_dtensor", to="torch_dist", because="it is written in parallel")
