"""PreflightPlugin: one line in a nemo-run script that refuses to submit a run that `check` rejects.

The user names what a task trains, or the task has exactly one argument that does. Nothing is guessed: otherwise the
plugin refuses and says which line to write.
"""

import os
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any, Optional

import fiddle as fdl
from nemo_run import DockerExecutor, Executor, LocalExecutor, LocalTunnel, Plugin, Script, SlurmExecutor
from nemo_run.core.frontend.console.api import CONSOLE

from bridgepack.bridge.bases import all_sections
from bridgepack.bridge.container import is_container
from bridgepack.bridge.shipped import PREFIX
from bridgepack.bridge.targets import Target, load_target, quiet, with_notes
from bridgepack.bridge.wiring import OVERRIDES
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions, is_asked_by_default, named_environment
from bridgepack.config.errors import quote
from bridgepack.config.load import parse_overrides
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError, LaunchRefusedError
from bridgepack.reporting.results.checks import check_blocks
from bridgepack.reporting.screen import screen

# nemo-run 0.11 parses `Optional[X]` on its command line, but not `X | None`.
OptionalText = Optional[str]  # noqa: UP045
OptionalNumber = Optional[int]  # noqa: UP045
OptionalFlag = Optional[bool]  # noqa: UP045

_OPTIONS = "(here the options of `bridgepack check` are arguments: PreflightPlugin(artifact=..., environment=...))"
_PATH = (
    "a text or a path. A config that is an object is saved with cfg.to_yaml(FILE), or named by the function that makes "
    "it, FILE.py:FUNCTION"
)
#: Field of the plugin -> its allowed types, and their description in messages.
_FIELDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    **dict.fromkeys(("target", "artifact", "environment"), ((str, type(None)), _PATH)),
    "strict": ((bool,), "True or False"),
    "real_validate": ((bool, type(None)), "True or False"),
    "looks_at_files": ((bool, type(None)), "True or False"),
}
#: Megatron-Bridge's script that trains a recipe by name; it changes its working folder.
_RUN_RECIPE = "run_recipe.py"
#: Its options that do not change settings. Source: Megatron-Bridge 0.6, scripts/training/run_recipe.py, _build_parser.
_NAMING_OPTIONS = frozenset(
    {"--recipe", "--model", "--step-func", "--step_func", "--dry-run", "--dry_run", "--dump-env", "--dump_env"}
)
#: Script options for a YAML file of settings.
_CONFIG_FILE_OPTIONS = frozenset({"--config-file", "--config_file"})
_OVERRIDE = re.compile(rf"(\+\+|\+|~)?(?:{'|'.join(sorted(all_sections()))})(?:\.[^=\s]+)?(=.*)?", re.DOTALL)
#: Commands that start one process per GPU themselves.
_STARTERS = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "mpirun", "srun", "ft_launcher")


def with_types[**P, T](function: Callable[P, T]) -> Callable[P, T]:
    """Replace a function's text annotations by types, because nemo-run cannot read the texts."""
    function.__annotations__ = typing.get_type_hints(function)
    return function


