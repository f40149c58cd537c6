"""Ways to break a run of the host that trains packed rows, one process at a time."""

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

from bridgepack.bridge.environment import environment_here
from bridgepack.canaries.faults import in_every_batch
from tests.support import seen_losses

_OFFSETS = ("cu_seqlens_q", "cu_seqlens_kv", "cu_seqlens_q_padded", "cu_seqlens_kv_padded")
_FIRST_BAD_STEP = 2
#: A version of Megatron-Bridge that no release here knows.
NEWER_VERSION = "0.99.0"


def apply(damage: str) -> None:
    """Break this process until it ends: one of `DAMAGES`."""
    DAMAGES[damage]()


def _cut_boundaries(micro_batch: dict[str, Any]) -> None:
    for name in (*_OFFSETS, "max_seqlen_q", "max_seqlen_kv"):
        micro_batch.pop(name, None)


def _join_sequences(micro_batch: dict[str, Any]) -> None:
    """Take the second boundary out, so that the first two sequences become one; the number of offsets stays."""
    import torch

    for name in _OFFSETS:
        if name in micro_batch:
            offsets = micro_batch[name]
            micro_batch[name] = torch.cat([offsets[:, :1], offsets[:, 2:], offsets[:, -1:]], dim=1)
    for name in ("max_seqlen_q", "max_seqlen_kv"):
        micro_batch[name] = torch.full_like(micro_batch[name], micro_batch["tokens"].shape[1])


def _shift_mask(micro_batch: dict[str, Any]) -> None:
    import torch

    micro_batch["loss_mask"] = torch.roll(micro_batch["loss_mask"], 1, dims=1)


def _change_a_token(micro_batch: dict[str, Any]) -> None:
    """Make the batch one of another pack with the same boundaries and the same mask."""
    micro_batch["tokens"][:, 1] += 1


def _fail_in_the_losses() -> None:
    """Let what sums losses by source fail in the second step."""
    from megatron.core.rerun_state_machine import get_rerun_state_machine

    from bridgepack.running.losses import step

    sum_losses = step.sum_losses

    def failing(*arguments: Any, **options: Any) -> None:
        if get_rerun_state_machine().current_iteration >= _FIRST_BAD_STEP:
            raise MemoryError("no memory left for the sums")
        sum_losses(*arguments, **options)

    step.sum_losses = failing


def _follow_losses_by_turns(first: int) -> Callable[[], None]:
    """Follow losses in ten of every twenty steps only, from a first one, so that a process is compared with itself."""

    def follow() -> None:
        from bridgepack.running.losses.callback import Losses

        begin, hidden = Losses.on_train_step_start, []

        def on_train_step_start(self: Any, context: Any) -> None:
            if self.following is not None:
                hidden[:] = [self.following]
            is_followed = (context.state.train_state.step - first) % 20 < 10
            self.following = hidden[0] if hidden and is_followed else None
            begin(self, context)

        Losses.on_train_step_start = on_train_step_start

    return follow


def _lose_boundaries_in_the_step() -> None:
    """The loader gives boundaries, and the forward step does not hand them on, as in megatron-bridge 0.4."""
    from megatron.bridge.training import gpt_step

    gpt_step._packed_metadata_for_forward = lambda batch: None


def _lose_boundaries_in_layers() -> None:
    """The model is called with boundaries, and does not hand them on to its layers."""
    from megatron.core.transformer.transformer_block import TransformerBlock

    forward = TransformerBlock.forward

    def forward_without(self: Any, *arguments: Any, **options: Any) -> Any:
        options["packed_seq_params"] = None
        return forward(self, *arguments, **options)

    TransformerBlock.forward = forward_without


def _spoil_loss(value: float) -> Callable[[], None]:
    def spoil() -> None:
        from megatron.bridge.training import gpt_step
        from megatron.core.rerun_state_machine import get_rerun_state_machine

        loss = gpt_step.masked_next_token_loss

        def spoiled(mask: Any, output: Any, **options: Any) -> Any:
            is_bad = get_rerun_state_machine().current_iteration >= _FIRST_BAD_STEP
            return loss(mask, output * value if is_bad else output, **options)

        gpt_step.masked_next_token_loss = spoiled

    return spoil


def _run_out_of_memory() -> None:
    """Fail in the backward pass of the second step, where no wrapper of the guard looks."""
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.rerun_state_machine import get_rerun_state_machine

    backward = schedules.backward_step

    def failing(*arguments: Any, **options: Any) -> Any:
        if get_rerun_state_machine().current_iteration >= _FIRST_BAD_STEP:
            raise MemoryError("no memory left for the gradient")
        return backward(*arguments, **options)

    schedules.backward_step = failing


def _detach_last_layer() -> None:
    """Let attention of the last layer pass its values on without a gradient, so that two of its modules get none."""
    from megatron.core.transformer.attention import SelfAttention

    forward = SelfAttention.forward

    def forward_detached(self: Any, *arguments: Any, **options: Any) -> Any:
        output, bias = forward(self, *arguments, **options)
        return (output.detach() if self.layer_number == self.config.num_layers else output), bias

    SelfAttention.forward = forward_detached


def _replace_a_shard() -> None:
    """Put other rows in the place of a shard between the check and the host's data sets: its own, in reverse order."""
    import megatron.bridge.training.finetune as host
    import pyarrow.parquet as pq

    finetune = host.finetune

    @wraps(finetune)
    def finetune_other_rows(config: Any, *arguments: Any, **options: Any) -> None:
        shard = min(Path(config.dataset.offline_packing_specs.packed_train_data_path).glob("*.parquet"))
        rows = pq.read_table(shard)
        pq.write_table(rows.take(list(reversed(range(len(rows))))), shard.with_name("other"))
        shard.with_name("other").replace(shard)
        finetune(config, *arguments, **options)

    host.finetune = finetune_other_rows


def _on_a_newer_host(damage: str) -> Callable[[], None]:
    """Break a run as well, on a host that says that it is newer than all that bridgepack knows."""

    def pretend() -> None:
        folder = Path(tempfile.mkdtemp())
        metadata = folder / f"megatron_bridge-{NEWER_VERSION}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Name: megatron-bridge\nVersion: {NEWER_VERSION}\n")
        sys.path.insert(0, str(folder))
        environment_here.cache_clear()
        apply(damage)

    return pretend


DAMAGES: Mapping[str, Callable[[], None]] = {
    "cut boundaries": lambda: in_every_batch(_cut_boundaries),
    "join sequences": lambda: in_every_batch(_join_sequences),
    "shift mask": lambda: in_every_batch(_shift_mask),
    "lose boundaries in the step": _lose_boundaries_in_the_step,
    "lose boundaries in layers": _lose_boundaries_in_layers,
    "detach the last layer": _detach_last_layer,
    "loss of nan": _spoil_loss(float("nan")),
    "loss of infinity": _spoil_loss(float("inf")),
    "replace a shard": _replace_a_shard,
    "change a token": lambda: (in_every_batch(_change_a_token), seen_losses.write_down())[0],
    "fail in the losses": _fail_in_the_losses,
    "follow losses of even tens": _follow_losses_by_turns(0),
    "follow losses of odd tens": _follow_losses_by_turns(10),
    "write losses down": seen_losses.write_down,
    "no memory": _run_out_of_memory,
    "join sequences on a newer host": _on_a_newer_host("join sequences"),
    "loss of nan on a newer host": _on_a_newer_host("loss of nan"),
}
