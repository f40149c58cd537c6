"""What an executor of nemo-run's sends to its platform, caught before it leaves: scripts, manifests, requests."""

import importlib
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

_COMMAND = ["python", "-m", "bridgepack.running.train", "--recipe", "/nemo_run/configs/recipe.yaml"]


def output_of(executor: Any, name: str, folder: Path) -> Any:
    """Return what the platform would be sent of an experiment by this name; `folder` is for files."""
    makers: Mapping[str, Callable[..., Any]] = {
        "LocalExecutor": _commands,
        "DockerExecutor": _container,
        "SlurmExecutor": _sbatch_script,
        "SkypilotExecutor": _sky_task,
        "SkypilotJobsExecutor": _sky_task,
        "KubeflowExecutor": _train_job,
        "DGXCloudExecutor": _workload,
        "LeptonExecutor": _lepton_job,
    }
    return makers[type(executor).__name__](executor, name, folder)


def _experiment(executor: Any, name: str) -> Any:
    """Return a dry-run experiment of one task; its folder stays."""
    import nemo_run as run

    script = run.Script(path="bridgepack.running.train", m=True, entrypoint="python", args=_COMMAND[3:])
    with run.Experiment(name, log_level="WARN") as experiment:
        experiment.add(script, executor=executor, name="task")
        experiment.dryrun(log=False, delete_exp_dir=False)
    return experiment


def _sbatch_script(executor: Any, name: str, folder: Path) -> str:
    experiment = _experiment(executor, name)
    (path,) = Path(experiment._exp_dir).glob("*_sbatch.sh")
    text = path.read_text().replace(str(folder / "nemo_run"), "NEMORUN_HOME")
    return re.sub(rf"{name}_\d+", f"{name}_ID", text)


def _commands(executor: Any, name: str, folder: Path) -> Any:
    request = _experiment(executor, name).jobs[0]._dryrun_info.request
    return [replica.args for replicas in request.role_params.values() for replica in replicas]


def _container(executor: Any, name: str, folder: Path) -> Any:
    docker = importlib.import_module("nemo_run.core.execution.docker")
    client = mock.MagicMock()
    executor.assign(exp_id="e_1", exp_dir=str(folder), task_id="task", task_dir="task")
    docker.DockerContainer(name="task", command=_COMMAND, executor=executor, extra_env={}).run(client, "1")
    arguments = client.containers.run.call_args
    return {"image": arguments.args[0], **json.loads(json.dumps(arguments.kwargs, default=dict))}


def _sky_task(executor: Any, name: str, folder: Path) -> Any:
    (folder / name).mkdir(exist_ok=True)
    executor.assign(exp_id="e_1", exp_dir=str(folder), task_id="task", task_dir=name)
    task = executor.to_task(name="task", cmd=_COMMAND, env_vars={})
    values = task.to_yaml_config()
    values["file_mounts"].pop("/nemo_run")  # the job's own folder here
    return json.loads(json.dumps(values))


def _train_job(executor: Any, name: str, folder: Path) -> Any:
    executor.assign(exp_id="e_1", exp_dir=str(folder), task_id="task", task_dir="task")
    body = executor.get_job_body("packs", ["/bin/bash", "/shared/launch.sh"])
    model = importlib.import_module("kubeflow_trainer_api.models.trainer_v1alpha1_train_job")
    return {"body": body, "as_read_by_kubeflow": model.TrainerV1alpha1TrainJob.from_dict(body).to_dict()}


def _workload(executor: Any, name: str, folder: Path) -> Any:
    (folder / name).mkdir(exist_ok=True)
    executor.assign(exp_id="e_1", exp_dir=str(folder), task_id="task", task_dir=name)
    with mock.patch("nemo_run.core.execution.dgxcloud.requests.post") as post:
        post.return_value.text = "{}"
        executor.create_training_job("token", "project", "cluster", "packs")
    return {"url": post.call_args.args[0], **post.call_args.kwargs["json"]}


def _lepton_job(executor: Any, name: str, folder: Path) -> Any:
    group = SimpleNamespace(metadata=SimpleNamespace(id_="group-1", name=executor.node_group))
    with mock.patch("nemo_run.core.execution.lepton.APIClient") as client:
        client.return_value.nodegroup.list_all.return_value = [group]
        client.return_value.nodegroup.list_nodes.return_value = [SimpleNamespace(metadata=SimpleNamespace(id_="n1"))]
        executor.create_lepton_job("packs")
    job = client.return_value.job.create.call_args.args[0]
    return json.loads(job.model_dump_json(exclude_none=True))
