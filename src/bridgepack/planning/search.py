"""Finds the legal layouts of a pack size that fit into memory, the fastest first by estimate."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.bridge.plain import value_at
from bridgepack.bridge.recipe import config_of_recipe
from bridgepack.bridge.refusing.asked import in_users_words
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.planning.balance import balance_for
from bridgepack.planning.estimate import Arithmetic, Speed, Waiting, Work, cost_of, waiting_of
from bridgepack.planning.layout import Gpu, Layout, Memory, layouts, memory_of
from bridgepack.planning.lengths import Lengths, PackedLengths, packed
from bridgepack.planning.shape import ModelShape
from bridgepack.records import Finding
from bridgepack.rules.engine.environment import target_versions
from bridgepack.rules.engine.judge import judge_run
from bridgepack.rules.engine.loaded import in_current_names
from bridgepack.rules.engine.rule import Severity
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.registry import RUN_RULES

#: Layouts of a size that the rules are asked about, and candidates of a size that are kept.
_ASKED, _KEPT = 32, 2
#: A step may have so many times the tokens that the recipe asks for; ranks in plenty ask for more packs.
_MAX_GROWTH = 2.0
#: Packs for each step that waiting is taken from, where packs of a sample are repeated.
_REPEATED_STEPS = 8
#: Part of a step's arithmetic (0-1) that balanced packs have to save, for a candidate to ask for them.
_LEAST_GAIN = 0.01


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """A pack size and layout for a recipe; seconds, tokens per second and memory are estimates."""

    packed_sequence_size: int  #: runtime tokens of a pack
    layout: Layout  #: layout over the GPUs
    global_batch_size: int  #: packs per step; a forward pass takes one
    num_packs: int  #: packs of the run's data
    fill_fraction: float  #: as of `PackedLengths`
    padding_fraction: float  #: as of `PackedLengths`
    over_long_fraction: float  #: as of `PackedLengths`
    lost_fraction: float  #: as of `PackedLengths`
    waiting: Waiting  #: of ranks for each other
    balance: str  #: `packing.balance.kind` of the estimate
    memory: Memory  #: memory of the fullest GPU
    step_s: float  #: seconds of an optimiser step
    tokens_per_s: float  #: runtime tokens without padding per second and GPU
    parts: Mapping[str, float]  #: shares of a step's time (0-1): matrices, attention, exchange, pipeline, waiting
    changes: Mapping[str, Any] = field(repr=False)  #: dotted path of the recipe -> value

    @property
    def is_short(self) -> bool:
        """Whether the data has fewer packs than a step, so that training cannot start."""
        return self.num_packs < self.global_batch_size

    def loses(self, best: Candidate) -> str:
        """Return text on how much slower it is than the best candidate, and why."""
        share = self.tokens_per_s / best.tokens_per_s - 1
        grown = {
            name: part / self.tokens_per_s - best.parts[name] / best.tokens_per_s for name, part in self.parts.items()
        }
        worst = max(grown, key=lambda name: grown[name])
        lost = f"loses {self.lost_fraction:.1%} of the tokens" if self.lost_fraction > best.lost_fraction else ""
        short = "fewer packs than the global batch" if self.is_short and not best.is_short else ""
        slower = f"{-share:.0%} slower: {worst}" if share < 0 else ""
        return ", ".join(filter(None, (slower, lost, short))) or "as fast"


def refusals(recipe: SFTRecipe) -> list[Finding]:
    """Return the errors that `check` finds in a recipe without files and packs, in the recipe's own fields."""
    versions = target_versions()
    config = config_of_recipe(recipe)
    run = Run(config=in_current_names(config, versions), versions=versions)
    return [
        in_users_words(finding, config)
        for finding in judge_run(run, RUN_RULES).findings
        if finding.severity is Severity.ERROR and finding.code not in config.ignored
    ]


