"""Kinds of load balancing that Megatron-Core's router reads, and what it makes of others: what BP742 says of them."""

from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.rules.run.models.numbers import KINDS, LISTED_KINDS

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]


def _balances(kind: Any) -> bool:
    """Return whether a router of this kind adds a loss; with kinds in a list, their coefficients are one, too."""
    from megatron.core.transformer.moe.router import TopKRouter

    coefficient = [0.01] * len(kind) if isinstance(kind, list) else 0.01
    router: Any = object.__new__(TopKRouter)
    router.__dict__.update(routing_type=kind, config=SimpleNamespace(moe_aux_loss_coeff=coefficient))
    return bool(router.is_aux_loss_enabled())


@pytest.mark.parametrize("kind", KINDS)
def test_a_loss_balances_the_kinds_that_may_stand_in_a_list(kind: str) -> None:
    is_loss = kind in LISTED_KINDS and kind != "none"

    assert (_balances(kind), _balances([kind])) == (is_loss, is_loss)


@pytest.mark.parametrize("kind", ["auxloss", "AUX_LOSS", "seq-aux-loss"])
def test_an_unknown_kind_balances_nothing_in_silence(kind: str) -> None:
    assert not _balances(kind)
    assert not _balances([kind])
    assert _balances([kind, "aux_loss"])
