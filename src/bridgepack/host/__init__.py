"""What Megatron-Bridge is and does, as data: releases, model classes, adapters. Nothing of it is imported.

In: versions and names. Out: `HostRelease`s and the facts of models. Rooms above decide what follows from them.
Read first: `release`, then `v07`. A new release is one file such as `v07`, its JSON from `scripts/host_facts`, its
entries in `model_fields.json` and `adapter_placements.json`, which two contract tests write over it, and its name in
RELEASES; a new habit is one field of `HostRelease` and its one reader.
"""

from dataclasses import replace
from functools import cache, lru_cache

from packaging.version import Version

from bridgepack.errors import ConfigError
from bridgepack.host.release import BRIDGE as BRIDGE
from bridgepack.host.release import CORE as CORE
from bridgepack.host.release import ENGINE as ENGINE
from bridgepack.host.release import HostRelease as HostRelease
from bridgepack.host.v06 import V06
from bridgepack.host.v07 import V07

#: The supported releases, the oldest first.
RELEASES = (V06, V07)
#: Their packages, without doubles.
ROOTS = tuple(dict.fromkeys(release.root for release in RELEASES))
#: The release that is meant where nothing says another.
TARGET = V06
#: Longest part of a version that is none which a message repeats.
_MAX_SHOWN = 80
#: What to do about a version that is newer than all of them.
UPDATE = f"bridgepack knows Megatron-Bridge up to {RELEASES[-1].name}; update it with pip install -U bridgepack"


@lru_cache(maxsize=64)
def release_of(bridge_version: str, *, place: str = "--bridge-version") -> HostRelease:
    """Return the release that a version of Megatron-Bridge belongs to, e.g. 0.6 for `0.6`, `0.6.1` and `0.6.2rc1`.

    A version newer than every release is treated like the newest one; the release says so by `is_known`.

    Args:
        bridge_version: the version.
        place: where it was given, for the message.

    Raises:
        ConfigError: it is no version, or older than every supported release.
    """
    try:
        version = Version(bridge_version)
    except ValueError:  # no version, or one with a number of thousands of digits
        version = None
    if version is None or version.epoch or not bridge_version[:1].isdigit():
        raise ConfigError(f"{place} is {bridge_version[:_MAX_SHOWN]!r}; allowed: a version such as {TARGET.bridge}.")
    release_found = next((release for release in RELEASES if bridge_version in release), None)
    if release_found is None and Version(version.base_version) < Version(RELEASES[0].bridge):
        names = " and ".join(release.name for release in RELEASES)
        raise ConfigError(
            f"{place} is {bridge_version}; allowed: {names}. Older ones are no longer supported: upgrade "
            "megatron-bridge."
        )
    return release_found or _like_newest(version.base_version)


def release_for(bridge_version: str | None) -> HostRelease:
    """Return the release of settings that say a version, or the target for those that do not."""
    return TARGET if bridge_version is None else release_of(bridge_version)


def why_unknown(release: HostRelease) -> str | None:
    """Return why nothing is known of a release's habits; None for one that is known."""
    return None if release.is_known else f"not known for {release.name}: {UPDATE}"


@cache
def _like_newest(version: str) -> HostRelease:
    """Return the newest release under the version of one that is not known here."""
    name = ".".join(version.split(".")[:2])
    return replace(RELEASES[-1], name=name, versions=f"=={version}", bridge=version, is_known=False)


def note_of_newer(bridge_version: str) -> str:
    """Return what to say of a version that is newer than all that is known here; empty for others, as for none."""
    try:
        release = release_of(bridge_version)
    except ConfigError:
        return ""
    if release.is_known:
        return ""
    return f"megatron-bridge {bridge_version} is newer than all that is known, and treated like the newest: {UPDATE}"
