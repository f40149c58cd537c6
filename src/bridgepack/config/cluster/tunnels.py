"""How Slurm's commands are reached: on this machine, or over SSH."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bridgepack.config.cluster.mounts import absolute_path, check_absolute
from bridgepack.config.section import Section

_Text = Annotated[str, Field(min_length=1)]


def _absolute_or_none(value: str) -> str:
    return absolute_path(value) if value else value


class LocalTunnel(Section):
    """The launching machine is a login node: sbatch is called on it."""

    kind: Literal["local"]
    """`local`"""
    job_dir: Annotated[str, Field(min_length=0), AfterValidator(_absolute_or_none)] = ""
    """Folder of the jobs that all nodes see, absolute; by default `$NEMORUN_HOME/experiments`."""


class SSHTunnel(Section):
    """Slurm's commands are called over SSH on another machine."""

    kind: Literal["ssh"]
    """`ssh`"""
    host: _Text
    """Login node."""
    user: _Text
    """User on it."""
    job_dir: Annotated[str, check_absolute]
    """Folder of the jobs on the cluster, absolute, that all nodes see."""
    port: Annotated[int, Field(ge=1, le=65535, strict=True)] | None = None
    """Port of SSH; by default 22."""
    identity: _Text | None = None
    """File of the private key; without it, and where no agent has a key, nemo-run asks for a password."""
    shell: _Text | None = None
    """Shell on the login node."""
    pre_command: _Text | None = None
    """Command before each of nemo-run's, e.g. `source /etc/profile`."""


Tunnel = Annotated[LocalTunnel | SSHTunnel, Field(discriminator="kind")]
