"""The tasks of nemo-run's command line, and how it parses their arguments: recipes by name, overrides as YAML."""

import inspect
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import catalogue as registry  # type: ignore[import-untyped]
import fiddle as fdl
import nemo_run as run
import typer
from nemo_run.cli.api import RunContext
from nemo_run.cli.cli_parser import CLIException, parse_cli_args
from nemo_run.config import get_type_namespace

from bridgepack.config.cluster.base import Task
from bridgepack.config.cluster.executors import KNOWN, TYPED
from bridgepack.config.errors import known_names, shown
from bridgepack.config.load import catalogue_names, load_recipe, parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import written_values
from bridgepack.errors import BridgepackError, ConfigError, LaunchRefusedError
from bridgepack.launching.preflight import OptionalNumber, OptionalText, PreflightPlugin, say, with_types

#: Fields of a recipe without subfields.
_PLAIN = frozenset({"name", "artifact"})


def as_config(recipe: SFTRecipe | str | Path, overrides: Mapping[str, Any] | None = None) -> run.Config[SFTRecipe]:
    """Return a recipe as a `run.Config` whose fields can be set: `config.packing.packed_sequence_size = 8192`.

    It has every section; those with only defaults are empty. Values are validated when the config is built, so a wrong
    name or value is a ConfigError of bridgepack, not an error of fiddle.

    Example: `run.Partial(build, recipe=as_config("qwen3_8b_sft_4gpu_h100_bf16_recipe"))`.

    Raises:
        ConfigError: it cannot be found or read, or has an unknown field or an impossible value.
    """
    values = written_values(load_recipe(recipe, overrides))
    sections: dict[str, Any] = {name: {} for name in SFTRecipe.model_fields if name not in _PLAIN}
    tree = {name: _node(value) for name, value in {**sections, **values}.items()}
    return run.Config(recipe_of, **tree)


@with_types
def recipe_of(**sections: Any) -> SFTRecipe:
    """Return the recipe with these sections as plain values; empty sections are ignored.

    Raises:
        ConfigError: naming every wrong field, its value, what is allowed and what to do.
    """
    return SFTRecipe.from_mapping({name: value for name, value in sections.items() if value != {}})


@with_types
def section_of(**fields: Any) -> dict[str, Any]:
    """Return one section's fields; nemo-run 0.11 cannot save a config of `dict` itself."""
    return fields


def register_factories() -> None:
    """Register every recipe of the catalogue by name with nemo-run's command line, for arguments of type SFTRecipe.

    Existing factories of the same name are kept.
    """
    for name in catalogue_names():
        if not registry.check_exists(get_type_namespace(SFTRecipe), name):
            run.cli.factory(_factory(name), target=SFTRecipe, name=name)


def _factory(name: str) -> Callable[[], run.Config[SFTRecipe]]:
    def factory() -> run.Config[SFTRecipe]:
        """Return the recipe."""
        return as_config(name)

    factory.__name__ = factory.__qualname__ = name
    return factory


