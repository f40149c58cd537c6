"""Facts of a run for rules on kernels: attention backend, padding between sequences, widths, CUDA graphs."""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

from bridgepack.rules.engine.subject import Run

#: Entries of `cuda_graph_modules` and `cuda_graph_scope` that are not modules of a layer.
#: Source: megatron/bridge/utils/cuda_graph.py:65-74.
_NO_MODULES = frozenset({"full_iteration", "full_iteration_inference", "full", ""})


def attention_backend(run: Run) -> str | None:
    """Return the attention backend that is set, e.g. `flash`, or None."""
    return run.text_or_none("model.attention_backend")


def backend_takes_effect(run: Run) -> bool:
    """Return whether the backend has an effect: the host compares enum members and ignores a plain string.

    Source: megatron/core/models/common/language_module/language_module.py:123-145.
    """
    return isinstance(run.value("model.attention_backend"), Mapping)


def pads_between_sequences(run: Run) -> bool:
    """Return whether sequences are padded to a multiple, so that logical and physical boundaries differ."""
    if run.packs_offline:
        return run.pad_seq_to_mult > 1
    return run.packs_in_batch and run.recommended_pad_seq_to_mult > 1


def replaces_attention(run: Run) -> bool:
    """Return whether the model has its own attention, to which TransformerEngine's limits do not apply."""
    return run.of_model("experimental_attention_variant") not in (None, "gated_delta_net")


def uses_engine_attention(run: Run) -> bool:
    """Return whether attention is TransformerEngine's."""
    return not replaces_attention(run)


def has_constant_width(run: Run) -> bool:
    """Return whether every row is as wide as the model's sequence length."""
    return run.pads_to_max_length and run.packed_sequence_size == run.seq_length


@dataclass(frozen=True, kw_only=True, slots=True)
class GraphCapture:
    """The parts of a step that CUDA graphs capture."""

    setting: str  #: value of `model.cuda_graph_impl`
    impl: str  #: effective value: `none`, `local`, `transformer_engine` or `full_iteration`
    modules: tuple[str, ...]  #: modules of a layer that are set; empty means whole layers
    scopes: tuple[str, ...]  #: all entries, including those that are not modules
    path: str  #: setting that turns graphs on
    off: Any  #: value that turns them off

    @property
    def is_on(self) -> bool:
        """Whether anything is captured."""
        return self.impl != "none"

    @property
    def is_full_iteration(self) -> bool:
        """Whether forward and backward of a step are one graph."""
        return self.impl == "full_iteration"

    @property
    def is_training(self) -> bool:
        """Whether the host treats the graphs as training graphs."""
        return self.impl in ("full_iteration", "transformer_engine")

    @property
    def captures_attention(self) -> bool:
        """Whether a training graph contains packed attention."""
        return self.is_full_iteration or (
            self.impl == "transformer_engine" and (not self.modules or "attn" in self.modules)
        )


def graph_capture(run: Run) -> GraphCapture:
    """Return the parts that CUDA graphs capture, from settings with the new and the old names.

    Source: megatron/bridge/utils/cuda_graph.py:28-131; megatron/core/transformer/transformer_config.py:2365-2381.
    """
    setting = run.text_or_none("model.cuda_graph_impl") or "none"
    old = {"enable_cuda_graph": "local", "external_cuda_graph": "transformer_engine"}
    flag = next((name for name in old if setting == "none" and run.stated(f"model.{name}")), "")
    entries = (graph_entries(run, f"model.cuda_graph_{name}") for name in ("modules", "scope"))
    scopes = tuple(dict.fromkeys(chain(*entries)))
    is_whole = setting == "local" and "full_iteration" in scopes
    return GraphCapture(
        setting=setting,
        impl="full_iteration" if is_whole else old.get(flag, setting),
        modules=() if setting == "none" else tuple(name for name in scopes if name not in _NO_MODULES),
        scopes=scopes,
        path=f"model.{flag or 'cuda_graph_impl'}",
        off=False if flag else "none",
    )


def graph_entries(run: Run, path: str) -> tuple[str, ...]:
    """Return the entries of the setting at a path, e.g. `("attn", "mlp")`."""
    value = run.stated(path)
    items = value if isinstance(value, (list, tuple)) else (value,)
    named = (item.get("_name_") if isinstance(item, Mapping) else item for item in items if item is not None)
    return tuple(name.rpartition(".")[2] for item in named for name in str(item).split(","))
