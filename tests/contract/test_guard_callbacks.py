"""The guard as a callback: when it looks on, what it says, and that it never is what ends a healthy run."""

from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from bridgepack.config.recipe.training import GuardConfig
from bridgepack.records.guarded import GroupSizes, RankPlace
from bridgepack.running.guard import callback as guard_module
from bridgepack.running.guard.callback import Guard, GuardViolationError, Notice
from tests.support.messages import mentions

pytestmark = pytest.mark.bridge

SINGLE = (RankPlace(rank=0), GroupSizes())


@pytest.fixture
def alone(bridge: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process the only rank of a run with one micro batch."""
    import torch.distributed as dist
    from megatron.core import num_microbatches_calculator as calculator

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    calculator.init_num_microbatches_calculator(0, None, 1, 1, 1)
    monkeypatch.setattr(guard_module, "place_and_sizes", lambda model: SINGLE)
    yield
    calculator.destroy_num_microbatches_calculator()
    dist.destroy_process_group()


class Run:
    """A training loop of the host: one chunk of one layer, one micro batch a step."""

    def __init__(self, guard: Guard, *, graphs: str = "none", warmup_steps: int = 0) -> None:
        class Attention(torch.nn.Module):
            def forward(self, rows: Any, packed_seq_params: Any = None) -> Any:
                return rows

        class Layer(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.self_attention, self.layer_number = Attention(), 1

            def forward(self, rows: Any, labels: Any = None, packed_seq_params: Any = None) -> Any:
                return self.self_attention(rows, packed_seq_params=packed_seq_params)

        model = SimpleNamespace(cuda_graph_impl=graphs, cuda_graph_warmup_steps=warmup_steps, kind="model")
        dataset = SimpleNamespace(enable_offline_packing=True)
        checkpoint = SimpleNamespace(save=None)
        cfg = SimpleNamespace(model=model, train=SimpleNamespace(), dataset=dataset, checkpoint=checkpoint)
        self.state = SimpleNamespace(cfg=cfg, train_state=SimpleNamespace(step=0, consumed_train_samples=0))
        self.model = [Layer()]
        self.guard = guard
        self.params: Any = SimpleNamespace(cu_seqlens_q=torch.tensor([0, 2, 4]), cu_seqlens_q_padded=None)
        self.loss: Any = (torch.tensor(3.0), torch.tensor(2), {})
        self.num_hooks: list[int] = []
        self.forward_step = guard.watching(self._step)
        self.context = SimpleNamespace(state=self.state, model=self.model)

    def _step(self, data_iterator: Any, model: Any) -> Any:
        output = model(torch.zeros(1), packed_seq_params=self.params)
        self.num_hooks.append(sum(len(module._forward_pre_hooks) for module in model.modules()))
        return output, lambda output: self.loss

    def train(self, num_steps: int) -> None:
        self.guard.on_train_start(self.context)
        for _ in range(num_steps):
            self.guard.on_train_step_start(self.context)
            output, loss_function = self.forward_step(self.state, None, self.model[0])
            loss_function(output)
            self.guard.on_train_step_end(self.context)
            self.state.train_state.step += 1
        self.guard.on_train_end(self.context)


@pytest.fixture
def told() -> list[Notice]:
    return []


def _guard(told: list[Notice], *, ignored: dict[str, str] | None = None, **settings: Any) -> Guard:
    return Guard(settings=GuardConfig(**settings), on_notice=told.append, ignore=ignored)


@pytest.fixture(autouse=True)
def settings_of_a_fake(monkeypatch: pytest.MonkeyPatch) -> None:
    """Read the config of the loop above, which is no ConfigContainer."""
    values = {"dataset": {"enable_offline_packing": True}}
    monkeypatch.setattr(guard_module, "config_of_container", lambda cfg, place: SimpleNamespace(values=values))


@pytest.mark.parametrize(
    ("settings", "num_hooks", "told_steps"),
    [
        ({"first_steps": 2, "every_steps": 5}, [2, 2, 0, 0, 2, 0, 0, 0, 0, 2], [1, 2]),
        ({"first_steps": 5}, [2, 2, 2], [1, 2, 3]),
    ],
    ids=["watched-steps", "a-run-with-fewer-is-told-at-its-end"],
)
def test_hooks_are_on_the_model_only_in_watched_steps(
    alone: None, told: list[Notice], settings: dict[str, int], num_hooks: list[int], told_steps: list[int]
) -> None:
    run = Run(_guard(told, **settings))
    run.train(len(num_hooks))

    assert run.num_hooks == num_hooks
    assert [(notice.kind, notice.facts["steps"]) for notice in told] == [("watched", told_steps)]


def test_a_guard_that_is_off_does_nothing(alone: None, told: list[Notice]) -> None:
    run = Run(_guard(told, enabled=False))
    run.params = None
    run.train(3)

    assert (run.num_hooks, told) == ([0, 0, 0], [])


@pytest.mark.parametrize("ignored", [None, {"BP890": "  "}], ids=["nothing-ignored", "reason-that-says-nothing"])
def test_rows_without_boundaries_raise(alone: None, told: list[Notice], ignored: dict[str, str] | None) -> None:
    run = Run(_guard(told, ignored=ignored))
    run.params = None

    with pytest.raises(GuardViolationError, match="BP890") as raised:
        run.train(1)
    assert raised.value.alarm.facts.ranks[0].num_without == 1


def test_what_is_ignored_with_a_reason_is_told_once(alone: None, told: list[Notice]) -> None:
    run = Run(_guard(told, first_steps=3, ignored={"BP890": "dense on purpose", "BP891": " "}))
    run.params = None
    run.train(3)

    assert [notice.kind for notice in told] == ["ignored", "watched"]
    assert "BP890 stage-trained-without-boundaries is ignored" in told[0].text


def test_an_unwatchable_model_trains_anyway(alone: None, told: list[Notice], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(model: Any) -> Any:
        raise AttributeError("no group of pipeline stages")

    monkeypatch.setattr(guard_module, "place_and_sizes", fail)
    run = Run(_guard(told))
    run.train(3)

    assert run.num_hooks == [0, 0, 0]
    assert mentions(told[0].text, "guard: ", "cannot be checked", "rank 0: AttributeError: no group of")


def test_a_loss_of_another_kind_is_told_and_ends_nothing(alone: None, told: list[Notice]) -> None:
    run = Run(_guard(told, first_steps=2))
    run.loss = ("no number", 3, {})
    run.train(2)

    assert told[0].kind == "unseen"
    assert "rank 0 cannot read its observations" in told[0].text


@pytest.mark.parametrize("graphs", ["full_iteration", "none"])
def test_a_graph_of_iterations_is_only_watched_before_its_capture(alone: None, told: list[Notice], graphs: str) -> None:
    run = Run(_guard(told, first_steps=4), graphs=graphs, warmup_steps=3)
    run.train(5)

    assert run.num_hooks == ([2, 2, 2, 0, 0] if graphs == "full_iteration" else [2, 2, 2, 2, 0])
    assert ("unseen" in [notice.kind for notice in told]) == (graphs == "full_iteration")


def test_an_error_in_a_step_is_told_before_it_is_raised(alone: None) -> None:
    failed: list[Exception] = []
    run = Run(Guard(on_failure=failed.append))
    run.loss = None
    run.params = object()
    step = run.guard.watching(lambda data_iterator, model: 1 / 0)
    run.guard.on_train_start(run.context)

    with pytest.raises(ZeroDivisionError) as raised:
        step(run.state, None, run.model[0])
    assert failed == [raised.value]


def test_an_error_that_follows_from_missing_boundaries_is_an_alarm(alone: None) -> None:
    run = Run(Guard())

    def step(data_iterator: Any, model: Any) -> Any:
        model(0, packed_seq_params=None)
        raise MemoryError("no memory for attention over the whole pack")

    forward_step = run.guard.watching(step)
    run.guard.on_train_start(run.context)
    run.guard.on_train_step_start(run.context)

    with pytest.raises(GuardViolationError, match="BP890") as raised:
        forward_step(run.state, None, run.model[0])
    assert isinstance(raised.value.__cause__, MemoryError)


def test_a_forward_step_takes_the_state_where_it_wants_it(alone: None) -> None:
    seen = []
    run = Run(Guard())

    def step(state: Any, data_iterator: Any, model: Any, return_schedule_plan: bool = False) -> Any:
        seen.append((state, return_schedule_plan))
        return "plan", lambda output: None

    forward_step = run.guard.watching(step)
    other = SimpleNamespace(train_state=SimpleNamespace(step=0))
    forward_step(run.state, None, run.model[0], return_schedule_plan=True)
    forward_step(other, None, run.model[0])

    assert seen == [(run.state, True), (other, False)]