def _node(value: Any) -> Any:
    if isinstance(value, Mapping):
        return run.Config(section_of, **{str(key): _node(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return [_node(item) for item in value]
    return value


_RECIPE = "recipe"
_ASSIGNMENT = re.compile(r"recipe\.([\w.-]+)=(.*)", re.DOTALL)
_FINDINGS, _COULD_NOT_RUN = 1, 2
_EXECUTORS = {
    "torchrun": run.LocalExecutor,
    **{kind: getattr(run, name) for name, kind in TYPED.items()},
    **{kind: getattr(run, facts.class_name) for kind, facts in KNOWN.items() if not facts.no_launch},
}
_CLUSTER_SUFFIXES = (".yaml", ".yml", ".toml")


@dataclass(kw_only=True)
class RecipeContext(RunContext):  # type: ignore[misc]
    """Runs a task whose argument `recipe` is a bridgepack recipe; user mistakes are ConfigErrors."""

    #: Task whose executor is used from a cluster file.
    task: ClassVar[Task] = "build"

    def cli_execute(self, fn: Callable[..., Any], args: list[str], entrypoint_type: str = "task") -> None:
        """Run a task; a user mistake prints one message and exits with 2, findings exit with 1."""
        try:
            # nemo-run's own settings have a prefix: executor=slurm -> run.executor=slurm
            words = [f"run.{word}" if re.match(r"(executor|plugins)[=.\[]", word) else word for word in args]
            super().cli_execute(fn, words, entrypoint_type)
        except (BridgepackError, CLIException) as error:
            typer.echo(f"error: {error}", err=True)
            raise SystemExit(_FINDINGS if isinstance(error, LaunchRefusedError) else _COULD_NOT_RUN) from None

    def parse_fn(self, fn: Callable[..., Any], args: list[str], **default_kwargs: Any) -> run.Partial[Any]:
        """Return a task with its arguments; the recipe is validated here, before anything is submitted."""
        names = list(inspect.signature(fn).parameters)
        words = [word if "=" in word else f"{names[0]}={word}" for word in args[:1]] + args[1:]
        targets = [word.partition("=")[2] for word in words if word.startswith(f"{_RECIPE}=")]
        rest = [word for word in words if not word.startswith(f"{_RECIPE}=")]
        _check_names(rest, names)
        if not targets and (self.factory or self.yaml):
            return super().parse_fn(fn, args, **default_kwargs)
        if len(targets) != 1:
            found = f"given {len(targets)} times" if targets else "missing"
            raise ConfigError(f"recipe is {found}; allowed: recipe=NAME, recipe=FILE.yaml or recipe=FILE.py:FUNCTION.")
        # nemo-run handles its operators, as in `recipe.PATH*=2`, itself.
        assigned = [f"{match[1]}={match[2]}" for word in rest if (match := _ASSIGNMENT.fullmatch(word))]
        overrides = parse_overrides(tuple(assigned), option=_RECIPE)
        task = run.Partial(fn, recipe=as_config(load_recipe(targets[0], overrides)))
        task = parse_cli_args(task, [word for word in rest if not _ASSIGNMENT.fullmatch(word)])
        fdl.build(task.recipe)
        return task

    def parse_args(self, args: list[str], lazy: bool = False) -> Any:
        """Parse `run.*` arguments; settings of an executor require an executor."""
        settings = [word for word in args if word.startswith("executor.")]
        has_executor = any(word.startswith("executor=") for word in args) or hasattr(self, "executor")
        if settings and not has_executor:
            raise ConfigError(
                f"{settings[0]}: no executor is given. Add executor=slurm, or another of {', '.join(_EXECUTORS)}."
            )
        return super().parse_args(args, lazy)

    def parse_executor(self, name: str, *args: str) -> Any:
        """Return an executor: from a nemo-run factory, else by the name of its kind, else from a cluster file."""
        try:
            return super().parse_executor(name, *args)
        except ValueError:
            return parse_cli_args(self._executor(name), list(args))

    def _executor(self, name: str) -> run.Config[run.Executor]:
        if name.endswith(_CLUSTER_SUFFIXES):
            from bridgepack.config.cluster.cluster import load_cluster
            from bridgepack.launching.tasks import make_executor

            return make_executor(load_cluster(name), self.task).to_config()
        if name not in _EXECUTORS:
            others = [*_EXECUTORS, "a cluster FILE.yaml", "a factory registered with nemo-run"]
            raise ConfigError(f"executor is {name!r}; {known_names(name, others)}")
        return run.Config(_EXECUTORS[name], **({"launcher": "torchrun"} if name == "torchrun" else {}))


@dataclass(kw_only=True)
class TrainContext(RecipeContext):
    """Runs a training task, checked before it is submitted."""

    task: ClassVar[Task] = "train"

    def parse_args(self, args: list[str], lazy: bool = False) -> Any:
        """Parse `run.*` arguments, and put the preflight plugin last."""
        rest = super().parse_args(args, lazy)
        plugins: list[Any] = list(self.plugins)
        if not any(isinstance(plugin, PreflightPlugin) for plugin in plugins):
            plugins.append(PreflightPlugin())
        self.plugins: list[Any] = plugins
        return rest


def _check_names(words: Sequence[str], names: Sequence[str]) -> None:
    for word in words:
        name = re.split(r"[.\[=+*/|&@-]", word, maxsplit=1)[0]
        if "=" not in word or name not in names:
            raise ConfigError(f"argument {shown(word)}, of the form NAME=VALUE; {known_names(name, list(names))}")


#: Name under which nemo-run lists the tasks; the same as the entry point in pyproject.toml.
NAMESPACE = "bridgepack"


def _task[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    context = TrainContext if function.__name__ == "train" else RecipeContext
    registered: Callable[P, T] = run.cli.entrypoint(with_types(function), namespace=NAMESPACE, run_ctx_cls=context)
    return registered


@_task
def build(recipe: SFTRecipe, output: OptionalText = None, num_workers: int = 1, replace: bool = False) -> None:
    """Build the packed artifact of a recipe, or find the existing one.

    Args:
        recipe: the recipe.
        output: folder of the artifact; by default the recipe's, else `artifacts/NAME-FINGERPRINT`.
        num_workers: maximum worker processes.
        replace: overwrite an artifact with another fingerprint at the output.

    Raises:
        BridgepackError: as `bridgepack.build` does.
    """
    from bridgepack.api import build as build_artifact
    from bridgepack.reporting.terminal import describe_build

    say(describe_build(build_artifact(recipe, output=output, num_workers=num_workers, replace=replace), recipe))


@_task
def check(
    recipe: SFTRecipe,
    artifact: OptionalText = None,
    world_size: OptionalNumber = None,
    environment: OptionalText = None,
    strict: bool = False,
) -> None:
    """Check a recipe against every rule that applies.

    Args:
        recipe: the recipe.
        artifact: folder of the packs that the run will read.
        world_size: number of GPUs; by default the recipe's.
        environment: `here`, or a file that lists the packages where the run will be.
        strict: fail on warnings too.

    Raises:
        LaunchRefusedError: the check fails; the message lists the findings.
        BridgepackError: as `bridgepack.check` does.
    """
    from bridgepack.api import check as check_recipe
    from bridgepack.reporting.checks import rendered

    report = check_recipe(recipe, artifact=artifact, world_size=world_size, environment=environment)
    text = rendered(report).rstrip("\n")
    if report.fails(strict=strict):
        raise LaunchRefusedError(f"the check of {recipe.name} fails.\n\n{text}", report)
    say(text)


@_task
def train(recipe: SFTRecipe, artifact: OptionalText = None, folder: OptionalText = None) -> None:
    """Train a recipe on the GPUs of this process group, after a check with the real number of processes.

    Args:
        recipe: the recipe.
        artifact: folder of the packs; by default the recipe's own.
        folder: run folder for the recipe, facts and reports; by default `bridgepack-runs/NAME`.

    Raises:
        SystemExit: the training's exit code is not 0.
    """
    from bridgepack.config.write import recipe_to_yaml
    from bridgepack.running.train import main

    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch) / "recipe.yaml"
        file.write_text(recipe_to_yaml(recipe), encoding="utf-8")
        arguments = ["--recipe", str(file), "--run-folder", folder or f"bridgepack-runs/{recipe.name}"]
        code = main([*arguments, *(["--artifact", artifact] if artifact is not None else [])])
    if code:
        raise SystemExit(code)


def preflight() -> run.Config[PreflightPlugin]:
    """Return the plugin for `plugins=preflight`, for any task of nemo-run's command line."""
    return run.Config(PreflightPlugin)


register_factories()
run.cli.factory(preflight, target=run.Plugin, name="preflight")
