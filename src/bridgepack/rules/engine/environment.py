"""Versions of the host and its companions that a run is judged for, and the environment that it will use."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bridgepack.releases import BRIDGE as BRIDGE
from bridgepack.releases import CORE as CORE
from bridgepack.releases import ENGINE as ENGINE
from bridgepack.releases import TARGET, note_of_newer, release_of


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Distribution -> version, and where it comes from."""

    versions: Mapping[str, Version]  #: of megatron-bridge, megatron-core and transformer-engine
    origin: str  #: where they come from, in words

    def __getitem__(self, distribution: str) -> Version:
        return self.versions[distribution]

    def are_in(self, allowed: Mapping[str, str]) -> bool:
        """Say whether every named distribution has a version that its specifier allows.

        A pre-release counts as the release that it leads to, so of `<0.18` and `>=0.18` one applies: 0.18.0rc0 has what
        is new in 0.18.
        """
        return all(is_in(Version(self.versions[name].base_version), text) for name, text in allowed.items())

    def described(self) -> str:
        """Return them in words."""
        named = ", ".join(f"{name} {self.versions[name]}" for name in (BRIDGE, CORE, ENGINE))
        return f"{named} ({self.origin})"


@functools.cache
def is_in(version: Version | None, allowed: str) -> bool:
    """Say whether a version lies in a range; pre-releases count, None does not."""
    return version is not None and SpecifierSet(allowed).contains(version, prereleases=True)


def version_of(text: str) -> Version | None:
    """Return the version that a text is; None where it is none."""
    try:
        return Version(text)
    except InvalidVersion:
        return None


def target_versions(bridge_version: str | None = None, installed: Mapping[str, str] | None = None) -> Versions:
    """Return the versions to judge for.

    Args:
        bridge_version: of megatron-bridge; its companions are those it was released with.
        installed: distribution -> version of the environment that the run will use; wins over the companions.

    Raises:
        ConfigError: the version is none, or too old to be known.
    """
    chosen, origin = dict(TARGET), "the target of this version of bridgepack"
    if bridge_version is not None:
        release = release_of(bridge_version)
        chosen = {BRIDGE: bridge_version, CORE: release.core, ENGINE: release.engine}
        origin = f"as released with megatron-bridge {bridge_version}"
    known = {name: version for name, version in (installed or {}).items() if name in chosen and version_of(version)}
    if known:
        chosen |= known if bridge_version is None else {k: v for k, v in known.items() if k != BRIDGE}
        origin = "from the environment given"
    newer = note_of_newer(chosen[BRIDGE])
    origin = f"{origin}; {newer}" if newer else origin
    return Versions(versions={name: Version(text) for name, text in chosen.items()}, origin=origin)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment that a run will use."""

    versions: Mapping[str, str]  #: distribution, in lower case with dashes -> version
    origin: str  #: where this comes from, in words
    python: str | None = None  #: version of Python; None where it is not known