@dataclass(kw_only=True)
class PreflightPlugin(Plugin):  # type: ignore[misc]
    """Checks what a task trains before nemo-run submits it; put it last in the list of plugins.

    Plugins act in order, and this one checks the task as the plugins before it have changed it.

    Example: `experiment.add(task, executor=executor, plugins=[NsysPlugin(...), PreflightPlugin(artifact="packed")])`.
    """

    #: What is trained, in the forms that `bridgepack check` accepts: `bridge:FUNCTION`, FILE.yaml, FILE.py:FUNCTION,
    #: package.module:FUNCTION. It may be left out for a `run.Partial` whose argument `recipe` or `config` is a
    #: ConfigContainer, or a config of `load_recipe`. Overrides in a script's arguments are applied too.
    target: OptionalText = None
    artifact: OptionalText = None  #: folder of the packs that the run will read, as this machine sees it
    #: Dotted path -> value, for settings made in a script's code; applied after those of its arguments.
    overrides: dict[str, Any] = field(default_factory=dict)
    #: Codes, code prefixes or names of the rules to run; all by default.
    select: list[str] = field(default_factory=list)
    ignore: list[str] = field(default_factory=list)  #: the same, for rules to skip
    environment: OptionalText = None  #: `here`, or a file that lists the packages where the run will be
    bridge_version: OptionalText = None  #: megatron-bridge version to check for
    world_size: OptionalNumber = None  #: number of GPUs; by default the executor's
    strict: bool = False  #: refuse on warnings too
    #: let the installed megatron-bridge validate the run, too; by default unless BRIDGEPACK_REAL_VALIDATE is 0
    real_validate: OptionalFlag = None
    #: modules of yours of which a saved config may name classes and functions as it is validated
    trust_config: list[str] = field(default_factory=list)
    looks_at_files: OptionalFlag = None  #: check that paths exist on this machine; by default if the run is here

    def __post_init__(self) -> None:
        """Convert paths to text, because nemo-run writes a plugin's fields into the experiment's folder.

        Raises:
            ConfigError: a field has the wrong type.
        """
        for name, (kinds, names) in _FIELDS.items():
            value = getattr(self, name)
            if str in kinds and isinstance(value, os.PathLike):
                setattr(self, name, os.fspath(value))
            elif not isinstance(value, kinds):
                raise ConfigError(f"PreflightPlugin: {name} is {quote(value)}; allowed: {names}.")

    def setup(self, task: Any, executor: Executor) -> None:
        """Check what a task trains; nemo-run calls this when the task is added, before anything is submitted.

        Raises:
            LaunchRefusedError: the check fails; the message lists the findings.
            ConfigError: it is unclear what is trained, or the plugin's fields are wrong.
        """
        options = CheckOptions(
            artifact=Path(self.artifact) if self.artifact is not None else None,
            world_size=self.world_size,
            bridge_version=self.bridge_version,
            environment=named_environment(self.environment),
            overrides=self.overrides,
            select=self.select,
            ignore=self.ignore,
            real_validate=is_asked_by_default() if self.real_validate is None else self.real_validate,
            trust_config=self.trust_config,
            trust_remote_code=True,  # the recipe's own word counts in a launch
        )
        command = (task.inline or task.entrypoint) if isinstance(task, Script) else "python"
        world_size = self.world_size or world_size_of(executor, command=command)
        target = trained_target(task, executor, target=self.target, options=options)
        is_run_recipe = isinstance(task, Script) and _RUN_RECIPE in (task.inline or _name(task))
        looks = sees_this_machine(executor) and not is_run_recipe
        looks = looks if self.looks_at_files is None else self.looks_at_files
        report = check_target(target, replace(options, overrides={}, world_size=world_size, looks_at_files=looks))
        place_name = f"{target.place}, on {world_size} GPU{'s' if world_size > 1 else ''}"
        if report.fails(strict=self.strict):
            raise LaunchRefusedError(f"nothing was submitted: the check of {place_name} fails.", report, _OPTIONS)
        *blocks, verdict = check_blocks(report, shows_advice=False)
        say(f"preflight: {place_name}\n{screen([*blocks, verdict] if report.num_warnings else [verdict])}")


with_types(PreflightPlugin.__init__)


def say(text: str) -> None:
    """Print to nemo-run's console."""
    CONSOLE.print(text, markup=False, highlight=False, soft_wrap=True)


def trained_target(task: Any, executor: Executor, *, target: str | None, options: CheckOptions) -> Target:
    """Return what a task trains, with the overrides of its arguments applied, then those of the options.

    Raises:
        ConfigError: it is not given, cannot be loaded here, or the task changes it in a way the plugin cannot see.
    """
    words = _words(task, executor) if isinstance(task, Script) else []
    value = _argument_of(task) if target is None else target
    if value is None:
        raise ConfigError(f"PreflightPlugin cannot see what {_name(task)} trains. Name it: {_line(words)}")
    subject = load_target(value, artifact=options.artifact)
    if subject.kind == "artifact":
        raise ConfigError(
            f"target is {target!r}, an artifact. Give a recipe or a config as target, and artifact=FOLDER."
        )
    if subject.kind != "saved":
        _refuse_unseen_options(_name(task), words)
    settings = _overrides(words)
    place = (
        f"{subject.place} with {len(settings)} override{'s' if len(settings) > 1 else ''}"
        if settings
        else subject.place
    )
    paths = (
        {f"{OVERRIDES}.{path}": value for path, value in settings.items()} if subject.recipe is not None else settings
    )
    # a script has the host's own paths
    subject = with_notes(replace(subject, place=place).override({**paths, **options.overrides}))
    assert subject.config is not None
    return replace(subject, config=replace(subject.config, inputs=()))  # its source data may be on another machine


def _name(task: Any) -> str:
    if isinstance(task, Script):
        return "the inline script" if task.inline else PurePosixPath(task.path).name
    function = getattr(task, "__fn_or_cls__", task)
    return str(getattr(function, "__name__", type(function).__name__))


def _argument_of(task: Any) -> Any:
    task = task.resolve() if getattr(task, "is_lazy", False) else task
    if not isinstance(task, fdl.Buildable):
        return None
    with quiet():
        results = [
            fdl.build(value) for name in ("recipe", "config") if (value := task.__arguments__.get(name)) is not None
        ]
    configs = [value for value in results if isinstance(value, SFTRecipe) or is_container(value)]
    return configs[0] if len(configs) == 1 else None


