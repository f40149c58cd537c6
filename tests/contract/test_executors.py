"""Cluster files against the real nemo-run 0.11: every field has its counterpart, and its value arrives."""

import json
import subprocess
from typing import Any, get_args

import pytest
from pydantic import BaseModel
from ruamel.yaml import YAML

from bridgepack.config.cluster.base import TASKS, Launcher, Packager
from bridgepack.config.cluster.executors import EXECUTORS as SECTIONS
from bridgepack.config.cluster.executors import FACTS, KNOWN, TYPED
from bridgepack.config.cluster.slurm import SlurmJobDetails, Tunnel
from bridgepack.config.errors import alternatives
from tests.support.docs_blocks import blocks
from tests.support.executor_probe import CLASSES
from tests.support.full_clusters import EXECUTORS, LAUNCHERS, PACKAGERS, TUNNELS, full_cluster
from tests.support.launch_golden import FOLDER, SCRIPTS, VARIABLES, golden_requests
from tests.support.platforms import ask

pytestmark = [pytest.mark.bridge, pytest.mark.full]

#: Init fields that nemo-run sets itself, by part and kind; `*` for every kind.
SET_BY_NEMO_RUN = {
    ("executor", "*"): {"experiment_id", "job_dir"},
    ("launcher", "fault_tolerance"): {"cfg_path", "finished_flag_file", "job_results_file"},
    ("launcher", "slurm_ray"): {"template_path", "template_inline", "template_vars"},
    ("tunnel", "*"): {"packaging_jobs"},
}
#: Fields of launches that the files refuse, for good reason.
REFUSED = {"heterogeneous", "het_group_indices", "cloud", "region", "zone"}
#: Short names of the classes that have one.
SHORT = {facts.class_name: kind for kind, facts in KNOWN.items()}
#: The example of each kind in the documentation, with 8 GPUs a node where there are several nodes.
DOCUMENTED: dict[str, dict[str, Any]] = {
    SHORT.get(values["executor"].get("class"), values["executor"]["kind"]): values
    for block in blocks("yaml", page="launch.md", section="Clusters")
    for values in [YAML(typ="safe", pure=True).load(block.text)]
}
#: Sections of an executor.
PARTS = {"launcher": Launcher, "packager": Packager, "tunnel": Tunnel, "job_details": SlurmJobDetails}
SECRET = {"DGX_CLIENT_SECRET": "from the environment"}


def _requests() -> dict[str, Any]:
    made = {f"full/{kind}": {"values": full_cluster(kind)} for kind in EXECUTORS}
    for kind, launcher in LAUNCHERS.items():
        task = "build" if kind == "slurm_ray" else "train"
        values = full_cluster("slurm")
        values["tasks"] = {task: {"executor": {"launcher": launcher}}}
        made[f"launcher/{kind}"] = {"values": values, "task": task}
    made |= {
        f"packager/{kind}": {"values": full_cluster("slurm", packager=packager)} for kind, packager in PACKAGERS.items()
    }
    made |= {f"tunnel/{kind}": {"values": full_cluster("slurm", tunnel=tunnel)} for kind, tunnel in TUNNELS.items()}
    for kind in EXECUTORS:
        secret = {"env_vars": {"HF_TOKEN": "hf_written_out", "OTHER": "${env:NOT_SET}"}}
        secret |= {"client_secret": "written out"} if kind == "dgxcloud" else {}
        made[f"display/{kind}"] = {"values": full_cluster(kind, **secret), "for_display": True}
    for kind, values in DOCUMENTED.items():
        made |= {f"dry-docs-{kind}-{task}": {"values": values, "task": task, "num_gpus": 16} for task in TASKS}
    made["refused/infra"] = {"values": full_cluster("skypilot", cloud="aws")}
    made["refused/lacks"] = {"values": full_cluster("kubeflow", num_node=2, gpus_per_nod=8)}
    return {"made": made | golden_requests()}


