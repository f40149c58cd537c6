"""The guard: checks some steps of a run on every rank, and stops it if packs are not computed as packed.

```python
guard = Guard(artifact="packed")
finetune(config, guard.watching(forward_step), callbacks=[guard])
```
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.environment import environment_here
from bridgepack.config.recipe.training import GuardConfig
from bridgepack.errors import BridgepackError
from bridgepack.records import RunConfig
from bridgepack.records.guarded import GroupSizes, RankFacts, RankPlace, StepFacts, TrainedWeights
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.registry import STEP_RULES
from bridgepack.running.guard.facts import PlannedStep, facts_without_reading, rank_facts
from bridgepack.running.guard.gradients import (
    TrainedModule,
    modules_with_gradient,
    reads_gradients,
    trained_modules,
    trained_weights,
)
from bridgepack.running.guard.plan import Planner
from bridgepack.running.guard.ranks import gather, place_and_sizes
from bridgepack.running.guard.report import (
    Alarm,
    GuardViolationError,
    Notice,
    doubted_notice,
    newer_notice,
    step_findings,
    trains_notice,
    watched_notice,
)
from bridgepack.running.guard.watch import (
    Mixer,
    StepWatch,
    WatchedForwardStep,
    is_not_finite,
    mixers_of,
    num_eager_steps,
    step_number,
)
from bridgepack.running.owning import claim_for_ranks

__all__ = ["Alarm", "Guard", "GuardViolationError", "Notice"]

#: Modules without a gradient that a rank names.
_MAX_MODULES = 256


@dataclass(kw_only=True, slots=True)
class _Training:
    """What the guard knows when training begins."""

    place: RankPlace  #: this rank's coordinates in the parallel topology
    sizes: GroupSizes  #: sizes of the parallel groups
    is_packed: bool  #: rows are packed, so every layer needs sequence boundaries
    mixers: tuple[Mixer, ...]  #: modules that need boundaries
    first_step: int  #: first step of this job, from 1
    num_eager_steps: int | None = None  #: steps of this job before a CUDA graph hides them; None for all
    num_first: int = 0  #: checked steps after which every module should have had a gradient
    modules: tuple[TrainedModule, ...] = ()  #: modules whose gradients are read; empty if they cannot be
    with_gradient: int = 0  #: bit i: module i has had a gradient in a checked step
    weights: TrainedWeights | None = None  #: this rank's share of the weights
    planner: Planner | None = None  #: predicts steps; None if this rank does not need it or no prediction is possible


class Guard:
    """A callback of Megatron-Bridge's training loop and a wrapper of its forward step.

    Outside the steps that it checks, it adds no hook to the model, no collective and no device synchronisation.

    Attributes:
        watch: observations of the current step; None if the step is not checked.
    """

    def __init__(
        self,
        *,
        artifact: str | Path | None = None,
        settings: GuardConfig | None = None,
        ignore: Mapping[str, str] | None = None,
        on_alarm: Callable[[Alarm], None] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        on_failure: Callable[[Exception], None] | None = None,
    ) -> None:
        """Create a guard.

        Args:
            artifact: folder of the packs, built by bridgepack; without it steps are not compared with the packs.
            settings: which steps to check.
            ignore: code of a rule -> why its findings do not stop the run.
            on_alarm: called before GuardViolationError is raised: on all ranks if all know, else on the failed rank.
            on_notice: called on one rank with what was checked and what could not be.
            on_failure: called on the failed rank before an error of the forward step is raised.
        """
        self._settings = settings or GuardConfig()
        self._artifact = None if artifact is None else Path(artifact)
        self._ignored_codes = {code for code, reason in (ignore or {}).items() if reason.strip()}
        self._on_alarm, self._on_notice, self._on_failure = on_alarm, on_notice, on_failure
        self.watch: StepWatch | None = None
        self._run: _Training | None = None
        self._watched_steps: list[int] = []
        self._last: StepFacts | None = None
        self._notified_kinds: set[str] = set()
        self._is_doubted = False  # the version is newer than all that is known, so findings do not stop the run

    def watching(self, forward_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward step for `finetune` that the guard can observe."""
        return WatchedForwardStep(self, forward_step)

    def on_train_start(self, context: Any) -> None:
        """Determine this rank's place and the modules that need boundaries; called by the host.

        Raises:
            ConfigError: another run saves into the folder of checkpoints; raised on every rank.
            GuardViolationError: no weight is trained; raised on every rank.
        """
        if not self._settings.enabled:
            return
        import torch.distributed as dist

        newer = newer_notice(environment_here().versions.get(BRIDGE, ""))
        self._is_doubted = newer is not None
        if newer is not None and dist.get_rank() == 0:
            self._notify(newer.kind, newer.text)
        claim_for_ranks(context.state.cfg.checkpoint.save, self._artifact)
        reason = ""
        try:
            self._run = self._begin(context)
        except Exception as error:  # an unknown kind of model must still train
            reason = f"{type(error).__name__}: {error}"
        starts = gather((reason, self._run.weights if self._run else None))
        blind = [rank for rank, (text, _) in enumerate(starts) if text]
        if blind:
            self._run = None
            if dist.get_rank() == blind[0]:
                self._notify("unseen", f"guard: this model cannot be checked: rank {blind[0]}: {reason}")
        else:
            self._count([weights for _, weights in starts if weights is not None])

    def on_train_step_start(self, context: Any) -> None:
        """Start observing if this step is to be checked; called by the host."""
        run, number = self._run, step_number(context.state)
        if run is None or not self._settings.watches(number, first_step=run.first_step):
            return
        if run.num_eager_steps is not None and number - run.first_step >= run.num_eager_steps:
            if run.place.rank == 0:
                self._notify("unseen", f"guard: steps from {number} on cannot be checked: a CUDA graph computes them.")
            return
        self._close()
        self.watch = StepWatch(context.model, run.mixers, number)

    def on_train_step_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Check the step together with all other ranks; called by the host.

        Raises:
            GuardViolationError: something is wrong on one rank; raised on every rank.
        """
        watch, run = self.watch, self._run
        if watch is None or run is None:
            return
        self._close()
        rank = self._own_facts(watch, run)
        ranks = gather(replace(rank, evidence=None))
        facts = StepFacts(
            step=watch.step,
            is_packed=run.is_packed,
            sizes=run.sizes,
            ranks=ranks,
            settles_gradients=len(self._watched_steps) + 1 == run.num_first,
        )
        if any(list(rule.check(facts)) for rule in STEP_RULES):
            # Every rank has the same numbers, so every rank gets here.
            self._judge(replace(facts, ranks=gather(rank)))
        self._watched_steps.append(facts.step)
        self._last = facts
        if len(self._watched_steps) >= self._settings.first_steps:
            self._tell_watch()

    def on_train_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Release all references; called by the host."""
        self._close()
        self._tell_watch()

    def report_failure_in_loss(self, error: Exception, output: Any, number: int) -> None:
        """Report an error of a loss function; raises GuardViolationError for a non-finite loss.

        Only this rank knows; the others wait for it in the middle of the step.
        """
        if not is_not_finite(error, output):
            self.report_failure(error)
            return
        rank = RankFacts(place=self._place, num_calls=1, num_not_finite=1)
        self._judge_alone(rank, number, error)
        self.report_failure(error)

    def report_failure_in_forward(self, error: Exception, number: int) -> None:
        """Report an error of the forward step; raises GuardViolationError if packs had no boundaries."""
        if self.watch is not None and self._run is not None and self._run.is_packed:
            self._judge_alone(facts_without_reading(self.watch, place=self._place), number, error)
        self.report_failure(error)

    def report_failure(self, error: Exception) -> None:
        """Report an error that is not an alarm."""
        if self._on_failure is not None:
            self._on_failure(error)

    @property
    def _place(self) -> RankPlace:
        return self._run.place if self._run else RankPlace(rank=0)

    def _judge_alone(self, rank: RankFacts, number: int, cause: Exception) -> None:
        sizes = self._run.sizes if self._run else GroupSizes()
        self._judge(StepFacts(step=number, is_packed=True, sizes=sizes, ranks=(rank,)), cause=cause)

    def _count(self, shares: Sequence[TrainedWeights]) -> None:
        """Tell how many weights are trained, and stop if none is."""
        run = self._run
        if run is None or not round(sum(share.total for share in shares)):
            return
        if not round(sum(share.trained for share in shares)):
            rank = RankFacts(place=run.place, num_calls=0)
            self._judge(StepFacts(step=run.first_step, is_packed=False, sizes=run.sizes, ranks=(rank,), num_trained=0))
        elif run.place.rank == 0:
            notice = trains_notice(shares)
            self._notify(notice.kind, notice.text, notice.facts)

    def _begin(self, context: Any) -> _Training:
        place, sizes = place_and_sizes(context.model)
        config = config_of_container(context.state.cfg, place="the run")
        dataset = config.values["dataset"]
        run = _Training(
            place=place,
            sizes=sizes,
            is_packed=bool(dataset.get("enable_offline_packing") or dataset.get("enable_in_batch_packing")),
            mixers=mixers_of(context.model),
            first_step=step_number(context.state),
            num_eager_steps=num_eager_steps(context.state.cfg.model),
        )
        self._add_trained(run, context)
        if place.pipeline == sizes.pipeline - 1 and place.tensor == place.context == 0:
            run.planner = self._planner(run, config, context.state.train_state)
        return run

    def _add_trained(self, run: _Training, context: Any) -> None:
        """Add the trained modules and weights of this rank."""
        state = context.state
        modules = trained_modules(context.model)
        run.weights = trained_weights(context.model, modules, run.sizes, stage=run.place.pipeline)
        if not reads_gradients(state.cfg):
            if run.place.rank == 0:
                self._notify("unseen gradients", "guard: gradients cannot be read: other values take their place.")
            return
        last_step = getattr(state.cfg.train, "train_iters", None)
        num_left = self._settings.first_steps if last_step is None else last_step - run.first_step + 1
        run.modules, run.num_first = modules, min(self._settings.first_steps, num_left)

    def _planner(self, run: _Training, config: RunConfig, progress: Any) -> Planner | None:
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
                self._notify("no-plan", f"guard: packs and trained tokens are not compared: {reason}")
            return None

    def _own_facts(self, watch: StepWatch, run: _Training) -> RankFacts:
        from megatron.core.num_microbatches_calculator import get_num_microbatches

        plan: PlannedStep | None = None
        if run.planner is not None:
            # Not in a separate thread: the loader forks its workers during steps, and a fork while another thread
            # reads Parquet leaves locks in the worker that are never released.
            try:
                plan = run.planner.plan_step(watch.step, run.place.data)
            except (BridgepackError, OSError) as reason:
                self._notify("no-plan", f"guard: step {watch.step} is not compared with the packs: {reason}")
        try:
            facts = rank_facts(watch, place=run.place, num_micro_batches=get_num_microbatches(), plan=plan)
            return self._with_gradients(facts, run)
        except Exception as error:  # unexpected outputs of an unknown model must not end its run
            text = f"guard: rank {run.place.rank} cannot read its observations: {type(error).__name__}: {error}"
            self._notify("unseen", text)
            return RankFacts(place=run.place, num_calls=0)

    def _with_gradients(self, facts: RankFacts, run: _Training) -> RankFacts:
        now = modules_with_gradient(run.modules)
        run.with_gradient |= now
        gradients = run.with_gradient if len(self._watched_steps) < run.num_first else now
        still = [(index, module.name) for index, module in enumerate(run.modules) if not gradients >> index & 1]
        return replace(
            facts,
            num_modules=len(run.modules),
            with_gradient=gradients,
            evidence=replace(facts.details, still=tuple(still[:_MAX_MODULES])),
        )

    def _judge(self, facts: StepFacts, *, cause: Exception | None = None) -> None:
        findings = step_findings(facts)
        matters = tuple(finding for finding in findings if finding.code not in self._ignored_codes)
        for finding in findings:
            if finding not in matters and facts.ranks[0].place.rank == self._place.rank:
                text = f"guard: step {facts.step}: {finding.code} {finding.name} is ignored by the recipe."
                self._notify(f"ignored {finding.code}", text, {"where": finding.where, "found": finding.found})
        alarm = Alarm(findings=matters, facts=facts)
        if matters and self._is_doubted:
            if facts.ranks[0].place.rank == self._place.rank:
                notice = doubted_notice(alarm)
                codes = sorted({finding.code for finding in matters})
                self._notify(f"doubted {' '.join(codes)}", notice.text, notice.facts)
        elif matters:
            if self._on_alarm is not None:
                self._on_alarm(alarm)
            raise GuardViolationError(alarm) from cause

    def _tell_watch(self) -> None:
        if self._last is not None and self._place.rank == 0:
            notice = watched_notice(self._watched_steps, self._last)
            self._notify(notice.kind, notice.text, notice.facts)

    def _notify(self, kind: str, text: str, facts: dict[str, Any] | None = None) -> None:
        if self._on_notice is not None and kind not in self._notified_kinds:
            self._notified_kinds.add(kind)
            self._on_notice(Notice(kind=kind.partition(" ")[0], text=text, facts=facts or {}))

    def _close(self) -> None:
        if self.watch is not None:
            self.watch.close()
            self.watch = None
