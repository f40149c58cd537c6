"""The guard: looks on at some steps of a run, on every rank, and stops it when packed rows are not computed as such.

```python
guard = Guard(artifact="packed")
finetune(config, guard.watching(forward_step), callbacks=[guard])
```
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.environment import environment_here
from bridgepack.config.recipe.training import GuardConfig
from bridgepack.errors import BridgepackError
from bridgepack.records import RunConfig
from bridgepack.records.guarded import GroupSizes, RankFacts, RankPlace, StepFacts
from bridgepack.rules.engine.environment import BRIDGE
from bridgepack.rules.engine.report import findings_of
from bridgepack.rules.registry import STEP_RULES
from bridgepack.running.guard.facts import PlannedStep, facts_without_reading, rank_facts
from bridgepack.running.guard.plan import Planner
from bridgepack.running.guard.report import Alarm, GuardViolationError, Notice, watched_notice
from bridgepack.running.guard.watch import (
    Mixer,
    StepWatch,
    WatchedForwardStep,
    is_not_finite,
    mixers_of,
    num_eager_steps,
    step_number,
)

__all__ = ["Alarm", "Guard", "GuardViolationError", "Notice"]

_MAX_EXAMPLES = 8


@dataclass(kw_only=True, slots=True)
class _Run:
    """What the guard knows once training begins."""

    place: RankPlace  #: where this rank is
    sizes: GroupSizes  #: how many ranks there are of each kind
    is_packed: bool  #: the run's rows are packed, so that every layer needs boundaries
    mixers: tuple[Mixer, ...]  #: parts of the model that need boundaries
    first_step: int  #: of this job, from 1
    num_eager_steps: int | None = None  #: of this job that can be looked into; None for all
    planner: Planner | None = None  #: what steps should be; None where this rank need not know, or nobody can


class Guard:
    """A callback of Megatron-Bridge's training loop, and a wrapper of its forward step.

    Between the steps that it watches there is no hook on the model, no collective and no wait for the device.

    Attributes:
        watch: what is seen of the step that is being computed; None where it is not watched.
    """

    def __init__(
        self,
        *,
        artifact: str | Path | None = None,
        settings: GuardConfig | None = None,
        ignored: Mapping[str, str] | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """Make a guard.

        Args:
            artifact: folder of the packs, built by bridgepack; without it no plan is compared with.
            settings: which steps are watched.
            ignored: code of a rule -> why its findings do not stop the run.
            on_alarm: told what is wrong before GuardViolationError is raised: on all ranks where all know, else on
                the rank that failed.
            on_notice: told what was watched, and what could not be; on one rank.
            on_failure: told of an error in the forward step before it is raised, on the rank that failed.
        """
        self._settings = settings or GuardConfig()
        self._artifact = None if artifact is None else Path(artifact)
        self._ignored = {code for code, reason in (ignored or {}).items() if reason.strip()}
        self._on_alarm, self._on_notice, self._on_failure = on_alarm, on_notice, on_failure
        self.watch: StepWatch | None = None
        self._run: _Run | None = None
        self._watched: list[int] = []
        self._last: StepFacts | None = None
        self._told: set[str] = set()

    def watching(self, forward_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward step for `finetune` that the guard can look into."""
        return WatchedForwardStep(self, forward_step)

    def on_train_start(self, context: Any) -> None:
        """Find out where this rank is and what needs boundaries; called by the host."""
        if not self._settings.enabled:
            return
        import torch.distributed as dist

        reason = ""
        try:
            self._run = self._begun(context)
        except Exception as error:  # a model of a kind that is not known has to train all the same
            reason = f"{type(error).__name__}: {error}"
        blind = [(rank, text) for rank, text in enumerate(gathered(reason)) if text]
        if blind:
            self._run = None
            first_rank = blind[0][0]
            if dist.get_rank() == first_rank:
                self._notify("unseen", f"guard: this model cannot be watched: rank {first_rank}: {reason}")

    def on_train_step_start(self, context: Any) -> None:
        """Begin to look on, where this step is to be watched; called by the host."""
        run, number = self._run, step_number(context.state)
        if run is None or not self._settings.watches(number, first_step=run.first_step):
            return
        if run.num_eager_steps is not None and number - run.first_step >= run.num_eager_steps:
            if run.place.rank == 0:
                self._notify(
                    "unseen", f"guard: from step {number} on nothing can be seen, as a CUDA graph computes it."
                )
            return
        self._close()
        self.watch = StepWatch(context.model, run.mixers, number)

    def on_train_step_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Judge the step with all other ranks; called by the host.

        Raises:
            GuardViolationError: on every rank, when something is wrong on one.
        """
        watch, run = self.watch, self._run
        if watch is None or run is None:
            return
        self._close()
        own = self._own_facts(watch, run)
        ranks = gathered(replace(own, evidence=None))
        facts = StepFacts(step=watch.step, is_packed=run.is_packed, sizes=run.sizes, ranks=ranks)
        if any(list(rule.check(facts)) for rule in STEP_RULES):
            # Every rank has the same numbers, so every rank comes here.
            self._judge(replace(facts, ranks=gathered(own)))
        self._watched.append(facts.step)
        self._last = facts
        if len(self._watched) >= self._settings.first_steps:
            self._tell_watched()

    def on_train_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Let go of everything; called by the host."""
        self._close()
        self._tell_watched()

    def failed_in_loss(self, error: Exception, output: Any, number: int) -> None:
        """Tell what a loss function raised on: GuardViolationError for a loss that is not finite.

        Only this rank knows: the others wait for it in the middle of the step.
        """
        if not is_not_finite(error, output):
            self.failed(error)
            return
        own = RankFacts(place=self._place, num_calls=1, num_not_finite=1)
        self._judge_alone(own, number, error)

    def failed_in_forward(self, error: Exception, number: int) -> None:
        """Tell that the forward step raised: GuardViolationError where packed rows had no boundaries."""
        if self.watch is not None and self._run is not None and self._run.is_packed:
            self._judge_alone(facts_without_reading(self.watch, place=self._place), number, error)
        self.failed(error)

    def failed(self, error: Exception) -> None:
        """Tell of an error that is no alarm."""
        if self._on_failure is not None:
            self._on_failure(error)

    @property
    def _place(self) -> RankPlace:
        return self._run.place if self._run else RankPlace(rank=0)

    def _judge_alone(self, own: RankFacts, number: int, cause: Exception) -> None:
        """Raise what the rules find on this rank, in the middle of a step."""
        sizes = self._run.sizes if self._run else GroupSizes()
        self._judge(StepFacts(step=number, is_packed=True, sizes=sizes, ranks=(own,)), cause=cause)

    def _begun(self, context: Any) -> _Run:
        """Return what is known as training begins."""
        place, sizes = place_and_sizes(context.model)
        config = config_of_container(context.state.cfg, place="the run")
        dataset = config.values["dataset"]
        run = _Run(
            place=place,
            sizes=sizes,
            is_packed=bool(dataset.get("enable_offline_packing") or dataset.get("enable_in_batch_packing")),
            mixers=mixers_of(context.model),
            first_step=step_number(context.state),
            num_eager_steps=num_eager_steps(context.state.cfg.model),
        )
        if place.pipeline == sizes.pipeline - 1 and place.tensor == place.context == 0:
            run.planner = self._planner(run, config, context.state.train_state)
        return run

    def _planner(self, run: _Run, config: RunConfig, progress: Any) -> Planner | None:
        import torch.distributed as dist

        if self._artifact is None or not run.is_packed:
            return None
        try:
            return Planner(
                config,
                self._artifact,
                world_size=dist.get_world_size(),
                version=environment_here().versions.get(BRIDGE, ""),
                num_steps_done=int(progress.step),
                num_packs_read=int(progress.consumed_train_samples),
            )
        except BridgepackError as reason:
            if run.place.data == 0:
                self._notify("no-plan", f"guard: no plan to compare packs and trained tokens with: {reason}")
            return None

    def _own_facts(self, watch: StepWatch, run: _Run) -> RankFacts:
        from megatron.core.num_microbatches_calculator import get_num_microbatches

        plan: PlannedStep | None = None
        if run.planner is not None:
            # Not in a thread of its own: the loader forks its workers during steps, and a fork while another thread
            # reads Parquet leaves locks in the worker that nobody opens.
            try:
                plan = run.planner.planned(watch.step, run.place.data)
            except (BridgepackError, OSError) as reason:
                self._notify("no-plan", f"guard: step {watch.step} is compared with no plan: {reason}")
        try:
            return rank_facts(watch, place=run.place, num_micro_batches=get_num_microbatches(), plan=plan)
        except Exception as error:  # what a model of another kind returns must not end its run here
            text = f"guard: rank {run.place.rank} cannot read what it saw: {type(error).__name__}: {error}"
            self._notify("unseen", text)
            return RankFacts(place=run.place, num_calls=0)

    def _judge(self, facts: StepFacts, *, cause: Exception | None = None) -> None:
        """Raise what the rules find, unless the recipe ignores it."""
        found = [
            finding
            for rule in STEP_RULES
            for finding in findings_of(rule, list(rule.check(facts)), max_examples=_MAX_EXAMPLES)
        ]
        matters = tuple(finding for finding in found if finding.code not in self._ignored)
        for finding in found:
            if finding not in matters and facts.ranks[0].place.rank == self._place.rank:
                text = f"guard: step {facts.step}: {finding.code} {finding.name} is ignored, as the recipe says."
                self._notify(f"ignored {finding.code}", text, {"where": finding.where, "found": finding.found})
        if matters:
            alarm = Alarm(findings=matters, facts=facts)
            if self._on_alarm is not None:
                self._on_alarm(alarm)
            raise GuardViolationError(alarm) from cause

    def _tell_watched(self) -> None:
        """Say once what was watched: after the first steps, or at the end of a run that has fewer."""
        if self._last is not None and self._place.rank == 0:
            notice = watched_notice(self._watched, self._last)
            self._notify(notice.kind, notice.text, notice.facts)

    def _notify(self, kind: str, text: str, facts: dict[str, Any] | None = None) -> None:
        if self._on_notice is not None and kind not in self._told:
            self._told.add(kind)
            self._on_notice(Notice(kind=kind.partition(" ")[0], text=text, facts=facts or {}))

    def _close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None


def place_and_sizes(model: Any) -> tuple[RankPlace, GroupSizes]:
    """Return where this rank is, by the model's own process groups."""
    import torch.distributed as dist
    from megatron.bridge.training.utils.pg_utils import get_pg_collection

    groups = get_pg_collection(model)
    named = {"data": groups.dp, "pipeline": groups.pp, "tensor": groups.tp, "context": groups.cp}
    place = RankPlace(rank=dist.get_rank(), **{name: group.rank() for name, group in named.items()})
    return place, GroupSizes(**{name: group.size() for name, group in named.items()})


def gathered[T](own: T) -> tuple[T, ...]:
    """Return what every rank has, by rank; every rank has to call this."""
    import torch.distributed as dist

    found: list[Any] = [own] * dist.get_world_size()
    if len(found) > 1:
        dist.all_gather_object(found, own)
    return tuple(found)
