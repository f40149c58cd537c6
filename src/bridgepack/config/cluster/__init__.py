"""Cluster files: where and how a run's tasks are started, for every executor that nemo-run has.

In: YAML, TOML or a built-in name. Out: a `ClusterConfig`: an executor for each task, and notes on surprises.
Read first: `cluster`.
"""

from bridgepack.config.cluster.cluster import ClusterConfig, load_cluster

__all__ = ["ClusterConfig", "load_cluster"]
