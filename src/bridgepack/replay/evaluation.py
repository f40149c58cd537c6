"""When a run evaluates, and on which batches of the validation packs."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class EvaluationSchedule:
    """Evaluations of a run; their batches count over the whole run, from 1, on one loader that goes on.

    Source: megatron-bridge 0.6.2, training/train.py (after consumed_train_samples), training/eval.py
    (consumed_valid_samples), training/pretrain.py (evaluation after training).
    """

    eval_interval: int | None  #: steps between evaluations; None for none during training
    eval_iters: int
    start_eval_at_iter: int | None = None  #: first step after which there may be one; None for any
    num_steps: int | None = None  #: steps of the run; None where that is not known
    skips_training: bool = False

    def batches_after(self, step: int) -> range:
        """Return the batches of the evaluation right after a step; none where there is none.

        Example: every 10 steps 4 batches -> after step 20: 5, 6, 7, 8.
        """
        return range(self.batches_until(step - 1) + 1, self.batches_until(step) + 1)

    def batches_until(self, step: int) -> int:
        """Return how many batches the evaluations up to a step took, the one right after it included."""
        if self.skips_training or not self.eval_interval or self.eval_iters < 1:
            return 0
        first = max(self.start_eval_at_iter or 1, 1)
        num_before_first = (first - 1) // self.eval_interval
        return max(step // self.eval_interval - num_before_first, 0) * self.eval_iters

    def final_batches(self) -> range:
        """Return the batches of the evaluation after training; none where the end is not known."""
        if self.num_steps is None or self.eval_iters < 1:
            return range(1, 1)
        done = self.batches_until(self.num_steps)
        return range(done + 1, done + self.eval_iters + 1)
