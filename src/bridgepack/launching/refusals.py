"""Refuses launches that cannot work: unknown tasks, settings that nemo-run would fail on, missing files."""

from collections.abc import Collection, Iterator
from importlib.util import find_spec
from pathlib import Path

from bridgepack.config.cluster.base import TASKS, Task
from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.cluster.executors import NemoRunExecutor
from bridgepack.config.errors import known_names
from bridgepack.config.recipe.data import as_sources, path_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import find_inputs
from bridgepack.data.tokenizers.load import refuse_missing_folder
from bridgepack.errors import ConfigError
from bridgepack.host.checkpoints import checkpoint_kind
from bridgepack.records import TRAIN, VALIDATION
from bridgepack.rules.judging.files import Files


def planned_tasks(cluster: ClusterConfig, skip: Collection[str], *, builds: bool) -> tuple[Task, ...]:
    """Return the tasks to run, in order: those that neither the cluster nor the user skips.

    Raises:
        ConfigError: a task is unknown, or none is left.
    """
    for name in skip:
        if name not in TASKS:
            raise ConfigError(f"--skip {name}; {known_names(name, list(TASKS))}")
    left_out = {*skip, *(task for task in TASKS if getattr(cluster.tasks, task).skip)}
    left_out |= set() if builds else {"build"}
    tasks = tuple(task for task in TASKS if task not in left_out)
    if not tasks:
        raise ConfigError("every task is skipped, so there is nothing to launch. Skip fewer.")
    return tasks


def refuse_unlaunchable(recipe: SFTRecipe, cluster: ClusterConfig, tasks: Collection[Task]) -> None:
    """Refuse settings that nemo-run would fail on or misinterpret.

    Raises:
        ConfigError: a setting is refused; names the field.
    """
    if "train" in tasks and recipe.model is None:
        raise ConfigError(
            "model is not set; the training task needs one. Add model.name to the recipe, or launch with --skip train.",
            field="model",
        )
    executors = {task: cluster.executor_for(task) for task in tasks}
    for task, executor in executors.items():
        if isinstance(executor, NemoRunExecutor) and find_spec("nemo_run"):
            _refuse_unknown_class(executor, cluster.place_of(task))
    dgx_tasks = [task for task, executor in executors.items() if executor.facts.class_name == "DGXCloudExecutor"]
    if len(dgx_tasks) > 1:
        # Source: nemo_run/run/torchx_backend/schedulers/dgxcloud.py, _submit_dryrun: experiment_dir/torchrun_job.sh
        raise ConfigError(
            f"executor.class is DGXCloudExecutor for {', '.join(dgx_tasks)}; nemo-run 0.11 keeps one script per "
            "experiment there, so all of them would run the last task's script. Launch them one at a time with --skip, "
            "or give the others another executor: tasks.build.executor.kind=local."
        )


def _refuse_unknown_class(executor: NemoRunExecutor, place: str) -> None:
    """Refuse a class that nemo-run's experiments cannot start.

    Source: nemo_run/run/torchx_backend/schedulers/api.py, EXECUTOR_MAPPING: classes, without those that inherit them.
    """
    from nemo_run.run.torchx_backend.schedulers.api import EXECUTOR_MAPPING

    from bridgepack.launching.classes import find_executor

    cls = find_executor(executor.facts.class_name, place)
    if cls not in EXECUTOR_MAPPING:
        names = ", ".join(sorted(executor_class.__name__ for executor_class in EXECUTOR_MAPPING))
        raise ConfigError(
            f"{place}.class is {cls.__name__}; nemo-run's experiments start only {names}. Add the "
            "class to nemo_run.run.torchx_backend.schedulers.api.EXECUTOR_MAPPING, or use another."
        )


def refuse_missing_files(recipe: SFTRecipe, tasks: Collection[Task]) -> None:
    """Refuse a run on this machine whose data, tokenizer or weights do not exist.

    Raises:
        ConfigError: a path does not exist; names field and path.
        DataError: an input is missing or of an unknown type.
        TokenizerError: the tokenizer's folder is missing.
    """
    refuse_missing_folder(recipe.tokenizer)
    if "build" in tasks:
        for field, split in (("train", TRAIN), ("validation", VALIDATION)):
            files = tuple(source for source in as_sources(getattr(recipe.data, field)) if path_of(source) is not None)
            find_inputs(files, f"data.{field}", split, Path())  # nothing is written there
    weights = recipe.checkpoint.pretrained
    if "train" not in tasks or weights is None or not _is_local(weights):
        return
    if checkpoint_kind(Files().names(weights)) is None:
        fault = "no checkpoint in it" if Path(weights).is_dir() else "no such folder"
        raise ConfigError(
            f"checkpoint.pretrained is {weights!r}; there is {fault}, and training starts from it. Correct the path, "
            "or import the weights first.",
            field="checkpoint.pretrained",
        )


def path_notes(recipe: SFTRecipe, cluster: ClusterConfig, artifact: str | None) -> Iterator[str]:
    """Yield a note for each relative path that remote tasks would resolve in their own folder."""
    if not cluster.is_remote:
        return
    paths = {
        "artifact": artifact or recipe.artifact,
        "checkpoint.pretrained": recipe.checkpoint.pretrained,
        "checkpoint.folder": recipe.checkpoint.folder,
        "logging.tensorboard_dir": recipe.logging.tensorboard_dir,
    }
    for split, source_setting in (("data.train", recipe.data.train), ("data.validation", recipe.data.validation)):
        sources = as_sources(source_setting)
        for index, source in enumerate(sources):
            paths[split if len(sources) == 1 else f"{split}.{index}"] = path_of(source)
    for field, path in paths.items():
        if path is not None and _is_local(path) and not Path(path).is_absolute():
            yield (
                f"{field} is {path!r}, a relative path; on the nodes it is relative to the task's code folder. Use an "
                "absolute path that every node sees."
            )


def _is_local(path: str) -> bool:
    return "://" not in path
