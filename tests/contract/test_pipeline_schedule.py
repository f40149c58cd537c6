"""The time of a step over pipeline stages is that of megatron-core's own schedule, run with a clock instead of a model.

Each stage is a thread that runs the real schedule. A pass moves the stage's clock by the pack's cost; a message carries
the sender's clock, and who receives it is at least as late.
"""

import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bridgepack.data.packing.pipeline import step_times

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

NUM_RUNS = 60
#: Cost of a backward pass in forward passes.
BACKWARD = 2
WAIT_S = 30


class Stage:
    """Stands for a stage's communicator: receives from and sends to its neighbours."""

    def __init__(self, index: int, costs: list[int], ahead: list[SimpleQueue[int]], back: list[SimpleQueue[int]]):
        self.current_stage, self.total_stages, self.costs, self.clock = index, len(ahead), costs, 0
        self.is_pp_first_stage, self.is_pp_last_stage = index == 0, index == len(ahead) - 1
        self.ahead, self.back = ahead, back  # messages to the stage of the index
        self.config = SimpleNamespace(
            overlap_p2p_comm=False,
            finalize_model_grads_func=None,
            timers=None,
            no_sync_func=None,
            grad_sync_func=None,
            num_microbatches_with_partial_activation_checkpoints=None,
            deallocate_pipeline_outputs=False,
        )

    def recv_forward(self, shapes: Any, is_first: bool) -> None:
        if not is_first:
            self.clock = max(self.clock, self.ahead[self.current_stage].get(timeout=WAIT_S))

    def send_forward(self, tensor: Any, is_last: bool) -> None:
        if not is_last:
            self.ahead[self.current_stage + 1].put(self.clock)

    def recv_backward(self, shapes: Any, is_last: bool) -> None:
        if not is_last:
            self.clock = max(self.clock, self.back[self.current_stage].get(timeout=WAIT_S))

    def send_backward(self, tensor: Any, is_first: bool) -> None:
        if not is_first:
            self.back[self.current_stage - 1].put(self.clock)

    def send_forward_recv_backward(self, tensor: Any, shapes: Any, is_last: bool) -> None:
        self.send_forward(tensor, is_last)
        self.recv_backward(shapes, is_last)

    def send_backward_recv_forward(self, tensor: Any, shapes: Any, is_first: bool) -> None:
        self.send_backward(tensor, is_first)
        self.recv_forward(shapes, is_first)


def _clocks(run: Callable[..., Any], collection: Any, costs: list[int], num_stages: int) -> list[int]:
    """Return when each stage ends the schedule."""
    ahead, back = ([SimpleQueue[int]() for _ in range(num_stages)] for _ in range(2))
    stages = [Stage(index, costs, ahead, back) for index in range(num_stages)]

    def finished(stage: Stage) -> int:
        run(
            forward_step_func=stage,
            data_iterator=None,
            model=SimpleNamespace(config=stage.config),
            num_microbatches=len(costs),
            seq_length=1,
            micro_batch_size=1,
            p2p_communicator=stage,
            pg_collection=collection,
        )
        return stage.clock

    with ThreadPoolExecutor(num_stages) as pool:
        return list(pool.map(finished, stages))


def test_times_are_those_of_the_host_s_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.process_groups_config import ProcessGroupCollection

    def forward_step(stage: Stage, *given: Any, current_microbatch: int, **named: Any) -> tuple[Any, int]:
        stage.clock += stage.costs[current_microbatch]
        return (stage, current_microbatch), 0

    def backward_step(given: Any, output: tuple[Stage, int], gradient: Any, config: Any) -> None:
        stage, pack = output
        stage.clock += BACKWARD * stage.costs[pack]

    monkeypatch.setattr(schedules, "forward_step", forward_step)
    monkeypatch.setattr(schedules, "backward_step", backward_step)
    monkeypatch.setattr(schedules, "get_tensor_shapes", lambda **named: None)
    monkeypatch.setattr(schedules, "torch", SimpleNamespace(zeros=lambda *given, **named: 0, int=torch.int))
    monkeypatch.setattr(schedules, "get_model_config", lambda model: model.config)
    alone = SimpleNamespace(size=lambda: 1)
    collection = ProcessGroupCollection(tp=alone, cp=alone)
    rng, run = random.Random(5), schedules.forward_backward_pipelining_without_interleaving

    for _ in range(NUM_RUNS):
        num_stages, num_packs = rng.randint(2, 8), rng.randint(1, 12)
        costs = [rng.randint(1, 1000) for _ in range(num_packs)]

        clocks = _clocks(run, collection, costs, num_stages)

        times = step_times(np.array([[costs]]), num_stages)
        assert max(clocks) / (1 + BACKWARD) == pytest.approx(times[0, 0]), (num_stages, costs)
