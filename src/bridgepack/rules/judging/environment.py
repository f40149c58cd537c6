"""Versions of the host and its companions that a run is judged for, and the environment of the run."""

import functools
from collections.abc import Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from bridgepack.host import BRIDGE as BRIDGE
from bridgepack.host import CORE as CORE
from bridgepack.host import ENGINE as ENGINE
from bridgepack.host import TARGET, HostRelease, note_of_newer, release_of, why_unknown


@dataclass(frozen=True, kw_only=True, slots=True)
class Versions:
    """Distribution -> version, and the origin of the versions."""

    versions: Mapping[str, Version]  #: of megatron-bridge, megatron-core and transformer-engine
    origin: str  #: where they come from, as text

    def __getitem__(self, distribution: str) -> Version:
        return self.versions[distribution]

    @property
    def release(self) -> HostRelease:
        """The release of megatron-bridge; one that is not known here is treated like the newest."""
        return release_of(str(self.versions[BRIDGE]))

    @property
    def why_unknown(self) -> str | None:
        """Why nothing is known of the habits of this megatron-bridge; None for a release that is known."""
        return why_unknown(self.release)

    @property
    def note(self) -> str:
        """What to say of a megatron-bridge that is newer than all that is known; empty for others."""
        return note_of_newer(str(self.versions[BRIDGE]))

    def are_in(self, specifiers: Mapping[str, str]) -> bool:
        """Return whether every given distribution has a version that its specifier allows.

        A pre-release counts as its release, so exactly one of `<0.18` and `>=0.18` applies: 0.18.0rc0 has the features
        of 0.18.
        """
        return not specifiers or all(
            is_in(Version(self.versions[name].base_version), text) for name, text in specifiers.items()
        )

    def describe(self) -> str:
        """Return the versions and their origin as text."""
        versions = ", ".join(f"{name} {self.versions[name]}" for name in (BRIDGE, CORE, ENGINE))
        return f"{versions} ({self.origin})"


@functools.cache
def is_in(version: Version | None, specifier: str) -> bool:
    """Return whether a version is in a range; pre-releases count, None does not."""
    return version is not None and SpecifierSet(specifier).contains(version, prereleases=True)


def version_of(text: str) -> Version | None:
    """Return the parsed version, or None if the text is not a version."""
    try:
        return Version(text)
    except ValueError:  # none, or one with a number of thousands of digits
        return None


def target_versions(bridge_version: str | None = None, environment: Mapping[str, str] | None = None) -> Versions:
    """Return the versions that runs are judged for.

    Args:
        bridge_version: of megatron-bridge; its companions have the versions it was released with.
        environment: distribution -> version in the environment of the run; overrides the companions.

    Raises:
        ConfigError: bridge_version is not a version, or older than every supported release.
    """
    versions, origin = TARGET.companions, "the target of this version of bridgepack"
    if bridge_version is not None:
        release = release_of(bridge_version)
        versions = {BRIDGE: bridge_version, CORE: release.core, ENGINE: release.engine}
        origin = f"as released with megatron-bridge {bridge_version}"
    given_versions = {
        name: version for name, version in (environment or {}).items() if name in versions and version_of(version)
    }
    if given_versions:
        versions |= (
            given_versions if bridge_version is None else {k: v for k, v in given_versions.items() if k != BRIDGE}
        )
        origin = "from the environment given"
    release_of(versions[BRIDGE], place="--bridge-version" if bridge_version else f"{BRIDGE} in the environment")
    return Versions(versions={name: Version(text) for name, text in versions.items()}, origin=origin)


@dataclass(frozen=True, kw_only=True)
class Environment:
    """The environment of a run."""

    versions: Mapping[str, str]  #: distribution, in lower case with dashes -> version
    origin: str  #: where this comes from, as text
    python: str | None = None  #: version of Python; None if unknown
