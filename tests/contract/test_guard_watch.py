"""What the guard sees of one step: hooks on torch modules that are called as the host's schedules call a model."""

from collections.abc import Callable
from functools import partial
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from bridgepack.records.guarded import RankFacts, RankPlace
from bridgepack.running.guard.facts import Boundaries, digest_of, facts_without_reading, rank_facts
from bridgepack.running.guard.watch import StepWatch, mixers_of

pytestmark = pytest.mark.bridge

Step = Callable[..., Any]


@pytest.fixture
def parts(bridge: ModuleType) -> SimpleNamespace:
    """Return classes of a small model: a language model of two layers, one of another kind beside it, and wrappers."""
    from megatron.core.models.common.language_module.language_module import LanguageModule

    class Attention(torch.nn.Module):
        def forward(self, rows: Any, packed_seq_params: Any = None) -> Any:
            return rows

    class MambaMixer(Attention):
        pass

    class Layer(torch.nn.Module):
        def __init__(self, number: int, kind: type = Attention, name: str = "self_attention") -> None:
            super().__init__()
            self.layer_number, self.kind = number, name
            setattr(self, name, kind())

        def forward(self, rows: Any, packed_seq_params: Any = None) -> Any:
            return getattr(self, self.kind)(rows, packed_seq_params=packed_seq_params)

    class Model(LanguageModule):  # type: ignore[misc]
        def __init__(self, *layers: Any) -> None:
            torch.nn.Module.__init__(self)
            self.layers = torch.nn.ModuleList(layers)

        def forward(self, rows: Any, labels: Any = None, packed_seq_params: Any = None) -> Any:
            for layer in self.layers:
                rows = layer(rows, packed_seq_params=packed_seq_params)
            return rows

    class Wrapper(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

        def forward(self, *arguments: Any, **options: Any) -> Any:
            return self.module(*arguments, **options)

    class Vision(torch.nn.Module):
        def __init__(self, model: Any) -> None:
            super().__init__()
            self.vision_model, self.language_model = Layer(1), model

        def forward(self, rows: Any, labels: Any = None, packed_seq_params: Any = None) -> Any:
            return self.language_model(self.vision_model(rows), packed_seq_params=packed_seq_params)

    return SimpleNamespace(Layer=Layer, MambaMixer=MambaMixer, Model=Model, Wrapper=Wrapper, Vision=Vision)


def _params(*offsets: int, logical: tuple[int, ...] | None = None, **more: Any) -> SimpleNamespace:
    physical = torch.tensor(offsets, dtype=torch.int32)
    if logical is None:
        return SimpleNamespace(cu_seqlens_q=physical, cu_seqlens_q_padded=None, **more)
    return SimpleNamespace(cu_seqlens_q=torch.tensor(logical), cu_seqlens_q_padded=physical, **more)


def _step(params: Any, *, tokens: int = 3, mask: Any = None, labels: Any = None) -> Step:
    """Return a forward step that calls the model with these boundaries, and whose loss trains so many tokens."""

    def loss(mask: Any, output: Any) -> Any:
        value = torch.tensor(1.5 * tokens)
        return value, torch.tensor(tokens), {"lm loss": torch.stack([value, torch.tensor(float(tokens))])}

    def step(batches: Any, model: Any) -> Any:
        if batches is not None:
            next(batches)
        return model(torch.zeros(1), labels=labels, packed_seq_params=params), partial(loss, mask)

    return step


def _run(watch: StepWatch, model: Any, step: Step, batches: Any = None) -> None:
    output, loss = watch.forward_step(step, batches, model)
    loss(output)


def _facts(watch: StepWatch, num_micro_batches: int = 1) -> RankFacts:
    watch.close()
    return rank_facts(watch, place=RankPlace(rank=0), num_micro_batches=num_micro_batches, plan=None)


def _watch(*chunks: Any) -> StepWatch:
    return StepWatch(chunks, mixers_of(chunks), 1)


def _seen(model: Any, *steps: Step, batches: Any = None, num_micro_batches: int = 1) -> RankFacts:
    """Return the facts of a watched model after forward steps."""
    watch = _watch(model)
    for step in steps:
        _run(watch, model, step, batches)
    return _facts(watch, num_micro_batches)


def test_mixers_are_those_of_the_language_model(parts: SimpleNamespace) -> None:
    model = parts.Model(parts.Layer(3), parts.Layer(4, parts.MambaMixer, "mixer"))

    found = mixers_of([parts.Wrapper(parts.Vision(model))])

    assert [(mixer.name, mixer.chunk, mixer.has_state) for mixer in found] == [
        ("layer 3 self_attention", 0, False),
        ("layer 4 mixer", 0, True),
    ]


def test_a_model_of_another_kind_is_looked_at_as_a_whole(parts: SimpleNamespace) -> None:
    assert len(mixers_of([parts.Wrapper(parts.Layer(1))])) == 1


def test_boundaries_tokens_and_losses_are_seen(parts: SimpleNamespace) -> None:
    seen = {"mask": torch.tensor([[0, 1, 1, 1]]), "labels": torch.tensor([[5, 6, 7, 8]])}
    facts = _seen(
        parts.Wrapper(parts.Model(parts.Layer(1), parts.Layer(2))),
        _step(_params(0, 2, 4), **seen),
        _step(_params(0, 3, 4, 4), **seen),
        batches=iter([{"cu_seqlens_q": torch.zeros(1)}, {"cu_seqlens_q": None}]),
        num_micro_batches=2,
    )

    expected = [Boundaries(physical=(0, 2, 4), logical=(0, 2, 4)), Boundaries(physical=(0, 3, 4), logical=(0, 3, 4))]
    assert (facts.num_calls, facts.num_without, facts.num_not_finite) == (2, 0, 0)
    assert facts.boundaries == digest_of(expected)
    assert (facts.trained_tokens, facts.trained_labels) == (6, 42)
    assert facts.details.from_loader == "boundaries in 1 of 2 batches"
    assert facts.details.losses == ("1.5", "1.5")


def test_alignment_padding_is_part_of_the_digest(parts: SimpleNamespace) -> None:
    cases = (_params(0, 4, 8), _params(0, 4, 8, logical=(0, 3, 7)), _params(0, 4, 8, logical=(0, 4, 8)))
    digests = [_seen(parts.Model(parts.Layer(1)), _step(params)).boundaries for params in cases]

    assert digests[0] == digests[2] != digests[1]


def test_a_model_that_gets_none_is_named(parts: SimpleNamespace) -> None:
    facts = _seen(parts.Wrapper(parts.Model(parts.Layer(3))), _step(None))

    assert (facts.num_calls, facts.num_without, facts.boundaries) == (1, 1, 0)
    assert facts.details.without == ("model chunk 0", "layer 3 self_attention")
    assert facts.details.from_loader == "no batch"


def test_what_layers_get_is_seen_where_it_is_not_what_their_model_gets(parts: SimpleNamespace) -> None:
    class Changing(parts.Model):  # type: ignore[misc, name-defined]
        given: Any = None

        def forward(self, rows: Any, labels: Any = None, packed_seq_params: Any = None) -> Any:
            rows = self.layers[0](rows, packed_seq_params=packed_seq_params)
            return self.layers[1](rows, packed_seq_params=self.given)

    same = _seen(parts.Model(parts.Layer(1), parts.Layer(2)), _step(_params(0, 2, 4)))
    model = Changing(parts.Layer(1), parts.Layer(2))
    forgotten = _seen(model, _step(_params(0, 2, 4)))
    model.given = _params(0, 4)
    other = _seen(model, _step(_params(0, 2, 4)))

    assert (forgotten.num_without, forgotten.details.without) == (1, ("layer 2 self_attention",))
    assert other.num_without == 0
    assert 0 != same.boundaries != other.boundaries != 0


def test_mamba_needs_the_sequence_of_each_token(parts: SimpleNamespace) -> None:
    without, whole = (
        _seen(parts.Model(parts.Layer(1, parts.MambaMixer, "mixer")), _step(_params(0, 2, 4, seq_idx=seq_idx)))
        for seq_idx in (None, object())
    )

    assert (without.num_without, whole.num_without) == (1, 0)
    assert without.details.without == ("layer 1 mixer, which got no seq_idx",)


def test_layers_that_run_outside_of_the_forward_step_count_too(parts: SimpleNamespace) -> None:
    """With overlapped expert communication the step returns a plan, and the schedule runs the layers later."""

    def plan_only(batches: Any, model: Any) -> Any:
        return "plan", lambda output: None

    later = []
    for params in (_params(0, 2, 4), None):
        model = parts.Model(parts.Layer(1), parts.Layer(2))
        watch = _watch(parts.Wrapper(model))
        watch.forward_step(plan_only, None, model)
        for layer in model.layers:
            layer(torch.zeros(1), packed_seq_params=params)
        later.append(_facts(watch))

    assert [facts.num_without for facts in later] == [0, 1]
    assert later[0].boundaries == digest_of([Boundaries(physical=(0, 2, 4), logical=(0, 2, 4))])
    assert later[1].details.without == ("layer 1 self_attention", "layer 2 self_attention")


def test_chunks_of_one_rank_have_to_agree(parts: SimpleNamespace) -> None:
    digests = []
    for second in (_params(0, 2, 4), _params(0, 4)):
        chunks = [parts.Wrapper(parts.Model(parts.Layer(number))) for number in (1, 2)]
        watch = _watch(*chunks)
        for chunk, params in zip(chunks, (_params(0, 2, 4), second), strict=True):
            _run(watch, chunk, _step(params))
        digests.append(_facts(watch).boundaries)

    assert digests[0] == digest_of([Boundaries(physical=(0, 2, 4), logical=(0, 2, 4))]) != digests[1]


def test_a_step_that_was_computed_twice_counts_once(parts: SimpleNamespace) -> None:
    facts = _seen(parts.Model(parts.Layer(1)), _step(_params(0, 2, 4)), _step(_params(0, 2, 4)))

    assert (facts.num_calls, facts.trained_tokens) == (1, 3)


def test_a_loss_is_copied_before_the_schedule_scales_it(parts: SimpleNamespace) -> None:
    model = parts.Model(parts.Layer(1))
    watch = _watch(model)
    output, loss = watch.forward_step(_step(_params(0, 2, 4)), None, model)
    result = loss(output)
    result[0].fill_(float("nan"))
    result[1].fill_(99)

    facts = _facts(watch)

    assert (facts.num_not_finite, facts.trained_tokens) == (0, 3)
    assert result[0].isnan()


def test_labels_are_only_summed_where_the_mask_is_the_one_of_the_loss(parts: SimpleNamespace) -> None:
    step = _step(_params(0, 2), mask=torch.tensor([[1, 0]]), labels=torch.tensor([[5, 6]]), tokens=2)

    assert _seen(parts.Model(parts.Layer(1)), step).trained_labels == -1


def test_boundaries_that_ranks_share_unevenly_are_not_compared(parts: SimpleNamespace) -> None:
    facts = _seen(parts.Model(parts.Layer(1)), _step(_params(0, 2, 4, local_cp_size=2)))

    assert (facts.num_without, facts.boundaries) == (0, 0)


def test_facts_in_the_middle_of_a_step_read_no_tensor(parts: SimpleNamespace) -> None:
    model = parts.Model(parts.Layer(1))
    watch = _watch(model)
    _run(watch, model, _step(None))
    watch.close()
    watch.calls[0].loss = watch.calls[0].labels = object()

    assert facts_without_reading(watch, place=RankPlace(rank=0)).num_without == 1


def test_no_hook_is_left_on_the_model(parts: SimpleNamespace) -> None:
    model = parts.Wrapper(parts.Model(parts.Layer(1), parts.Layer(2)))
    watch, num_hooks = _watch(model), []
    for _ in range(2):
        num_hooks.append(sum(len(module._forward_pre_hooks) for module in model.modules()))
        watch.close()

    assert num_hooks == [3, 0]
