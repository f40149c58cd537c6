"""The rule on what Megatron-Bridge itself says of a run."""

from collections.abc import Callable
from typing import ClassVar

from bridgepack.records import HostVerdict
from bridgepack.records.messages import join, setting
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, Decorator, Found, Rule, place, wrong


class HostRule(Rule):
    """A rule on the verdict of the host's own validation."""

    judges: ClassVar[str] = "the run, by the installed Megatron-Bridge"


host_rule = Decorator[Callable[[HostVerdict], Found], HostRule](HostRule)


@host_rule("BP993", ERROR, "bridge/training/config.py:1853-1886,1136", noticed=VALIDATE, evidence=EXECUTED)
def refused_by_the_host_itself(verdict: HostVerdict) -> Found:
    """The installed Megatron-Bridge refuses the run, for a reason that no other rule has found.

    Why: Crash at start: a run calls the same functions first, with the same words.
    Bad: model.moe_router_group_topk 2, model.moe_router_num_groups not set. Good: model.moe_router_num_groups 4.
    Fix: Change the setting that Megatron-Bridge's message names; its source shows the comparison.
    """
    if verdict.state == "refused":
        host = f"megatron-bridge {verdict.version}"
        accepted_values = f"what {host} accepts on {verdict.world_size} GPUs ({verdict.place})"
        if not verdict.place:
            accepted_values = f"what {host} can be given ({verdict.stage})"
        where = join(map(setting, verdict.where)) if verdict.place else join(map(place, verdict.where))
        yield wrong(where or place("the run"), verdict.reason, accepted_values)
