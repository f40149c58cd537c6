"""Measures packed training on one GPU: the same loss and gradients as unpacked, step times, waiting. Needs torch.

Packs, positions and labels are bridgepack's, of the mixture of lengths of scripts/bench/balance.py; the model is a
plain transformer in bf16, with torch.nn.attention.varlen. A person puts the figures into docs/benchmarks.md with the
card's name. `--device cpu` runs a tiny model in fp32, with attention sequence by sequence; its times say
nothing of a GPU.
"""

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scripts.bench.balance import RUN, mixture
from scripts.bench.small_model import Batch, Model, Sizes

from bridgepack.canaries.packs import TokenSequence, laid_out
from bridgepack.data.packing.balance import balanced_order, pack_costs, slots_of, straggler_ratios
from bridgepack.data.packing.plan import plan_packs
from bridgepack.host import release_for
from bridgepack.planning.estimate import cost_of
from bridgepack.planning.shape import shape_of
from bridgepack.replay.collate import CollateSettings, HostBatch, predict_batch

EOS = 0


GPU = Sizes(
    hidden_size=2048,
    num_layers=8,
    num_attention_heads=16,
    ffn_hidden_size=8192,
    vocab_size=32_000,
    pack_sizes=(4096, 8192, 16_384, 32_768),
    num_sequences=2000,
    num_repeats=5,
    num_ranks=8,
    packs_per_step=32,
)
CPU = Sizes(
    hidden_size=32,
    num_layers=2,
    num_attention_heads=2,
    ffn_hidden_size=64,
    vocab_size=64,
    pack_sizes=(512, 1024),
    num_sequences=16,
    num_repeats=1,
    num_ranks=2,
    packs_per_step=4,
)