@dataclass(frozen=True, kw_only=True)
class Search:
    """The possible pack sizes and layouts of a recipe on GPUs."""

    recipe: SFTRecipe
    shape: ModelShape
    lengths: Lengths
    gpu: Gpu
    num_gpus: int
    speed: Speed
    refused: Counter[str] = field(default_factory=Counter)  #: code of a rule -> layouts
    reasons: dict[str, str] = field(default_factory=dict)  #: code of a rule -> what it said first

    @property
    def _is_full(self) -> bool:
        return self.recipe.method.kind == "full"

    def best_of(self, size: int) -> list[Candidate]:
        """Return the best legal candidates of a pack size; empty if nothing fits.

        Candidates whose step needs more packs than exist are returned only if there are no others.
        """
        packed_to = cache(partial(self._packed, size))
        if not packed_to(1).packs:
            return []
        fitting = [
            layout
            for layout in self._layouts()
            if size % self._multiple(layout) == 0
            and self._batch(layout, size) * size <= _MAX_GROWTH * self._step_tokens
            and self._memory(layout, size).total_gb <= self.gpu.budget_gb
        ]
        cost = cost_of(self.shape)
        means = {context: Work.of(packed_to(1), cost, context).mean for context in {one.context for one in fitting}}
        ranked = sorted(fitting, key=lambda layout: self._rough_s(layout, size, means[layout.context]))
        found: list[Candidate] = []
        short: list[Candidate] = []
        for layout in ranked[:_ASKED]:
            if len(found) == _KEPT:
                break
            changes = self._changes(layout, size)
            if not self._is_refused(changes):
                candidate = self._candidate(layout, size, packed_to(self._multiple(layout)), changes)
                (short if candidate.is_short else found).append(candidate)
        return found or short[:_KEPT]

    def why_nothing(self, sizes: tuple[int, ...]) -> str:
        """Return why there is no candidate."""
        if self.refused:
            code, count = self.refused.most_common(1)[0]
            return (
                f"--gpus is {self.num_gpus}; the rules refuse every layout that fits, {count} of them by {code}: "
                f"{self.reasons[code]}. Change the recipe as the rule says."
            )
        if not self._packed(max(sizes), 1).packs:
            shortest = int(self.lengths.runtime.min())
            longest = self._sizes(max(sizes))["packing.max_sequence_length"] or max(sizes)
            return (
                f"the shortest sequence has {shortest:,} runtime tokens; allowed: at most {longest:,}, by the model, "
                "packing.max_sequence_length, or the largest packs that are compared. "
                "Set preprocessing.over_long to truncate or split."
            )
        smallest = min(sizes)
        aligned = [layout for layout in self._layouts() if smallest % self._multiple(layout) == 0]
        least = min((self._memory(layout, smallest).total_gb for layout in aligned), default=math.inf)
        if least <= self.gpu.budget_gb:
            return (
                f"--gpus is {self.num_gpus}; a step of {self._step_tokens:,} tokens has fewer packs than these GPUs "
                "have copies of the model. Raise batch.tokens_per_step or batch.global_batch_size, or use fewer GPUs."
            )
        return (
            f"--gpus is {self.num_gpus}; {self.shape.num_weights / 1e9:.1f} billion weights take {least:,.0f} GB of "
            f"each {self.gpu.name} by estimate, in the best layout with packs of {smallest:,} tokens; allowed: at most "
            f"{self.gpu.budget_gb:.0f} GB. Use more GPUs, larger ones, or method.kind lora."
        )

    def _packed(self, size: int, multiple: int) -> PackedLengths:
        return packed(self.lengths, self.recipe.override(self._sizes(size)), multiple)

    def _memory(self, layout: Layout, size: int) -> Memory:
        num_micro = self._batch(layout, size) // layout.data
        return memory_of(self.shape, layout, pack_tokens=size, num_micro=num_micro, is_full=self._is_full)

    def _layouts(self) -> Iterator[Layout]:
        own_stages = self.recipe.parallelism.pipeline_model_parallel_size
        return layouts(self.shape, self.gpu, self.num_gpus, own_stages=own_stages)

    def _multiple(self, layout: Layout) -> int:
        """Return the multiple of lengths: the layout's, combined with the recipe's."""
        return math.lcm(layout.multiple, self.recipe.packing.pad_seq_to_mult or 1)

    @property
    def _step_tokens(self) -> int:
        batch = self.recipe.batch
        return batch.tokens_per_step or batch.global_batch_size * self.recipe.packing.packed_sequence_size

    def _batch(self, layout: Layout, size: int) -> int:
        """Return the packs per step: a multiple of the model copies, nearest to the recipe's tokens per step."""
        return max(round(self._step_tokens / size / layout.data), 1) * layout.data

    def _arithmetic(self, layout: Layout) -> Arithmetic:
        return Arithmetic(shape=self.shape, gpu=self.gpu, layout=layout, is_full=self._is_full, speed=self.speed)

    def _rough_s(self, layout: Layout, size: int, mean: Work) -> float:
        """Return the seconds per token on all GPUs with mean packs, without waiting and padding."""
        arithmetic, batch = self._arithmetic(layout), self._batch(layout, size)
        step_s = arithmetic.step_s(float(arithmetic.packs_s(mean)[0]), batch // layout.data)
        return step_s / (batch * float(mean.tokens[0]))

    def _sizes(self, size: int) -> dict[str, Any]:
        longest = [one for one in (self.recipe.packing.max_sequence_length, self.shape.longest) if one and one < size]
        return {"packing.packed_sequence_size": size, "packing.max_sequence_length": min(longest, default=None)}

    def _changes(self, layout: Layout, size: int) -> dict[str, Any]:
        is_mixture, has_windows = bool(self.shape.num_experts), any(layer.window for layer in self.shape.layers)
        artifact, own = self.recipe.artifact, self.recipe.parallelism
        # windows take one way only in which context-parallel ranks exchange keys and values
        exchange = None if layout.context == 1 else "a2a" if has_windows else own.cp_comm_type
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
            "parallelism.sequence_parallel": layout.tensor > 1,
            "parallelism.virtual_pipeline_model_parallel_size": (
                own.virtual_pipeline_model_parallel_size
                if layout.pipeline == own.pipeline_model_parallel_size
                else None
            ),
            "parallelism.hierarchical_context_parallel_sizes": None,
            "parallelism.eval_context_parallel_size": None,
            "parallelism.cp_comm_type": exchange,
            "batch.tokens_per_step": None,
            "batch.global_batch_size": self._batch(layout, size),
            "batch.micro_batch_size": 1,
            "batch.eval_global_batch_size": None,
            "model.recompute": "full" if layout.recomputes else "selective",
        }
        return {path: value for path, value in changes.items() if value is not None or value_at(self.recipe, path)}

    def _is_refused(self, changes: Mapping[str, Any]) -> bool:
        found = refusals(self.recipe.override({**changes, "artifact": None}))
        for finding in found[:1]:
            self.refused[finding.code] += 1
            self.reasons.setdefault(finding.code, f"{finding.where} is {finding.found}; allowed: {finding.allowed}")
        return bool(found)

    def _candidate(self, layout: Layout, size: int, packs: PackedLengths, changes: Mapping[str, Any]) -> Candidate:
        batch = self._batch(layout, size)
        num_packs = max(round(packs.num_packs / self.lengths.share), 1)
        arithmetic, work = self._arithmetic(layout), Work.of(packs, cost_of(self.shape), layout.context)
        packs_s = arithmetic.packs_s(work)
        recipe, own = self.recipe.override({**changes, "artifact": None}), self.recipe.packing.balance.kind
        # costs of all packs, or of some steps of them, where those of a sample stand for more
        num_costs = min(max(num_packs, batch), max(len(packs_s), batch * _REPEATED_STEPS))
        waiting = waiting_of(np.resize(packs_s, num_costs), recipe)
        balance = _balance(recipe, waiting)
        micro_s, num_micro = float(packs_s.mean()), batch // layout.data
        busy_s = micro_s * num_micro
        with_bubbles_s = arithmetic.step_s(micro_s, num_micro)
        bubbles_s = micro_s * (layout.pipeline - 1)
        step_s = with_bubbles_s + busy_s * max(waiting.ratio(balance) - 1, 0.0)
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
            waiting=waiting,
            balance=balance,
            memory=self._memory(layout, size),
            step_s=step_s,
            tokens_per_s=packs.num_tokens / packs.num_packs * batch / step_s / self.num_gpus,
            parts={name: part / step_s for name, part in parts.items()},
            changes=changes if balance == own else {**changes, "packing.balance.kind": balance},
        )


def _balance(recipe: SFTRecipe, waiting: Waiting) -> str:
    """Return what a candidate balances: what its recipe says, else batches where that gains; none where none can be."""
    own = recipe.packing.balance.kind
    if own == "none" and waiting.straggler_ratio - waiting.balanced_ratio <= _LEAST_GAIN:
        return own
    wanted = "within_batch" if own == "none" else own
    try:
        balance_for(recipe.override({"packing.balance.kind": wanted}))
    except ConfigError:
        return "none"
    return wanted
