"""Finds the legal layouts of a pack size that fit into memory, the fastest first by estimate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.bridge.bases import base_of
from bridgepack.bridge.dynamic_context import dynamic_groups
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.refusing.refusals import errors_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.balance import balance_for
from bridgepack.planning.candidate import Candidate
from bridgepack.planning.estimate import Arithmetic, Speed, Waiting, Work, cost_of, waiting_of
from bridgepack.planning.layout import Gpu, Layout, Memory, StageBytes, States, layouts
from bridgepack.planning.lengths import Lengths, PackedLengths, pack_lengths
from bridgepack.planning.limits import Limits, limits_of
from bridgepack.planning.online import OnlinePacking, grouped_online, packed_online
from bridgepack.planning.shape import ModelShape
from bridgepack.planning.stages import STAGES, Split, split_changes, splits, stated_split
from bridgepack.planning.states import states_of

#: Layouts of a size that the rules are asked about, and candidates of a size that are kept.
_ASKED, _KEPT = 32, 2
#: Share of the time (0-1) within which layouts count as equally fast.
_AS_FAST = 0.05
#: A step may have so many times the tokens that the recipe asks for; ranks in plenty ask for more packs.
_MAX_GROWTH = 2.0
#: Packs for each step that waiting is taken from, where packs of a sample are repeated.
_REPEATED_STEPS = 8
#: Part of a step's arithmetic (0-1) that balanced packs have to save, for a candidate to ask for them.
_LEAST_GAIN = 0.01


@dataclass(frozen=True, kw_only=True)
class Search:
    """The possible pack sizes and layouts of a recipe on GPUs."""

    recipe: SFTRecipe
    shape: ModelShape
    lengths: Lengths
    gpu: Gpu
    num_gpus: int
    speed: Speed
    num_refused: Counter[str] = field(default_factory=Counter)  #: code of a rule -> layouts
    reasons: dict[str, str] = field(default_factory=dict)  #: code of a rule -> what it said first
    #: layouts whose weights alone do not fit, with packs of any size
    too_heavy: set[Layout] = field(default_factory=set)

    @property
    def _is_full(self) -> bool:
        return self.recipe.method.kind == "full"

    def best_of(self, size: int) -> list[Candidate]:
        """Return the best legal candidates of a pack size; empty if nothing fits.

        Candidates whose step needs more packs than exist are returned only if there are no others.
        """
        packed_to = cache(partial(self._pack, size))
        if not packed_to(1).packs:
            return []
        fitting = [
            (layout, way) for layout, way in self._ways if self._is_possible(layout, size) and self._fits(layout, size)
        ]
        cost = cost_of(self.shape)
        means = {
            context: Work.from_packs(packed_to(1), cost, context).mean
            for context in {layout.context for layout, _ in fitting}
        }
        by_time = [(self._rough_s(layout, size, means[layout.context]), layout, way) for layout, way in fitting]
        best: list[Candidate] = []
        short: list[Candidate] = []
        for layout, way in self._simplest_first(by_time, size)[:_ASKED]:
            if len(best) == _KEPT:
                break
            plain = replace(layout, modules=())
            if any(replace(candidate.layout, modules=()) == plain for candidate in (*best, *short)):
                continue  # the same with other modules recomputed
            changes = self._changes(layout, way, size)
            if not self._is_refused(changes):
                candidate = self._candidate(layout, size, packed_to(self._multiple(layout)), changes)
                candidates = short if candidate.is_short else best
                if not (candidates and 1 < candidate.tokens_per_s / candidates[0].tokens_per_s <= 1 + _AS_FAST):
                    candidates.append(candidate)
        return best or short[:_KEPT]

    def online(self, candidate: Candidate, *, has_dynamic_context: bool) -> tuple[OnlinePacking, ...]:
        """Return what the host's packing at run time makes of the sequences with a candidate's layout and pack size."""
        layout, seed = candidate.layout, self.recipe.packing.seed
        packs = self._pack(candidate.packed_sequence_size, self._multiple(layout))
        packings = [packed_online(candidate, packs, self._arithmetic(layout), seed=seed)]
        if has_dynamic_context:
            flat = self._arithmetic(replace(layout, context=1))
            packings.append(grouped_online(candidate, packs, flat, seed=seed, grouping=dynamic_groups))
        return tuple(packing for packing in packings if packing is not None)

    def why_nothing(self, sizes: tuple[int, ...]) -> str:
        """Return why there is no candidate."""
        if self.num_refused:
            code, count = self.num_refused.most_common(1)[0]
            return (
                f"--num-gpus is {self.num_gpus}; the rules refuse every layout that fits, {count} of them by {code}: "
                f"{self.reasons[code]}. Change the recipe as the rule says."
            )
        if not self._pack(max(sizes), 1).packs:
            shortest = int(self.lengths.runtime.min())
            longest = self._sizes(max(sizes))["packing.max_sequence_length"] or max(sizes)
            return (
                f"the shortest sequence has {shortest:,} runtime tokens; allowed: at most {longest:,}, by the model, "
                "packing.max_sequence_length, or the largest packs that are compared. Set preprocessing.over_long to "
                "truncate or split."
            )
        smallest = min(sizes)
        layouts_of_size = [layout for layout, _ in self._ways if smallest % self._multiple(layout) == 0]
        least = min((self.memory(layout, smallest).total_gb for layout in layouts_of_size), default=math.inf)
        because = self._limits.because
        if least <= self.gpu.budget_gb:
            return (
                f"--num-gpus is {self.num_gpus}; a step of {self._step_tokens:,} tokens has fewer packs than the GPUs "
                "have copies of the model. Raise batch.tokens_per_step or batch.global_batch_size, or use fewer GPUs."
            )
        return (
            f"--num-gpus is {self.num_gpus}; {self.shape.num_weights / 1e9:.1f} billion weights take {least:,.0f} GB "
            f"of each {self.gpu.name} by estimate, in the best layout with packs of {smallest:,} tokens; allowed: at "
            f"most {self.gpu.budget_gb:.0f} GB{because and f'; {because}'}. Use more GPUs, or larger ones"
            f"{self._is_full * ', or adapters: method.kind lora, for `new` --method lora'}."
        )

    def _pack(self, size: int, multiple: int) -> PackedLengths:
        return pack_lengths(self.lengths, self.recipe.override(self._sizes(size)), multiple)

    def _fits(self, layout: Layout, size: int) -> bool:
        if layout in self.too_heavy:
            return False
        memory = self.memory(layout, size)
        if memory.states_gb > self.gpu.budget_gb:
            self.too_heavy.add(layout)
        return memory.total_gb <= self.gpu.budget_gb

    def _simplest_first(self, by_time: list[tuple[float, Layout, Split]], size: int) -> list[tuple[Layout, Split]]:
        """Return layouts by time; of those as fast as the fastest, those with room first, then the simplest."""
        limit = min((seconds for seconds, *_ in by_time), default=0.0) * (1 + _AS_FAST)

        def order(entry: tuple[float, Layout, Split]) -> tuple[Any, ...]:
            seconds, layout, way = entry
            if seconds > limit:
                return (True, seconds)
            is_tight = self.memory(layout, size).total_gb > self.gpu.easy_gb
            recomputation = (layout.recomputes, len(layout.modules))
            sizes = (layout.pipeline, layout.virtual, layout.context, layout.expert, layout.tensor)
            return (False, is_tight, *recomputation, bool(way.settings), *sizes, seconds)

        return [(layout, way) for _, layout, way in sorted(by_time, key=order)]

    def _is_possible(self, layout: Layout, size: int) -> bool:
        """Return whether packs of a size can be cut and counted for a layout; interleaving takes them in rounds."""
        batch = self._batch(layout, size)
        in_rounds = layout.virtual == 1 or batch // layout.data % layout.pipeline == 0
        return size % self._multiple(layout) == 0 and in_rounds and batch * size <= _MAX_GROWTH * self._step_tokens

    def memory(self, layout: Layout, size: int) -> Memory:
        """Return the memory of the fullest GPU in a layout with packs of a size."""
        return self._stage_bytes(layout).memory(size, self._batch(layout, size) // layout.data)

    @cached_property
    def _stage_bytes(self) -> Callable[[Layout], StageBytes]:
        return cache(lambda layout: StageBytes.of(self.shape, layout, is_full=self._is_full, states=self._states))

    @cached_property
    def _values(self) -> Mapping[str, Any]:
        """Settings of the recipe's run, as plain values of the host."""
        return config_of_recipe(self.recipe.override({"artifact": None})).values

    @cached_property
    def _states(self) -> States:
        return states_of(self._values, self.recipe.release.facts)

    @cached_property
    def _base_model(self) -> Mapping[str, Any]:
        """Settings of the model in the recipe's base."""
        return base_of(self.recipe).get("model") or {}

    @cached_property
    def _base(self) -> Mapping[str, Any]:
        """Settings of the model with the stages that the recipe's base, or the recipe itself, splits its layers for."""
        base, parallelism = self._base_model, self.recipe.parallelism
        overrides = self.recipe.bridge_overrides.get("model", {})
        if stated_split({**base, **overrides}, len(self.shape.layers)) != stated_split(base, len(self.shape.layers)):
            stages = {name: getattr(parallelism, name) for name in STAGES}
            return {**base, **overrides, **stages}
        return base

    @cached_property
    def _ways(self) -> list[tuple[Layout, Split]]:
        ways = splits(self.shape, self.num_gpus, self._base)
        possible = layouts(self.shape, self.gpu, self.num_gpus, ways, is_full=self._is_full)
        # the host refuses the two together; megatron/core/transformer/transformer_config.py of 0.19.2
        excluded_modules = {"moe_act"} if "delayed" in self.recipe.precision.recipe else set[str]()
        limited_layouts = (
            (self._limits.left_of(layout), way)
            for layout, way in possible
            if not excluded_modules & set(layout.modules)
        )
        return [(layout, way) for layout, way in limited_layouts if layout is not None]

    @cached_property
    def _limits(self) -> Limits:
        return limits_of(self.recipe, self.gpu.name)

    def _multiple(self, layout: Layout) -> int:
        """Return the multiple of lengths: the layout's, combined with the recipe's."""
        return math.lcm(layout.multiple, self.recipe.packing.pad_seq_to_mult or 1)

    @property
    def _step_tokens(self) -> int:
        batch = self.recipe.batch
        return batch.tokens_per_step or batch.global_batch_size * self.recipe.packing.packed_sequence_size

    def _batch(self, layout: Layout, size: int) -> int:
        """Return the packs per step: a multiple of the model copies, nearest to the recipe's tokens per step."""
        copies = layout.data
        if self._limits.takes_one_pack:
            return copies
        return max(round(self._step_tokens / size / copies), 1) * copies

    @cached_property
    def _arithmetic(self) -> Callable[[Layout], Arithmetic]:
        facts: dict[str, Any] = {"shape": self.shape, "gpu": self.gpu, "is_full": self._is_full, "speed": self.speed}
        return cache(lambda layout: Arithmetic(layout=layout, **facts))

    def _rough_s(self, layout: Layout, size: int, mean: Work) -> float:
        """Return the seconds per token on all GPUs with mean packs, without waiting and padding."""
        batch = self._batch(layout, size)
        step_s = self._arithmetic(layout).mean_step_s(mean, batch // layout.data)
        return step_s / (batch * float(mean.tokens[0]))

    def tokens_per_s(self, layout: Layout, size: int) -> float:
        """Return the tokens per second and GPU of a layout with mean packs of a size, without waiting and padding."""
        mean = Work.from_packs(self._pack(size, 1), cost_of(self.shape), layout.context).mean
        return 1 / self._rough_s(layout, size, mean) / self.num_gpus

    def _sizes(self, size: int) -> dict[str, Any]:
        lengths = (self.recipe.packing.max_sequence_length, self.shape.longest)
        longest = [length for length in lengths if length and length < size]
        return {"packing.packed_sequence_size": size, "packing.max_sequence_length": min(longest, default=None)}

    def _changes(self, layout: Layout, way: Split, size: int) -> dict[str, Any]:
        is_mixture, has_windows = bool(self.shape.num_experts), any(layer.window for layer in self.shape.layers)
        artifact, parallelism = self.recipe.artifact, self.recipe.parallelism
        # windows take one way only in which context-parallel ranks exchange keys and values
        exchange = None if layout.context == 1 else "a2a" if has_windows else parallelism.cp_comm_type
        changes = {
            **self._sizes(size),
            "packing.pad_seq_to_mult": self._multiple(layout) if self.recipe.packing.pad_seq_to_mult else None,
            **({"artifact": None} if artifact and Path(artifact).exists() else {}),  # it has other packs
            "parallelism.num_gpus": layout.num_gpus,
            "parallelism.tensor_model_parallel_size": layout.tensor,
            "parallelism.pipeline_model_parallel_size": layout.pipeline,
            "parallelism.context_parallel_size": layout.context,
            "parallelism.expert_model_parallel_size": layout.expert,
            "parallelism.expert_tensor_parallel_size": 1 if is_mixture and layout.tensor > 1 else None,
            "parallelism.sequence_parallel": layout.tensor > 1 and layout.splits_sequence,
            "parallelism.virtual_pipeline_model_parallel_size": layout.virtual if layout.virtual > 1 else None,
            "parallelism.hierarchical_context_parallel_sizes": None,
            "parallelism.eval_context_parallel_size": None,
            "parallelism.cp_comm_type": exchange,
            "batch.tokens_per_step": None,
            "batch.global_batch_size": self._batch(layout, size),
            "batch.micro_batch_size": 1,
            "batch.eval_global_batch_size": None,
            "model.recompute": "full" if layout.recomputes else "selective" if layout.modules else "none",
            "bridge_overrides.model.recompute_modules": list(layout.modules) or None,
        }
        changes = {path: value for path, value in changes.items() if value is not None or value_at(self.recipe, path)}
        return changes | split_changes(way, self._base_model, self.recipe.bridge_overrides.get("model", {}))

    def _is_refused(self, changes: Mapping[str, Any]) -> bool:
        errors = errors_of(self.recipe.override({**changes, "artifact": None}))
        for finding in errors[:1]:
            self.num_refused[finding.code] += 1
            self.reasons.setdefault(finding.code, f"{finding.where} is {finding.found}; allowed: {finding.allowed}")
        return bool(errors)

    def _candidate(self, layout: Layout, size: int, packs: PackedLengths, changes: Mapping[str, Any]) -> Candidate:
        batch, num_useful = self._batch(layout, size), packs.num_tokens / (1 + packs.added_fraction)
        num_packs = max(round(packs.num_packs / self.lengths.share), 1)
        arithmetic, work = self._arithmetic(layout), Work.from_packs(packs, cost_of(self.shape), layout.context)
        packs_s = arithmetic.packs_s(work)
        recipe, kind = self.recipe.override({**changes, "artifact": None}), self.recipe.packing.balance.kind
        # costs of all packs, or of some steps of them, where those of a sample stand for more
        num_costs = min(max(num_packs, batch), max(len(packs_s), batch * _REPEATED_STEPS))
        waiting = waiting_of(np.resize(packs_s, num_costs), recipe)
        balance = _balance(recipe, waiting)
        micro_s, num_micro, imbalance = float(packs_s.mean()), batch // layout.data, arithmetic.imbalance(work.mean)
        busy_s = micro_s * num_micro
        with_bubbles_s = arithmetic.step_s(micro_s, num_micro, imbalance)
        bubbles_s = busy_s * (arithmetic.pipeline_ratio(num_micro, imbalance) - 1)
        step_s = with_bubbles_s + (busy_s + bubbles_s) * max(waiting.ratio(balance) - 1, 0.0)
        parts = {
            "matrices": float(arithmetic.linear_s(work.tokens).mean()) * num_micro,
            "attention": float(arithmetic.attention_s(work.attention).mean()) * num_micro,
            # what no pass hides of the gradients' exchange is exchange, too
            "exchange": float(arithmetic.exchange_s(work.tokens).mean()) * num_micro
            + (with_bubbles_s - busy_s - bubbles_s),
            "pipeline": bubbles_s,
            "waiting": step_s - with_bubbles_s,
        }
        return Candidate(
            packed_sequence_size=size,
            layout=layout,
            global_batch_size=batch,
            num_packs=num_packs,
            fill_fraction=packs.fill_fraction,
            padding_fraction=packs.padding_fraction,
            over_long_fraction=packs.over_long_fraction,
            lost_fraction=packs.lost_fraction,
            added_fraction=packs.added_fraction,
            waiting=waiting,
            balance=balance,
            memory=self.memory(layout, size),
            step_s=step_s,
            tokens_per_s=num_useful / packs.num_packs * batch / step_s / self.num_gpus,
            parts={name: part / step_s for name, part in parts.items()},
            changes=changes if balance == kind else {**changes, "packing.balance.kind": balance},
        )


def _balance(recipe: SFTRecipe, waiting: Waiting) -> str:
    """Return what a candidate balances: what its recipe says, else batches where that gains; none where none can be."""
    kind = recipe.packing.balance.kind
    if kind == "none" and waiting.straggler_ratio - waiting.balanced_ratio <= _LEAST_GAIN:
        return kind
    balance = "within_batch" if kind == "none" else kind
    try:
        balance_for(recipe.override({"packing.balance.kind": balance}))
    except ConfigError:
        return "none"
    return balance
