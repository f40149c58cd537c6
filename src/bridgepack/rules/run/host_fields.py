"""Whether a class of the host has a field: as it says itself, as the release's facts say, or not known."""

from packaging.version import Version

from bridgepack.host.names import class_in
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.subject import Run


def is_newer_than_facts(run: Run) -> bool:
    """Return whether a run is for a version or a commit after the one that the facts were read from."""
    release = run.versions.release
    return not release.is_known or run.versions[BRIDGE] > Version(release.bridge)


def has_field(run: Run, kind: str, name: str) -> bool | None:
    """Return whether a class has a field; None where the facts lack it and are older than the host.

    Args:
        run: the run.
        kind: the class, with its module, under its canonical name.
        name: the field.
    """
    if not kind:
        return False
    kind = class_in(run.versions.release, kind)
    classes = run.slow_facts.installed_fields()
    if not isinstance(classes, str) and (answer := classes.has(kind, name)) is not None:
        return answer
    if name in run.versions.release.facts.types_of(kind):
        return True
    return None if is_newer_than_facts(run) else False
