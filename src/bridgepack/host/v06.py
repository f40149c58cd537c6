"""Megatron-Bridge 0.6, whose names are the canonical ones. Source: the wheels of 0.6.0 to 0.6.2."""

from pathlib import Path

from bridgepack.host.release import HostRelease

V06 = HostRelease(
    name="0.6",
    versions=">=0.6,<0.7",
    bridge="0.6.2",
    core="0.19.2",
    engine="2.17.1",
    bases=Path(__file__).with_name("bases_v06.json"),
)
