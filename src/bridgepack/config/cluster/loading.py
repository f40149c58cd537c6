"""Finds and loads a cluster: a YAML or TOML file, or a built-in name."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.errors import did_you_mean, shown
from bridgepack.config.reading import parse_overrides, read_sections
from bridgepack.errors import ConfigError

#: Clusters that need no file: this machine.
BUILT_IN = ("local", "torchrun")


def load_cluster(target: str | Path | ClusterConfig, overrides: Mapping[str, Any] | None = None) -> ClusterConfig:
    """Return the cluster that `target` names, with overrides applied and validated.

    Args:
        target: a cluster, `FILE.yaml`, `FILE.toml`, or `local` or `torchrun` for this machine.
        overrides: dotted path -> value, e.g. `{"executor.nodes": 4}`.

    Raises:
        ConfigError: when it cannot be found or read, or says something unknown or impossible.
    """
    cluster = target if isinstance(target, ClusterConfig) else _load(str(target))
    return cluster.override(overrides) if overrides else cluster


def parse_cluster_overrides(items: tuple[str, ...], *, option: str = "--cluster-set") -> dict[str, Any]:
    """Return `path=value` strings as a mapping, as `parse_overrides` does."""
    return parse_overrides(items, option=option, example="executor.nodes=4")


def _load(target: str) -> ClusterConfig:
    if target in BUILT_IN:
        return ClusterConfig.from_mapping({"executor": {"kind": target}})
    path = Path(target)
    if path.suffix.lower() not in {".yaml", ".yml", ".toml"}:
        hint = did_you_mean(target, BUILT_IN, "Write a cluster file, or use one of these names.")
        raise ConfigError(f"cluster is {shown(target)}; allowed: FILE.yaml, FILE.toml, {' or '.join(BUILT_IN)}. {hint}")
    return ClusterConfig.from_mapping(read_sections(path, what="cluster", fields="executor, workspace, ..."))