def _overrides(words: Sequence[str]) -> dict[str, Any]:
    matches = [word for word in words if (match := _OVERRIDE.fullmatch(word)) and (match[2] or match[1] == "~")]
    removal = next((word for word in matches if word.startswith("~")), None)
    if removal is not None:
        raise ConfigError(f"override {removal!r} removes a field; allowed: path=value. Set the field instead.")
    return parse_overrides(tuple(word.lstrip("+") for word in matches), option="override")


def _refuse_unseen_options(name: str, words: Sequence[str]) -> None:
    calls = [index for index, word in enumerate(words) if PurePosixPath(word).name == _RUN_RECIPE]
    after = words[calls[0] + 1 :] if calls else []
    for word in (*words, *after):
        flag = word.partition("=")[0]
        is_unseen = word in after and flag.startswith("-") and flag not in _NAMING_OPTIONS
        if flag in _CONFIG_FILE_OPTIONS or is_unseen:
            raise ConfigError(
                f"{name} is given {flag}, and PreflightPlugin cannot see what that changes. Give fields as "
                "section.field=value instead, or save the trained config, cfg.to_yaml(FILE), and write "
                "PreflightPlugin(target=FILE)."
            )


def _words(script: Script, executor: Executor) -> list[str]:
    """Return a script's name and the arguments that it receives.

    Source: nemo_run/run/torchx_backend: the torchrun and ft components quote every argument; local runs pass a list;
    all others join them with spaces into a script, which removes quotes in them.
    """
    try:
        if script.inline:
            return shlex.split(script.inline.replace("\\\n", " "), comments=True)
        by_shell = not _has_launcher(executor) and not isinstance(executor, LocalExecutor)
        words = list(map(str, script.args))
        return [_name(script), *(shlex.split(" ".join(words)) if by_shell else words)]
    except ValueError as error:
        raise ConfigError(
            f"the arguments of {_name(script)} cannot be split as a shell does: {error}. Correct the quotes."
        ) from None


def _line(words: Sequence[str]) -> str:
    recipe_word = next((after for word, after in pairwise(words) if word == "--recipe"), None)
    if recipe_word is None:
        return (
            "PreflightPlugin(target=TARGET, overrides={...}), with TARGET as `bridgepack check` takes it, e.g. "
            "bridge:qwen3_8b_sft_config or FILE.yaml."
        )
    is_place = ":" in recipe_word or "." in recipe_word
    return f"PreflightPlugin(target={(recipe_word if is_place else PREFIX + recipe_word)!r}, overrides={{...}})."


def world_size_of(executor: Executor, *, command: str = "python") -> int:
    """Return the number of processes that an executor starts, over all nodes.

    torchrun and ft start nodes x processes per node. Without them, a task starts once on this machine or in a
    container, and with srun `ntasks_per_node` times per node.

    Source: nemo_run/run/torchx_backend/packaging.py, `package`; nemo_run/core/execution/slurm.py.

    Raises:
        ConfigError: the executor does not tell.
    """
    starter = next((word for word in _STARTERS if word in command), None)
    if starter is not None:
        raise _missing_gpus_error(executor, f"the command starts processes itself, by {starter}")
    if _has_launcher(executor):
        sizes = (executor.nnodes(), executor.nproc_per_node())
    elif isinstance(executor, (LocalExecutor, DockerExecutor)):
        return 1
    elif isinstance(executor, SlurmExecutor):
        sizes = (executor.nodes, executor.ntasks_per_node)
    else:
        raise _missing_gpus_error(executor, 'it has no launcher="torchrun", so it is unknown what starts the processes')
    for size in sizes:
        if type(size) is not int or size < 1:
            raise _missing_gpus_error(executor, f"it has {size!r} for one of its sizes")
    return int(sizes[0] * sizes[1])


def sees_this_machine(executor: Executor) -> bool:
    """Return whether the run sees this machine's files under the same paths."""
    if isinstance(executor, SlurmExecutor):
        return isinstance(executor.tunnel, LocalTunnel) and executor.container_image is None
    return isinstance(executor, LocalExecutor)


def _has_launcher(executor: Executor) -> bool:
    """Return whether torchrun or ft starts the processes; does not change the executor."""
    launcher: Any = executor.launcher
    name = launcher if isinstance(launcher, str) else type(launcher).__name__
    return name.lower() in {"torchrun", "ft", "faulttolerance"}


def _missing_gpus_error(executor: Executor, why: str) -> ConfigError:
    return ConfigError(
        f"the {type(executor).__name__} does not tell the number of GPUs: {why}. "
        "Give it: PreflightPlugin(world_size=N)."
    )
