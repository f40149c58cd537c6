"""What Megatron-Bridge itself says of a run."""

from dataclasses import dataclass
from typing import Literal

#: Most characters of a refusal in one line.
_MAX_WORDS = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class HostVerdict:
    """What the host's own validation says of a run, or why it was not asked.

    Attributes:
        state: `accepted` or `refused`; or why there is no verdict: `absent`, the host is not installed here;
            `not importable`, it is installed and cannot be imported here; `other version`, the check is for another
            one; `not judged`, the settings could not be handed to it, or it did not answer.
        reason: what it refuses, in its own words, or why there is no verdict; empty if it accepts.
        version: its version here; empty if it is absent.
        stage: what refused: `to_bridge`, or `validate()` with all that runs before it; empty if it did not refuse.
        where: settings that its words name, in its own paths, the most certain first; of `to_bridge`, fields.
        code: of the rule that says what `to_bridge` refuses; empty if none does.
        place: file and line that refused, e.g. `megatron/bridge/training/config.py:1436`.
        world_size: number of GPUs it was asked for; None if it was not asked.
        seconds: wall time of the question; None if it was not asked.
    """

    state: Literal["accepted", "refused", "absent", "not importable", "other version", "not judged"]
    reason: str = ""
    version: str = ""
    stage: str = ""
    where: tuple[str, ...] = ()
    code: str = ""
    place: str = ""
    world_size: int | None = None
    seconds: float | None = None

    @property
    def is_judged(self) -> bool:
        """Whether the host accepted or refused the run."""
        return self.state in ("accepted", "refused")

    @property
    def text(self) -> str:
        """The verdict in one line."""
        host = f"megatron-bridge {self.version}"
        if not self.is_judged:
            return f"not validated by Megatron-Bridge itself: {self.reason}"
        gpus = f"{self.world_size} GPU{'s' if self.world_size != 1 else ''}" if self.world_size else ""
        circumstances = ", ".join(filter(None, (gpus, f"{self.seconds or 0:.0f} s")))
        if self.state == "accepted":
            return f"{host} itself accepts the run ({circumstances})"
        words = self.reason if len(self.reason) <= _MAX_WORDS else f"{self.reason[:_MAX_WORDS].rpartition(' ')[0]} ..."
        return f"{host} itself refuses the run ({circumstances}): {words}"
