"""Chooses the layouts that the canary compares."""

from dataclasses import replace

from bridgepack.canary.records import HostFacts, Layout
from bridgepack.canary.tiny_model import NUM_HEADS, NUM_LAYERS
from bridgepack.errors import ConfigError

#: Maximum processes of a layout.
MAX_PROCESSES = 16
_DEFAULT = (
    Layout(),
    Layout(data=2),
    Layout(tensor=2),
    Layout(pipeline=2),
    Layout(pipeline=3),
    Layout(context=2),
    Layout(context=4),
    Layout(context=2, tensor=2, pipeline=2, sequence_parallel=True),
)


def default_layouts(facts: HostFacts, *, num_packs: int, num_devices: int | None) -> tuple[list[Layout], list[str]]:
    """Return the default layouts to compare, and notes on skipped layouts.

    `num_devices` is the number of GPUs available for a layout; None on CPU.
    """
    layouts, notes = [], []
    for layout in _DEFAULT:
        if num_devices is not None and layout.world_size > num_devices:
            notes.append(f"{layout.name} is left out: it needs {layout.world_size} GPUs; --device cpu compares it")
        elif num_packs % layout.data:
            notes.append(f"{layout.name} is left out: {num_packs} packs cannot be shared evenly")
        else:
            layouts.append(fitted(layout, facts))
    return layouts, notes


def fitted(layout: Layout, facts: HostFacts) -> Layout:
    """Return a layout with sequence parallelism if the recipe or its experts need it.

    Source: megatron-core 0.19.2, transformer/moe/moe_layer.py:630 refuses tensor parallelism without it.
    """
    is_split = layout.tensor > 1 and (layout.sequence_parallel or facts.is_moe or facts.sequence_parallel)
    return replace(layout, sequence_parallel=is_split)


def asked_layout(tensor: int | None, pipeline: int | None, context: int | None) -> Layout | None:
    """Return the layout of the options, or None if no option is given.

    Raises:
        ConfigError: the layout is impossible for the tiny model.
    """
    if tensor is None and pipeline is None and context is None:
        return None
    layout = Layout(tensor=tensor or 1, pipeline=pipeline or 1, context=context or 1)
    _require_shares("--pipeline", layout.pipeline, NUM_LAYERS, f"{NUM_LAYERS} layers")
    _require_shares("--tensor", layout.tensor, NUM_HEADS, f"{NUM_HEADS} heads", ", or less where heads share keys")
    if layout.world_size > MAX_PROCESSES:
        raise ConfigError(
            f"--tensor, --pipeline and --context ask for {layout.world_size} processes; allowed: at most "
            f"{MAX_PROCESSES}. Choose smaller sizes."
        )
    return layout


def require_fit(layout: Layout, facts: HostFacts, num_devices: int | None) -> None:
    """Check that tensor-parallel ranks share the attention heads evenly, and that a layout fits on the GPUs.

    Raises:
        ConfigError: they do not, or it does not.
    """
    heads, groups = facts.model["num_attention_heads"], facts.model["num_query_groups"]
    _require_shares("--tensor", layout.tensor, groups, f"{heads} heads in {groups} groups")
    if num_devices is not None and layout.world_size > num_devices:
        raise ConfigError(
            f"{layout.name} needs {layout.world_size} GPUs, and {num_devices} are here. Use --device cpu."
        )


def _require_shares(option: str, size: int, total: int, parts: str, more: str = "") -> None:
    if total % size:
        allowed = ", ".join(str(size) for size in range(1, total + 1) if total % size == 0)
        raise ConfigError(
            f"{option} is {size}; the canary's tiny model has {parts}; allowed: {allowed}{more}. Choose one of these."
        )