@dataclass(frozen=True, kw_only=True)
class Bench:
    """A machine, and a model on it."""

    sizes: Sizes
    device: str
    model: Model

    def sequences(self, pack_size: int) -> list[TokenSequence]:
        """Return random sequences with the mixture's lengths; the first third of each is not trained."""
        rng = np.random.default_rng(1)
        found = []
        for length in mixture(pack_size, self.sizes.num_sequences).tolist():
            ids = rng.integers(1, self.sizes.vocab_size, length + 1)
            mask = (np.arange(length + 1) >= length // 3).astype(np.int64)
            mask[-1] = 0
            found.append(TokenSequence(input_ids=ids, loss_mask=mask))
        return found

    def batch(self, sequences: Sequence[TokenSequence], pack_size: int) -> Batch:
        """Return sequences as one pack, as Megatron-Bridge collates it."""
        settings = CollateSettings(
            release=release_for(None),
            packed_sequence_size=pack_size,
            pad_seq_to_mult=1,
            eos_token_id=EOS,
            pad_to_max_length=True,
        )
        found = predict_batch([laid_out(sequences, 1, EOS)], settings)
        offsets = torch.tensor(found.cu_seqlens[0], dtype=torch.int32, device=self.device)
        return replace(self._batch(found), offsets=offsets, longest=int(found.max_seqlen.max()))

    def padded(self, sequences: Sequence[TokenSequence]) -> Batch:
        """Return sequences as rows that are padded to the longest."""
        settings = CollateSettings(
            release=release_for(None),
            packed_sequence_size=max(one.runtime_length for one in sequences),
            pad_seq_to_mult=1,
            eos_token_id=EOS,
            pad_to_max_length=True,
        )
        return self._batch(predict_batch([laid_out([one], 1, EOS) for one in sequences], settings))

    def _batch(self, found: HostBatch) -> Batch:
        arrays = (found.tokens, found.labels, found.loss_mask, found.position_ids)
        tokens, labels, mask, positions = (torch.tensor(array, device=self.device) for array in arrays)
        return Batch(tokens=tokens, labels=labels, loss_mask=mask, positions=positions)

    def step(self, batches: Sequence[Batch], model: Model | None = None) -> float:
        """Return the loss of the batches' trained tokens together, and leave its gradient at the weights."""
        model = model or self.model
        model.zero_grad(set_to_none=True)
        num_trained = sum(int(batch.loss_mask.sum()) for batch in batches)
        loss = 0.0
        for batch in batches:
            part = model(batch) / num_trained
            part.backward()
            loss += part.item()
        return loss

    def step_with_gradient(self, batches: Sequence[Batch], model: Model | None = None) -> tuple[float, torch.Tensor]:
        """Return (the loss of a step, the gradient of all weights)."""
        model = model or self.model
        loss = self.step(batches, model)
        return loss, torch.cat([one.grad.float().flatten() for one in model.parameters() if one.grad is not None])

    def seconds(self, run: Callable[[], Any]) -> float:
        """Return the median time of a call, after one that is not timed."""
        run()
        times = []
        for _ in range(self.sizes.num_repeats):
            self._wait()
            begin = time.perf_counter()
            run()
            self._wait()
            times.append(time.perf_counter() - begin)
        return statistics.median(times)

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def packs_of(sequences: Sequence[TokenSequence], pack_size: int) -> list[list[TokenSequence]]:
    """Return the packs that bridgepack makes of sequences."""
    lengths = np.array([one.runtime_length for one in sequences])
    plan = plan_packs(lengths, packed_sequence_size=pack_size)
    members = np.split(plan.sequence_order, plan.pack_offsets[1:-1])
    return [[sequences[index] for index in pack] for pack in members]


def padded_groups(sequences: Sequence[TokenSequence], pack_size: int) -> Iterator[list[TokenSequence]]:
    """Yield sequences in order, in batches that padding makes at most as large as a pack."""
    group: list[TokenSequence] = []
    for one in sequences:
        longest = max([one, *group], key=lambda member: member.runtime_length).runtime_length
        if group and longest * (len(group) + 1) > pack_size:
            yield group
            group = []
        group.append(one)
    yield group


def difference(found: tuple[float, torch.Tensor], wanted: tuple[float, torch.Tensor]) -> dict[str, float]:
    """Return the relative differences of two steps, in loss and gradient."""
    gradient = (found[1] - wanted[1]).norm() / wanted[1].norm()
    return {"loss": abs(found[0] / wanted[0] - 1), "gradient": float(gradient)}


def compare(bench: Bench, pack_size: int) -> dict[str, Any]:
    """Compare a pack with its sequences one by one, and both with fp32, which is what rounding alone changes."""
    packs = packs_of(bench.sequences(pack_size), pack_size)
    pack = max(packs, key=len)
    one_by_one = [bench.padded([one]) for one in pack]
    packed = bench.step_with_gradient([bench.batch(pack, pack_size)])
    apart = bench.step_with_gradient(one_by_one)
    exact = Model(bench.sizes).to(bench.device)
    exact.load_state_dict(bench.model.state_dict())
    wanted = bench.step_with_gradient(one_by_one, exact)
    return {
        "pack_size": pack_size,
        "num_sequences": len(pack),
        "packed_from_unpacked": difference(packed, apart),
        "unpacked_from_fp32": difference(apart, wanted),
        "packed_from_fp32": difference(packed, wanted),
    }


def time_steps(bench: Bench, pack_size: int) -> dict[str, Any]:
    """Return tokens of sequences per second, packed and in padded batches of the same sequences."""
    sequences = bench.sequences(pack_size)
    packs = packs_of(sequences, pack_size)[: bench.sizes.packs_per_step]
    rng = np.random.default_rng(2)
    of_packs = [one for pack in packs for one in pack]
    shuffled = [of_packs[index] for index in rng.permutation(len(of_packs))]
    num_tokens = sum(one.runtime_length for one in of_packs)
    packed = [bench.batch(pack, pack_size) for pack in packs]
    padded = [bench.padded(group) for group in padded_groups(shuffled, pack_size)]
    times = {"packed": bench.seconds(lambda: bench.step(packed)), "padded": bench.seconds(lambda: bench.step(padded))}
    return {
        "pack_size": pack_size,
        "num_packs": len(packed),
        "num_padded_batches": len(padded),
        "seconds_per_pack": times["packed"] / len(packed),
        "packed_tokens_per_s": num_tokens / times["packed"],
        "padded_tokens_per_s": num_tokens / times["padded"],
        "speedup": times["padded"] / times["packed"],
    }


def waiting(bench: Bench, pack_size: int) -> dict[str, Any]:
    """Compare the slowest rank by the formula of `plan` with that of measured times of packs."""
    sizes = bench.sizes
    cost = cost_of(shape_of(asdict(sizes)))
    packs = packs_of(bench.sequences(pack_size), pack_size)
    lengths = np.array([one.runtime_length for pack in packs for one in pack])
    offsets = np.cumsum([0, *map(len, packs)])
    token_cost = max(round(cost.per_token / cost.per_square), 1)
    costs = pack_costs(lengths, offsets, token_cost=token_cost, packed_sequence_size=pack_size, has_tail=True)
    batches = [bench.batch(pack, pack_size) for pack in packs]
    times = np.array([round(1e9 * bench.seconds(lambda one=one: bench.step([one]))) for one in batches])
    run = replace(RUN, data_parallel_size=sizes.num_ranks, global_batch_size=sizes.packs_per_step)
    slots = slots_of(run, len(packs))
    order = balanced_order(costs, slots)
    return {
        "pack_size": pack_size,
        "num_packs": len(packs),
        "token_cost": token_cost,
        "correlation": float(np.corrcoef(costs, times)[0, 1]),
        "unbalanced": {"formula": ratio(costs, slots), "measured": ratio(times, slots)},
        "balanced": {"formula": ratio(costs[order], slots), "measured": ratio(times[order], slots)},
    }


def ratio(costs: Any, slots: Any) -> float:
    return float(straggler_ratios(costs, slots).mean())


def main() -> int:
    """Measure, write the JSON, print the tables; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--output", type=Path, default=Path("gpu.json"), help="[gpu.json]")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU here; --device cpu runs a tiny version.", file=sys.stderr)
        return 2
    is_gpu = options.device == "cuda"
    sizes, dtype = (GPU, torch.bfloat16) if is_gpu else (CPU, torch.float32)
    if not is_gpu:
        torch.set_num_threads(1)
    torch.manual_seed(0)
    bench = Bench(sizes=sizes, device=options.device, model=Model(sizes).to(options.device, dtype))
    card = torch.cuda.get_device_name() if is_gpu else f"CPU ({platform.machine()}); times say nothing of a GPU"
    result = {
        "card": card,
        "torch": torch.__version__,
        "dtype": str(dtype),
        "model": asdict(sizes),
        "equality": [compare(bench, size) for size in sizes.pack_sizes],
        "steps": [time_steps(bench, size) for size in sizes.pack_sizes],
        "waiting": [waiting(bench, size) for size in sizes.pack_sizes],
    }
    options.output.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    print("\n".join(table(result)))
    return 0


def table(result: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the three tables."""
    yield f"{result['card']}, torch {result['torch']}, {result['dtype'].removeprefix('torch.')}\n"
    yield "Relative difference of loss and gradient:"
    yield f"{'pack size':>9} {'sequences':>9} {'packed from unpacked':>22} {'unpacked from fp32':>22}"
    for one in result["equality"]:
        pairs = (one["packed_from_unpacked"], one["unpacked_from_fp32"])
        shown = (f"{pair['loss']:.1e} {pair['gradient']:.1e}" for pair in pairs)
        yield f"{one['pack_size']:>9,} {one['num_sequences']:>9,} " + " ".join(f"{text:>22}" for text in shown)
    yield f"\n{'pack size':>9} {'ms a pack':>9} {'tokens/s packed':>15} {'padded':>10} {'faster':>7}"
    for one in result["steps"]:
        speeds = f"{one['packed_tokens_per_s']:>15,.0f} {one['padded_tokens_per_s']:>10,.0f}"
        yield f"{one['pack_size']:>9,} {1000 * one['seconds_per_pack']:>9.1f} {speeds} {one['speedup']:>6.1f}x"
    yield "\nStep time / time if every pack cost the mean, formula and measured:"
    yield f"{'pack size':>9} {'unbalanced':>16} {'balanced':>16} {'correlation':>11}"
    for one in result["waiting"]:
        shown = (f"{one[name]['formula']:.3f} {one[name]['measured']:.3f}" for name in ("unbalanced", "balanced"))
        yield f"{one['pack_size']:>9,} " + " ".join(f"{text:>16}" for text in shown) + f" {one['correlation']:>11.2f}"