@pytest.fixture(scope="module")
def answer(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ask(_requests(), tmp_path_factory.mktemp("probe"), **SECRET, **VARIABLES)


def _listed(part: str) -> dict[str, set[str]]:
    models = SECTIONS if part == "executor" else {_kind(model): model for model in alternatives(PARTS[part])}
    return {
        kind: {field.alias or name for name, field in model.model_fields.items() if name != "kind"}
        for kind, model in models.items()
    }


def _kind(model: type[BaseModel]) -> str:
    field = model.model_fields.get("kind")
    return str(get_args(field.annotation)[0]) if field else ""


def _of_class(answer: dict[str, Any], part: str, kind: str) -> set[str]:
    """Return the fields of a class of nemo-run's that it does not set itself."""
    set_by_it = SET_BY_NEMO_RUN.get((part, "*"), set()) | SET_BY_NEMO_RUN.get((part, kind), set())
    return set(answer["classes"][part][kind]) - set_by_it


@pytest.mark.parametrize("part", ["executor", "launcher", "packager", "tunnel", "job_details"])
def test_every_init_field_of_nemo_run_is_a_field_of_the_file(answer: dict[str, Any], part: str) -> None:
    listed = _listed(part)

    assert listed.keys() - {"nemo_run"} == answer["classes"][part].keys() - KNOWN.keys()
    for kind in listed.keys() - {"nemo_run"}:
        assert listed[kind] == _of_class(answer, part, kind), kind


def test_every_other_executor_that_experiments_start_has_a_short_name(answer: dict[str, Any]) -> None:
    assert {facts.class_name for facts in KNOWN.values()} == set(answer["experiment_executors"]) - set(TYPED)


def test_facts_are_those_of_the_class(answer: dict[str, Any]) -> None:
    for kind, facts in FACTS.items():
        assert facts.class_name in answer["experiment_executors"], kind
        named = {facts.nodes, facts.processes, facts.gpus, facts.job_folder, *facts.gpu_only, *facts.needs} - {""}
        assert named <= _of_class(answer, "executor", kind), kind


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("infra", ["executor.kind is skypilot; ", "Cannot specify both `infra` and `cloud` parameters."]),
        ("lacks", ["executor has fields that KubeflowExecutor does not take: ", "unexpected keyword argument"]),
    ],
)
def test_what_a_class_does_not_take_is_refused(answer: dict[str, Any], name: str, expected: list[str]) -> None:
    for part in expected:
        assert part in answer["refused"][f"refused/{name}"]


@pytest.mark.parametrize("kind", EXECUTORS)
def test_the_literal_executor_sets_every_field_to_another_value(answer: dict[str, Any], kind: str) -> None:
    defaults = answer["classes"]["executor"][kind]
    values = EXECUTORS[kind]

    assert set(values) - {"kind"} == _of_class(answer, "executor", kind) - REFUSED
    same = [name for name, value in values.items() if name in defaults and value == defaults[name]]
    assert same == []


def _differences(expected: Any, found: Any, path: str = "") -> list[str]:
    """Return where what was written did not arrive; text that stands for a number is the same."""
    if isinstance(expected, dict):
        wrong = [] if isinstance(found, dict) else [f"{path}: {found!r}"]
        return wrong or [
            line
            for name, value in expected.items()
            if name != "kind"
            for line in _differences(value, found.get(name, "absent"), f"{path}.{name}")
        ]
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [
            line
            for index, (one, other) in enumerate(zip(expected, found, strict=True))
            for line in _differences(one, other, f"{path}.{index}")
        ]
    return [] if expected == found or str(expected) == found else [f"{path}: {found!r} for {expected!r}"]


@pytest.mark.parametrize("kind", EXECUTORS)
def test_every_value_arrives(answer: dict[str, Any], kind: str) -> None:
    expected: dict[str, Any] = {**EXECUTORS[kind]}
    if kind == "slurm":
        expected["srun_args"] = ["--mpi=pmix", "--cpus-per-task=12"]
        expected["dependencies"] = ["slurm_tunnel://nemo_run/12345", "slurm_tunnel://nemo_run/67/master/0"]
    if kind == "dgxcloud":
        expected["client_secret"] = SECRET["DGX_CLIENT_SECRET"]
    made = answer["made"][f"full/{kind}"]

    assert made["class"] == FACTS[kind].class_name.rpartition(".")[2]
    assert _differences(expected, made) == []


@pytest.mark.parametrize(
    ("part", "kinds"), [("launcher", LAUNCHERS), ("packager", PACKAGERS), ("tunnel", TUNNELS)], ids=lambda one: str(one)
)
def test_every_value_of_a_part_arrives(answer: dict[str, Any], part: str, kinds: dict[str, Any]) -> None:
    for kind, values in kinds.items():
        fields = set(values) - {"kind"}
        made = answer["made"][f"{part}/{kind}"][part]

        assert fields == _listed(part)[kind] - ({"template_path"} if kind == "slurm_template" else set()), kind
        assert made["class"] == CLASSES[part][kind].rpartition(":")[2]
        assert _differences(values, made) == [], kind
    assert kinds


def test_every_kind_is_documented_with_an_example() -> None:
    assert DOCUMENTED.keys() == (SECTIONS.keys() | KNOWN.keys()) - {"nemo_run"}


@pytest.mark.parametrize("kind", EXECUTORS)
def test_display_hides_secrets_and_leaves_references(answer: dict[str, Any], kind: str) -> None:
    made = answer["made"][f"display/{kind}"]

    assert "written" not in json.dumps(made)
    assert made["env_vars"]["HF_TOKEN"].strip('"') == "***"
    assert made["env_vars"]["OTHER"].strip('"') == "${env:NOT_SET}"
    if kind == "dgxcloud":
        assert made["client_secret"] == "***"


