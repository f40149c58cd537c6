"""One executor of each kind with a value in every field that a cluster file can set; they are in full_clusters.yaml."""

import copy
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

type Kinds = dict[str, dict[str, Any]]

# Aliases of the file are one object each; copies cannot be changed through one another.
_PARTS: dict[str, Kinds] = {
    part: {kind: copy.deepcopy(dict(values)) for kind, values in kinds.items()}
    for part, kinds in YAML(typ="safe", pure=True).load(Path(__file__).with_suffix(".yaml")).items()
}
LAUNCHERS, PACKAGERS, TUNNELS, EXECUTORS = (_PARTS[part] for part in ("launchers", "packagers", "tunnels", "executors"))


#: Fields without which a kind is refused.
_NEEDED = (
    "kind container_image image workdir_pvc resource_shape node_group nemo_run_dir mounts base_url kube_apiserver_url "
    "client_id client_secret project_name pvc_nemo_run_dir pvcs"
)


def least_executor(kind: str, **executor: Any) -> dict[str, Any]:
    """Return an executor of a kind with the fields that it needs, and `executor` besides."""
    return {**{name: value for name, value in EXECUTORS[kind].items() if name in _NEEDED.split()}, **executor}


def full_cluster(kind: str, **executor: Any) -> dict[str, Any]:
    """Return a cluster file with every field of a kind set; `executor` replaces some of them."""
    return {"executor": {**EXECUTORS[kind], **executor}, "workspace": "/shared/bridgepack"}
