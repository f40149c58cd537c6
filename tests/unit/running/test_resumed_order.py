"""BP896: a resumed run is refused if, and only if, the replay reads other packs at some step after the checkpoint."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from bridgepack.errors import ConfigError
from bridgepack.records.guarded import DataOrder, ResumeFacts
from bridgepack.replay.order import PackOrder
from bridgepack.replay.settings import ReplaySettings, Topology
from bridgepack.rules.training import resumed_in_another_order
from bridgepack.running.starting import ordered_by

#: 41 packs in global batches of 4, resumed in the second epoch.
BEFORE = ReplaySettings(
    version="0.6.2", num_packs=41, topology=Topology(world_size=1), micro_batch_size=1, global_batch_size=4
)
_STEPS, _CHECKPOINT = 30, 12
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"loader": "batch"},
    {"loader": "single"},
    {"loader": "cyclic"},
    {"seed": 7},
    {"topology": Topology(world_size=2)},
    {"topology": Topology(world_size=2, tensor_model_parallel_size=2)},
    {"micro_batch_size": 2},
    {"drop_last": False},
    {"data_sharding": False},
    {"max_samples": 41},
    {"max_samples": 80, "seed": 9},
    {"global_batch_size": 8},
)
_STARTS: tuple[dict[str, Any], ...] = ({}, {"loader": "cyclic"}, {"loader": "single"}, {"max_samples": 80})


def _refused(before: ReplaySettings, now: ReplaySettings) -> list[str]:
    plain = DataOrder(fingerprint="3f2a", artifact="packed")
    facts = ResumeFacts(checkpoint="c", before=ordered_by(before, plain), now=ordered_by(now, plain))
    return [finding.group for finding in resumed_in_another_order.check(facts)]


def _packs_after(settings: ReplaySettings, consumed: int, *, resumes: bool) -> list[Any]:
    """Return the packs of each step after the checkpoint, over all ranks; up to where the host stops."""
    step = consumed // settings.global_batch_size
    resumed = replace(settings, resume_step=step, consumed_packs=consumed) if resumes else settings
    try:
        order, steps = PackOrder(resumed), []
        for number in range(step + 1, step + 1 + _STEPS):
            ranks = range(settings.topology.data_parallel_size)
            steps.append(sorted(pack for rank in ranks for pack in order.packs_at(number, rank).tolist()))
    except ConfigError:
        return steps if "steps" in locals() else []
    return steps


@pytest.mark.parametrize(("start", "change"), product(_STARTS, CHANGES), ids=str)
def test_a_resumed_run_is_refused_where_its_packs_are_others(start: dict[str, Any], change: dict[str, Any]) -> None:
    before, consumed = replace(BEFORE, **start), _CHECKPOINT * BEFORE.global_batch_size
    consumed = 8 if before.loader == "single" else consumed  # which reads its packs once
    now = replace(before, **change)
    first = _packs_after(before, consumed, resumes=True)
    assert first == _packs_after(before, consumed, resumes=False)
    assert len(first) > 5
    are_equal = first == _packs_after(now, consumed, resumes=True)
    assert (_refused(before, now) == []) == are_equal


def test_what_differs_is_named() -> None:
    cyclic = replace(BEFORE, loader="cyclic")
    assert _refused(BEFORE, cyclic)[0] == "loader"
    assert _refused(cyclic, replace(cyclic, topology=Topology(world_size=2))) == ["data_parallel_size"]
    assert _refused(cyclic, replace(cyclic, seed=7)) == []  # which a cyclic loader ignores


def test_an_order_of_an_older_bridgepack_is_compared_as_far_as_it_goes() -> None:
    older = DataOrder(fingerprint="3f2a", artifact="packed", seed=1234, global_batch_size=4, num_packs=41)
    now = ordered_by(BEFORE, replace(older, seed=None))
    assert list(resumed_in_another_order.check(ResumeFacts(checkpoint="c", before=older, now=now))) == []
    other = replace(now, seed=7)
    assert len(list(resumed_in_another_order.check(ResumeFacts(checkpoint="c", before=older, now=other)))) == 1
