"""Losses by source: a callback of Megatron-Bridge's training loop and a wrapper of its forward step.

```python
losses = Losses(artifact="packed", folder="runs/mine/losses")
finetune(config, guard.watching(losses.watching(forward_step)), callbacks=[guard, losses])
```
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.training import LossesConfig
from bridgepack.errors import BridgepackError
from bridgepack.records import TRAIN, VALIDATION
from bridgepack.records.losses import ROWS_FOLDER, RowsPart
from bridgepack.running.guard.ranks import gather
from bridgepack.running.guard.report import Notice
from bridgepack.running.guard.watch import step_number
from bridgepack.running.losses.following import Following, begin, groups_of
from bridgepack.running.losses.lines import append_losses, next_start, source_losses, tracker_names, tracker_values
from bridgepack.running.losses.lines import write_to_trackers as write_values
from bridgepack.running.losses.packs import SplitPacks
from bridgepack.running.losses.rows import RowWriter
from bridgepack.running.losses.step import LossStep
from bridgepack.running.losses.sums import Call, Interval

_LOGGER = logging.getLogger(__name__)


class Losses:
    """Follows the losses of a run by source; an error in it never stops training.

    Attributes:
        following: what it follows on this rank; None before training, on other pipeline stages, and if it cannot.
    """

    def __init__(
        self,
        *,
        artifact: str | Path,
        folder: str | Path,
        settings: LossesConfig | None = None,
        on_notice: Callable[[Notice], None] | None = None,
    ) -> None:
        """Create a callback.

        Args:
            artifact: folder of the packs, built by bridgepack.
            folder: where `by-source.jsonl` goes, e.g. `runs/mine/losses`; every node must see it.
            settings: what to follow, and how often to report.
            on_notice: called with what cannot be followed, by default written to the log.
        """
        self._artifact, self._folder = Path(artifact), Path(folder)
        self._settings = settings or LossesConfig()
        self._on_notice = on_notice or (lambda notice: _LOGGER.warning("%s", notice.text))
        self._notice_kinds: set[str] = set()
        self._has_failed = False
        self.following: Following | None = None

    def watching(self, forward_step: Callable[..., Any]) -> Callable[..., Any]:
        """Return a forward step for `finetune`, inside that of the guard."""
        return LossStep(self, forward_step)

    # ------------------------------------------------------------------ called by the host

    def on_train_start(self, context: Any) -> None:
        """Read which pack is which, on the ranks that compute losses; called by the host."""
        if self._settings.by_source is False and not self._settings.by_row:
            return
        following, problem, start = None, "", 0
        try:
            following, problem = begin(context, self._artifact, self._settings)
            start = next_start(self._folder) if following is not None else 0
        except Exception as error:  # whatever is wrong, the run must train
            problem = _words(error)
        writes_rows = following is not None and self._settings.by_row and following.is_first_of_tensor
        ranks = gather((problem, writes_rows, start, following is not None))
        rank, first = next(((rank, text) for rank, (text, *_) in enumerate(ranks) if text), (0, ""))
        if first:
            if _rank() == rank:
                self._notify("unseen", f"losses by source are not followed: {first}")
            return
        self.following = following
        if following is None:
            return
        following.start = max(start for _, _, start, _ in ranks)
        following.is_writer = _rank() == max(rank for rank, (*_, follows) in enumerate(ranks) if follows)
        if writes_rows:
            following.rows = RowWriter(
                folder=self._folder / ROWS_FOLDER,
                part=RowsPart(
                    fingerprint=following.fingerprint,
                    start=following.start,
                    first_step=step_number(context.state),
                    ranks=tuple(rank for rank, (_, writes, *_) in enumerate(ranks) if writes),
                    rank=_rank(),
                    part=1,
                ),
            )

    def on_train_step_start(self, context: Any) -> None:
        """Begin a step; called by the host."""
        if self.following is not None:
            self.following.step = step_number(context.state)
            self.following.calls.clear()

    def on_train_step_end(self, context: Any) -> None:
        """Count the step's micro batches, and report at the end of an interval; called by the host."""
        following = self.following
        if following is None:
            return
        if context.loss_dict and not context.skipped_iter:
            from megatron.core.num_microbatches_calculator import get_num_microbatches

            # the host may run a step again, to find faulty hardware; the last run of it counts
            self._add(following, following.calls[-get_num_microbatches() :])
        following.calls.clear()
        if any(following.step % number == 0 for number in following.report_steps):
            self._report(following, context.state)
            is_saved = following.save_steps is not None and following.step % following.save_steps == 0
            if following.rows is not None and (is_saved or following.rows.is_full):
                self._write_rows(following)

    def on_checkpoint_save(self, context: Any) -> None:
        """Report the steps before a checkpoint with which the host may end the run; called by the host.

        Not where checkpoints are saved beside training: ranks may hear of these at different steps.
        """
        if self.following is not None and not context.state.cfg.checkpoint.async_save:
            self._report(self.following, context.state)
            self._write_rows(self.following)

    def on_train_end(self, context: Any) -> None:
        """Report the last steps; called by the host."""
        if self.following is not None:
            self._report(self.following, context.state)
            self._write_rows(self.following)
            self.following.is_over = True

    def on_eval_start(self, context: Any) -> None:
        """Follow the validation packs; called by the host."""
        if self.following is not None:
            self.following.split, self.following.step = VALIDATION, step_number(context.state) - 1
            self.following.calls.clear()
            self.following.intervals.pop(VALIDATION, None)
            self.following.evaluation += 1
            self._find_context_ranks(context)

    def on_eval_step_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Count the micro batches of a step of evaluation; called by the host."""
        if self.following is not None:
            self._add(self.following, self.following.calls)
            self.following.calls.clear()

    def on_eval_end(self, context: Any) -> None:
        """Report an evaluation; called by the host."""
        if self.following is not None:
            self.following.calls.clear()
            self._report(self.following, context.state)
            if self.following.is_over:
                self._write_rows(self.following)
            self.following.split = TRAIN
            self._find_context_ranks(context)

    def on_test_start(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Follow nothing, as tests read no packs of the artifact; called by the host."""
        if self.following is not None:
            self.following.split = ""

    def on_test_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Follow training again; called by the host."""
        if self.following is not None:
            self.following.split = TRAIN

    # ------------------------------------------------------------------ of the forward step

    def packs_read(self) -> SplitPacks | None:
        """Return the packs that this rank reads now; None where nothing is to be followed."""
        if self.following is None or self._has_failed:
            return None
        return self.following.splits.get(self.following.split)

    def fail(self, error: Exception) -> None:
        """Follow nothing any more on this rank, and say so at the next report."""
        self._has_failed = True
        self._notify("failed", f"losses by source are no longer followed: rank {_rank()}: {_words(error)}")

    # ------------------------------------------------------------------ steps

    def _find_context_ranks(self, context: Any) -> None:
        assert self.following is not None
        try:
            self.following.num_context_ranks = groups_of(context.model).cp.size()
        except Exception as error:  # whatever is wrong, the run must train
            self.fail(error)

    def _add(self, following: Following, calls: list[Call]) -> None:
        packs = following.splits.get(following.split)
        if packs is None or self._has_failed:
            return
        try:
            interval = following.intervals.setdefault(following.split, Interval(num_sources=len(packs.names)))
            interval.add(calls, step=following.step)
            if following.rows is not None:
                following.rows.add(
                    calls,
                    split=following.split,
                    step=following.step,
                    evaluation=following.evaluation if following.split == VALIDATION else 0,
                    num_micro_batches=len(calls),
                )
        except Exception as error:  # whatever is wrong, the run must train
            self.fail(error)

    def _report(self, following: Following, state: Any) -> None:
        """Write the interval; a collective of the last stage's ranks, which all get here."""
        packs = following.splits.get(following.split)
        if packs is None:
            return
        interval = following.intervals.pop(following.split, Interval(num_sources=len(packs.names)))
        try:
            if following.rows is not None and not self._has_failed:
                following.rows.collect()
            if not following.reports_sources:
                return
            total = interval.reduce(following.group, following.device, has_failed=self._has_failed)
            if not following.is_writer:
                if interval.doubt:
                    self._tell_doubt(interval.doubt)
                return
            *sums, (num_doubts, num_failed) = total.tolist()
            if num_failed:
                self._notify("incomplete", f"losses by source end at step {following.step}: a rank gave up.")
                return
            if num_doubts:
                self._tell_doubt(interval.doubt or f"step {following.step}: on another rank")
            losses = source_losses(
                packs.names,
                sums,
                split=following.split,
                first_step=interval.first_step or following.step,
                step=following.step,
                start=following.start,
            )
            if losses:
                append_losses(self._folder, losses)
            labels = tracker_names(packs.names, packs.num_trained_tokens)
            write_values(state, tracker_values(losses, labels), following.step)
        except Exception as error:  # whatever is wrong, the run must train
            self.fail(error)

    def _write_rows(self, following: Following) -> None:
        if following.rows is not None and not self._has_failed:
            try:
                following.rows.write()
            except Exception as error:  # whatever is wrong, the run must train
                self.fail(error)

    def _tell_doubt(self, reason: str) -> None:
        self._notify("doubt", f"losses by source: a micro batch counts as unattributed: {reason}.")

    def _notify(self, kind: str, text: str) -> None:
        if kind not in self._notice_kinds:
            self._notice_kinds.add(kind)
            self._on_notice(Notice(kind=kind, text=text))


def _rank() -> int:
    import torch.distributed as dist

    return int(dist.get_rank())


def _words(error: Exception) -> str:
    return str(error) if isinstance(error, BridgepackError) else f"{type(error).__name__}: {error}"
