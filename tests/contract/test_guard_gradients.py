"""What the guard reads of trained weights: names and gradients of torch modules that are nested as the host's are."""

from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from bridgepack.records.guarded import GroupSizes
from bridgepack.running.guard.gradients import (
    modules_with_gradient,
    reads_gradients,
    trained_modules,
    trained_weights,
)

pytestmark = pytest.mark.bridge


def _nested(**parts: Any) -> torch.nn.Module:
    module = torch.nn.Module()
    for name, part in parts.items():
        setattr(module, name, part)
    return module


def _linear() -> torch.nn.Linear:
    return torch.nn.Linear(2, 3, bias=False)


def _wrapped() -> torch.nn.Module:
    """Return a frozen matrix with an adapter, as LoRA of the host has it."""
    own = _linear().requires_grad_(False)
    return _nested(to_wrap=own, adapter=_nested(linear_in=_linear(), linear_out=_linear()))


def _layer(number: int, **parts: Any) -> torch.nn.Module:
    layer = _nested(**parts)
    layer.layer_number = number
    return layer


@pytest.fixture
def language_model(bridge: ModuleType) -> Any:
    """Return a class of language models out of layers, to which the host would send tokens."""
    from megatron.core.models.common.language_module.language_module import LanguageModule

    class Model(LanguageModule):  # type: ignore[misc]
        def __init__(self, *layers: torch.nn.Module, **parts: Any) -> None:
            torch.nn.Module.__init__(self)
            self.decoder = _nested(layers=torch.nn.ModuleList(layers))
            for name, part in parts.items():
                setattr(self, name, part)

    return Model


def _names(model: Any) -> list[str]:
    return [module.name for module in trained_modules([model])]


def test_an_adapter_is_one_module_and_frozen_weights_are_none(language_model: Any) -> None:
    model = language_model(_layer(7, mlp=_nested(linear_fc1=_wrapped())), embedding=_linear().requires_grad_(False))

    assert _names(model) == ["layer 7 mlp.linear_fc1.adapter"]


def test_experts_of_a_layer_are_one_module(language_model: Any) -> None:
    experts = torch.nn.ModuleList([_nested(linear_fc1=_linear(), linear_fc2=_linear()) for _ in range(4)])
    model = language_model(_layer(1, mlp=_nested(experts=_nested(local_experts=experts), router=_linear())))

    (first, second, router) = trained_modules([model])
    assert (first.name, second.name, router.name) == (
        "layer 1 mlp.experts.linear_fc1",
        "layer 1 mlp.experts.linear_fc2",
        "layer 1 mlp.router",
    )
    first.weights[2].grad = torch.ones(3, 2)
    assert modules_with_gradient((first, second, router)) == 0b001


def test_vision_layers_and_what_chooses_tokens_are_not_judged(language_model: Any) -> None:
    attention = _nested(indexer=_nested(linear_wq_b=_linear()), linear_proj=_linear())
    model = _nested(vision_model=_linear(), language_model=language_model(_layer(1, self_attention=attention)))

    assert _names(model) == ["layer 1 self_attention.linear_proj"]


def test_layers_that_predict_more_tokens_have_names_of_their_own(language_model: Any) -> None:
    predicting = _nested(layers=torch.nn.ModuleList([_layer(1, eh_proj=_linear())]))
    model = language_model(_layer(1, eh_proj=_linear()), mtp=predicting)

    assert _names(model) == ["layer 1 eh_proj", "mtp layer 1 eh_proj"]


def test_the_gradient_of_the_buffers_counts_and_one_that_is_not_a_number_is_one(language_model: Any) -> None:
    model = language_model(*(_layer(number, mlp=_linear()) for number in range(1, 5)))
    modules = trained_modules([model])
    for module, gradient in zip(modules, (0.0, 1e-30, float("nan")), strict=False):
        module.weights[0].main_grad = torch.full((3, 2), gradient)

    assert modules_with_gradient(modules) == 0b0110
    assert modules_with_gradient(()) == 0


def test_shares_of_ranks_add_up_to_the_model(language_model: Any) -> None:
    """2 copies over 2 context ranks and 2 tensor ranks: of 8 ranks each has a whole norm, and half of the matrix."""
    layer = _layer(1, norm=torch.nn.LayerNorm(5), mlp=_linear(), experts=_linear())
    layer.mlp.weight.tensor_model_parallel = True
    layer.experts.weight.allreduce = False
    model = language_model(layer)
    sizes = GroupSizes(data=2, context=2, tensor=2, expert_copies=4)

    own = trained_weights([model], trained_modules([model]), sizes, stage=0)
    assert 8 * own.total == 8 * own.trained == 10 + 2 * 6 + 2 * 6
    assert own.num_modules == 3


def test_the_last_stage_s_copy_of_the_embedding_counts_once(language_model: Any) -> None:
    model = language_model(output_layer=_linear())
    model.output_layer.weight.shared_embedding = True

    assert [trained_weights([model], (), GroupSizes(), stage=stage).total for stage in (0, 1)] == [6, 0]


@pytest.mark.parametrize(
    ("ddp", "reads"),
    [({}, True), ({"use_megatron_fsdp": True}, False), ({"reuse_grad_buf_for_mxfp8_param_ag": True}, False)],
)
def test_buffers_with_other_values_are_not_read(ddp: dict[str, bool], reads: bool) -> None:
    assert reads_gradients(SimpleNamespace(ddp=SimpleNamespace(**ddp))) is reads
