"""One training step of the host on one rank: its model, its loader, its schedule, its loss, its gradients.

What is real: megatron.bridge.training.train.train_step with gpt_step.forward_step, the packed dataset with its collate
and sampler, megatron-core's forward and backward schedule, its distributed data parallelism and finalize_model_grads.
What is not: the optimiser, which changes nothing; and on a machine without TransformerEngine the attention kernel.
"""

import copy
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from bridgepack.bridge.forward_steps import forward_step_for
from bridgepack.bridge.imports import import_host
from bridgepack.canaries import faults
from bridgepack.canaries.inputs import DATALOADER_TYPES, GATED, Rows, draw_weights, global_name, part_of, whole_shape
from bridgepack.canaries.records import IntArray, RunRequest, SeenBatch, SeenRank
from bridgepack.canaries.tiny_model import WITHOUT_KERNELS, assign_known, transformer_of


class Watch:
    """What a rank saw of its micro batches."""

    def __init__(self, model: Any, rows: list[int]) -> None:
        self._rows = rows
        self._batches: list[dict[str, Any]] = []
        self.loss = 0.0
        self.num_trained = 0
        self.router_margin: float | None = None
        model.register_forward_pre_hook(self._see_inputs, with_kwargs=True)
        is_first = True
        for name, module in model.named_modules():
            if name.endswith("core_attention") and is_first:
                module.register_forward_pre_hook(self._see_boundaries, with_kwargs=True)
                is_first = False
            if name.endswith(".router"):
                self._watch_router(module)

    def wrap(self, forward_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return the host's forward step, of which the mask and the losses are noted."""

        def step_with_batch(*arguments: Any, **options: Any) -> Any:
            batch: dict[str, Any] = {}
            self._batches.append(batch)
            output, loss_function = forward_step(*arguments, **options)
            batch["loss_mask"] = _whole_numbers(loss_function.args[0])

            def loss_with_values(output_tensor: Any) -> Any:
                batch["losses"] = output_tensor.detach().double().cpu().numpy().reshape(-1).copy()
                loss, num_tokens, report = loss_function(output_tensor)
                self.loss += float(loss.detach())
                self.num_trained += int(num_tokens)
                return loss, num_tokens, report

            return output, loss_with_values

        return step_with_batch

    def batches(self) -> tuple[SeenBatch, ...]:
        """Return what the model was called with, row by row."""
        return tuple(SeenBatch(row=row, **values) for row, values in zip(self._rows, self._batches, strict=False))

    def _see_inputs(self, _model: Any, _arguments: Any, options: dict[str, Any]) -> None:
        batch = self._batches[-1]
        batch["was_called"] = True
        batch["tokens"] = _whole_numbers(options.get("input_ids"))
        batch["position_ids"] = _whole_numbers(options.get("position_ids"))
        batch["labels"] = _whole_numbers(options.get("labels"))
        self._see_boundaries(_model, _arguments, options)

    def _see_boundaries(self, _module: Any, _arguments: Any, options: dict[str, Any]) -> None:
        """Note the boundaries that a stage is called with, then those that get as far as its attention."""
        params, batch = options.get("packed_seq_params"), self._batches[-1]
        batch["offsets"] = batch["max_seqlen"] = None
        if params is not None:
            padded_offsets = params.cu_seqlens_q_padded
            batch["offsets"] = _whole_numbers(params.cu_seqlens_q if padded_offsets is None else padded_offsets)
            batch["max_seqlen"] = int(params.max_seqlen_q)

    def _watch_router(self, router: Any) -> None:
        """Note how far an expert that is chosen is from one that is not, in logits; megatron-core's TopKRouter."""
        gating, num_chosen = router.gating, router.topk

        def gating_with_margin(*arguments: Any, **options: Any) -> Any:
            logits = gating(*arguments, **options)
            if num_chosen < logits.shape[-1]:
                best = logits.detach().double().topk(num_chosen + 1, dim=-1).values
                margin = float((best[..., -2] - best[..., -1]).min())
                self.router_margin = margin if self.router_margin is None else min(margin, self.router_margin)
            return logits

        router.gating = gating_with_margin


def _before_wrapping(model: Any, change: Callable[[Any], Any]) -> None:
    """Have a model changed after it is built: providers and models of parts keep such changes in different places."""
    if hasattr(model, "register_pre_wrap_hook"):
        model.register_pre_wrap_hook(change)
    else:
        model.pre_wrap_hooks.append(change)


def _whole_numbers(tensor: Any) -> IntArray | None:
    if tensor is None:
        return None
    numbers: IntArray = tensor.detach().cpu().numpy().reshape(-1).astype(np.int64)
    return numbers


def _trainable(model: Any) -> Iterator[tuple[str, Any]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


def _require_trained(model: Any) -> None:
    if not any(True for _ in _trainable(model)):
        raise ValueError("the adapters' target_modules name no module of the model, so nothing is trained")


def _split_dimension(model: Any, name: str, parameter: Any) -> int:
    """Return the dimension along which tensor-parallel ranks split a weight; -1 if each has all of it.

    DoRA's magnitudes are those of the rows that a rank has of the matrix (megatron/bridge/peft/dora.py of 0.6.2).
    """
    if name.endswith(_MAGNITUDE):
        parameter = model.get_parameter(f"{name.removesuffix(_MAGNITUDE)}to_wrap.weight")
        return 0 if getattr(parameter, "tensor_model_parallel", False) and parameter.partition_dim == 0 else -1
    return parameter.partition_dim if getattr(parameter, "tensor_model_parallel", False) else -1


_MAGNITUDE = "adapter.weight_magnitude"
_DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16}


def step_config(config: Any, request: RunRequest) -> Any:
    """Return the ConfigContainer of a step, made of that of the recipe with its tiny model, which is changed."""
    host = import_host("training.config")

    assign_known(config.model, _model_values(request))
    return host.ConfigContainer(
        model=config.model,
        dataset=_dataset(config.dataset, request),
        train=host.TrainingConfig(train_iters=1, micro_batch_size=1, global_batch_size=request.num_rows),
        validation=host.ValidationConfig(eval_interval=None, eval_iters=0),
        optimizer=host.OptimizerConfig(
            optimizer="adam", lr=1e-3, clip_grad=0.0, bf16=False, use_distributed_optimizer=False
        ),
        scheduler=host.SchedulerConfig(lr_decay_style="constant"),
        ddp=host.DistributedDataParallelConfig(
            use_distributed_optimizer=False,
            overlap_grad_reduce=False,
            overlap_param_gather=False,
            average_in_collective=bool(config.ddp.average_in_collective) and request.is_packed,
            grad_reduce_in_fp32=request.precision == "bfloat16",
        ),
        logger=host.LoggerConfig(log_interval=1),
        tokenizer=host.TokenizerConfig(tokenizer_type="NullTokenizer", vocab_size=request.vocab_size),
        checkpoint=host.CheckpointConfig(async_save=False),
        dist=host.DistributedInitConfig(distributed_backend="gloo" if request.kernel == "reference" else "nccl"),
        rng=host.RNGConfig(seed=1),
    )


def _model_values(request: RunRequest) -> dict[str, Any]:
    topology, dtype = request.topology, _DTYPES[request.precision]
    values: dict[str, Any] = {
        "tensor_model_parallel_size": topology.tensor_model_parallel_size,
        "pipeline_model_parallel_size": topology.pipeline_model_parallel_size,
        "context_parallel_size": topology.context_parallel_size,
        "sequence_parallel": topology.sequence_parallel,
        "seq_length": request.packed_sequence_size,
        "vocab_size": request.vocab_size,
        "params_dtype": dtype,
        "pipeline_dtype": dtype,
        "bf16": request.precision == "bfloat16",
        "variable_seq_lengths": False,
    }
    if not request.is_packed:
        # What packed steps are measured by is the loss per token, whatever the recipe says.
        values["calculate_per_token_loss"] = True
    if request.kernel != "reference":
        return values
    from bridgepack.canaries.cpu.reference_attention import reference_layer_spec

    return {**values, **WITHOUT_KERNELS, "transformer_layer_spec": reference_layer_spec}


def _dataset(dataset: Any, request: RunRequest) -> Any:
    """Return the recipe's dataset config with the sizes of the step's packs."""
    config = copy.copy(dataset)
    assign_known(config, {"seq_length": request.packed_sequence_size, "dataloader_type": "batch", "num_workers": 0})
    specs = copy.copy(config.offline_packing_specs)
    specs.packed_sequence_size = request.packed_sequence_size
    specs.pad_seq_to_mult = request.pad_seq_to_mult
    specs.pad_cu_seqlens = request.pad_cu_seqlens
    config.offline_packing_specs = specs
    return config


class Step:
    """A step of one rank; what it saw can be asked for even where it failed."""

    def __init__(self, config: Any, request: RunRequest) -> None:
        self.request = request
        self._dataset_kwargs = dict(config.dataset.dataset_kwargs or {})
        self._forward_step = forward_step_for(config)
        self._config = step_config(config, request)
        self._adapters = config.peft
        self._watch: Watch | None = None
        self._rows: Rows | None = None
        self._place: dict[str, int] = {"rank": 0, "tensor": 0, "pipeline": 0, "context": 0, "data": 0}
        self._gradients: dict[str, Any] = {}
        self._cuts: dict[str, tuple[int, int]] = {}
        self._magnitudes: dict[str, float] = {}

    def run(self) -> None:
        """Train one step."""
        host_setup = import_host("training.setup")
        state = import_host("training.state").GlobalState()
        state.cfg = self._config
        if self.request.fault == faults.LOSS_PER_RANK:
            self._config.model.calculate_per_token_loss = False
        import_host("training.config").runtime_config_update(self._config)
        self._config.dataset.dataloader_type = DATALOADER_TYPES[self.request.is_packed]
        groups = host_setup.initialize_megatron(cfg=self._config)
        kinds = {"tensor": groups.tp, "pipeline": groups.pp, "context": groups.cp, "data": groups.dp}
        self._place = {"rank": torch.distributed.get_rank(), **{kind: group.rank() for kind, group in kinds.items()}}
        if self._adapters is not None:
            apply, adapters = host_setup._apply_peft_transformation, self._adapters
            _before_wrapping(self._config.model, lambda model: apply(adapters, model))
        model = host_setup._build_distributed_model(self._config, groups)
        _require_trained(model[0])
        self._set_weights(model[0], groups)
        # It changes nothing: what it would be given is what is compared.
        optimizer = SimpleNamespace(zero_grad=lambda: None, scale_loss=lambda loss: loss, step=lambda: (True, 0.0, 0))
        self._config.model.timers = None
        settings = transformer_of(self._config.model)
        host_setup._update_model_config_funcs(
            model, settings, self._config.ddp, optimizer, align_grad_reduce=False, pg_collection=groups
        )
        self._train(state, model, optimizer, groups)
        self._gradients = {
            self._global_name(name): parameter.main_grad.detach().double().cpu().numpy()
            for name, parameter in _trainable(model[0])
        }

    def record(self) -> SeenRank:
        """Return what the rank saw so far."""
        watch = self._watch
        return SeenRank(
            **self._place,
            rows=tuple(self._rows.order) if self._rows else (),
            batches=watch.batches() if watch else (),
            loss=watch.loss if watch else 0.0,
            num_trained=watch.num_trained if watch else 0,
            gradients=self._gradients,
            cuts=self._cuts,
            magnitudes=self._magnitudes,
            calculate_per_token_loss=bool(self._config.model.calculate_per_token_loss),
            router_margin=watch.router_margin if watch else None,
        )

    def _train(self, state: Any, model: Any, optimizer: Any, groups: Any) -> None:
        from megatron.core.pipeline_parallel import get_forward_backward_func
        from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
        from megatron.core.rerun_state_machine import RerunDataIterator

        prepare = import_host("training.utils.train_utils").prepare_forward_step_func
        rows = self._rows = Rows(self.request, self._dataset_kwargs, data_rank=self._place["data"])
        self._watch = Watch(model[0].module, rows.order)
        faults.plant_in_step(self.request.fault, self._place, self.request.topology)
        forward_step = self._watch.wrap(prepare(self._forward_step, state))
        if not self.request.is_packed:
            forward_step = self._measuring(forward_step, model[0])
        import_host("training.train").train_step(
            forward_step,
            RerunDataIterator(rows.batches()),
            model,
            optimizer,
            SimpleNamespace(step=lambda **_: None),
            state,
            groups,
            get_forward_backward_func(),
            P2PCommunicator(pp_group=groups.pp, config=transformer_of(self._config.model)),
        )
        if not self.request.is_packed:
            self._measure(model[0], divisor=max(self._watch.num_trained, 1))

    def _measuring(self, forward_step: Any, model: Any) -> Any:
        """Return the forward step, before which the gradient of the row before it is measured."""
        self._sums = {name: torch.zeros_like(parameter.main_grad) for name, parameter in _trainable(model)}

        def measuring_step(*arguments: Any, **options: Any) -> Any:
            self._measure(model)
            return forward_step(*arguments, **options)

        return measuring_step

    def _measure(self, model: Any, divisor: int = 1) -> None:
        """Add the norms of the gradients that came since the last call, which the host has divided by `divisor`."""
        for name, parameter in _trainable(model):
            total, key = parameter.main_grad * divisor, self._global_name(name)
            change = total - self._sums[name]
            self._magnitudes[key] = self._magnitudes.get(key, 0.0) + float(change.double().norm())
            self._sums[name] = total

    def _set_weights(self, model: Any, groups: Any) -> None:
        num_ranks, rank = groups.tp.size(), groups.tp.rank()
        layers = (module for module in model.modules() if hasattr(module, "self_attention") and hasattr(module, "mlp"))
        self._first_layer = min((layer.layer_number - 1 for layer in layers), default=0)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                key = self._global_name(name)
                has_whole_experts = self._config.model.expert_tensor_parallel_size == 1
                is_whole = has_whole_experts and not getattr(parameter, "allreduce", True)
                dimension = -1 if is_whole else _split_dimension(model, name, parameter)
                parts = 2 if self._config.model.gated_linear_unit and GATED.search(key) else 1
                weights = draw_weights(key, whole_shape(parameter.shape, dimension, num_ranks), self.request.seed)
                part = part_of(weights, dimension, parts, num_ranks, rank)
                parameter.copy_(torch.from_numpy(np.ascontiguousarray(part)).to(parameter.dtype))
                self._cuts[key] = (dimension, parts)

    def _global_name(self, name: str) -> str:
        has_tied = bool(self._config.model.share_embeddings_and_output_weights)
        return global_name(name, first_layer=self._first_layer, has_tied_embeddings=has_tied)