@pytest.mark.parametrize("name", SCRIPTS)
def test_slurm_scripts_are_the_golden_ones(answer: dict[str, Any], name: str) -> None:
    """Review a difference, then write them anew: python -m tests.support.launch_golden."""
    assert answer["outputs"][f"dry-{name}"] == (FOLDER / f"{name}.sh").read_text()


def test_golden_scripts_are_bash() -> None:
    for name in SCRIPTS:
        checked = subprocess.run(
            ["bash", "-n", str(FOLDER / f"{name}.sh")], capture_output=True, text=True, check=False
        )
        assert checked.returncode == 0, checked.stderr
    assert {path.stem for path in FOLDER.glob("*.sh")} == set(SCRIPTS)


def test_exported_values_are_what_the_file_says(answer: dict[str, Any]) -> None:
    script = answer["outputs"]["dry-srun-container"]
    exports = "\n".join(line for line in script.splitlines() if line.startswith("export "))
    shown = 'printf "%s\\n" "$XLA_FLAGS" "$CACHE" "$HF_TOKEN"'
    bash = ["env", "-i", "HOME=/home-of-ada", "bash", "-c", f"{exports}\n{shown}"]
    printed = subprocess.run(bash, capture_output=True, text=True, check=True).stdout

    assert printed.splitlines() == ['--first=1 --second="two words"', "/home-of-ada/cache", VARIABLES["HF_TOKEN"]]


@pytest.mark.parametrize("task", TASKS)
def test_kubeflow_reads_the_whole_manifest(answer: dict[str, Any], task: str) -> None:
    output = answer["outputs"][f"dry-docs-kubeflow-{task}"]
    trainer = output["body"]["spec"]["trainer"]

    assert output["as_read_by_kubeflow"] == output["body"]
    assert trainer["numNodes"] == (2 if task == "train" else 1)
    assert trainer["numProcPerNode"] == (8 if task == "train" else 1)
    assert ("resourcesPerNode" in trainer) == (task == "train")


@pytest.mark.parametrize("kind", ["skypilot", "skypilot_jobs"])
def test_skypilot_takes_the_task(answer: dict[str, Any], kind: str) -> None:
    train = answer["outputs"][f"dry-docs-{kind}-train"]
    build = answer["outputs"][f"dry-docs-{kind}-build"]

    assert train["resources"]["accelerators"] == {"H100": 8}
    assert (train["num_nodes"], build.get("num_nodes", 1)) == (2, 1)
    assert "accelerators" not in build["resources"]
    assert train["file_mounts"]["/workspace"]["name"] == "bridgepack-runs"
    clusters = [answer["made"][f"dry-docs-{kind}-{task}"]["cluster_name"] for task in ("train", "build")]
    assert clusters == ([None, "bridgepack-cpu"] if kind == "skypilot" else [None, None])


def test_dgx_cloud_is_asked_for_nodes_and_gpus(answer: dict[str, Any]) -> None:
    train, build = (answer["outputs"][f"dry-docs-dgxcloud-{task}"] for task in ("train", "build"))

    assert train["url"] == "https://research.run.ai/api/v1/workloads/distributed"
    assert (train["spec"]["numWorkers"], train["spec"]["compute"]["gpuDevicesRequest"]) == (2, 8)
    assert build["url"] == "https://research.run.ai/api/v1/workloads/trainings"
    assert build["spec"]["compute"]["gpuDevicesRequest"] == 0


def test_lepton_is_asked_for_nodes_and_shapes(answer: dict[str, Any]) -> None:
    train, build = (answer["outputs"][f"dry-docs-lepton-{task}"]["spec"] for task in ("train", "build"))

    assert (train["completions"], train["resource_shape"]) == (2, "gpu.8xh100-80gb")
    assert (build["completions"], build["resource_shape"]) == (1, "cpu.large")
    assert {"name": "HF_TOKEN", "value_from": {"secret_name_ref": "hub"}} in train["envs"]


def test_docker_is_asked_for_gpus_only_to_train(answer: dict[str, Any]) -> None:
    train, build = (answer["outputs"][f"dry-docs-docker-{task}"] for task in ("train", "build"))

    assert (train["image"], train["volumes"]) == ("nvcr.io/nvidia/nemo:26.02", ["/data:/data"])
    assert [request["Count"] for request in train["device_requests"]] == [16]
    assert "device_requests" not in build


def test_local_tasks_are_commands(answer: dict[str, Any]) -> None:
    (train,) = answer["outputs"]["dry-docs-torchrun-train"]
    (build,) = answer["outputs"]["dry-docs-torchrun-build"]

    assert train[0] == "torchrun"
    assert train[train.index("--nproc-per-node") + 1] == "2"
    assert build[:3] == ["python", "-m", "bridgepack.running.train"]
