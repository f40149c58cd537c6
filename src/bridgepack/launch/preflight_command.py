"""What the arguments of a launched script say: options, and overrides in Hydra's form."""

from __future__ import annotations

import argparse
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import NoReturn

from nemo_run import Executor, Script

from bridgepack.bridge.container import ALL_SECTIONS
from bridgepack.config.errors import nearest_name, shown
from bridgepack.errors import ConfigError
from bridgepack.launch.preflight_world import reads_arguments_by_shell

#: The script of Megatron-Bridge's repository that trains a recipe by its name.
RUN_RECIPE = "run_recipe.py"
#: Options of that script that set one field: its flags, the field.
#: Source: Megatron-Bridge 0.6, scripts/training/run_recipe.py, the table in its docstring.
_FIELD_OPTIONS: tuple[tuple[tuple[str, ...], type, str], ...] = (
    (("-ms", "--max_steps"), int, "train.train_iters"),
    (("-gb", "--global_batch_size"), int, "train.global_batch_size"),
    (("-mb", "--micro_batch_size"), int, "train.micro_batch_size"),
    (("-sl", "--seq_length"), int, "dataset.seq_length"),
    (("-tp", "--tensor_model_parallel_size"), int, "model.tensor_model_parallel_size"),
    (("-pp", "--pipeline_model_parallel_size"), int, "model.pipeline_model_parallel_size"),
    (("-cp", "--context_parallel_size"), int, "model.context_parallel_size"),
    (("-vp", "--virtual_pipeline_model_parallel_size"), int, "model.virtual_pipeline_model_parallel_size"),
    (("-ep", "--expert_model_parallel_size"), int, "model.expert_model_parallel_size"),
    (("-etp", "--expert_tensor_parallel_size"), int, "model.expert_tensor_parallel_size"),
    (("--lr",), float, "optimizer.lr"),
    (("--min_lr",), float, "optimizer.min_lr"),
    (("--warmup_iters",), int, "scheduler.lr_warmup_iters"),
    (("--pretrained_checkpoint",), str, "checkpoint.pretrained_checkpoint"),
    (("--save_dir",), str, "checkpoint.save"),
    (("--load_dir",), str, "checkpoint.load"),
    (("--save_interval",), int, "checkpoint.save_interval"),
)
MODES = ("pretrain", "sft", "lora", "dora")
#: Options of that script up to 0.5, and what says the same in 0.6.
_EARLIER_OPTIONS = {
    "--peft_scheme": "Give --mode lora or --mode dora.",
    "--packed_sequence": "Give dataset.enable_offline_packing=true.",
    "--hf_path": "Give the recipe of that model.",
}
#: Options by which scripts take a YAML file of settings.
_CONFIG_FILE_OPTIONS = ("--config-file", "--config_file")
_OVERRIDE = re.compile(rf"(\+\+|\+|~)?({'|'.join(sorted(ALL_SECTIONS))})(\.[^=\s]+)?(=.*)?", re.DOTALL)
_SEPARATORS = re.compile(r"[;&|()<>]+")


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """What a script is started with.

    Attributes:
        script: name of the script or module, for messages.
        is_run_recipe: whether it is Megatron-Bridge's own script.
        recipe: what `--recipe` says, or what `--model` and `--mode` amount to.
        mode: one of `MODES`; None where nothing tells.
        dataset: name of a data preset; None for the recipe's own.
        is_deterministic: whether settings for determinism are asked for.
        config_file: a YAML file of settings, merged before the overrides.
        artifact: folder of packs that bridgepack's own training module is given.
        overrides: in Hydra's form, in order; the last of a field wins.
    """

    script: str
    is_run_recipe: bool = False
    recipe: str | None = None
    mode: str | None = None
    dataset: str | None = None
    is_deterministic: bool = False
    config_file: str | None = None
    artifact: str | None = None
    overrides: tuple[str, ...] = ()


def script_name(script: Script) -> str:
    """Return what a script is called in messages."""
    return "the inline script" if script.inline else PurePosixPath(script.path).name


def read_strictly(script: Script, executor: Executor) -> Command:
    """Return what a script is started with; every argument has to be understood.

    Raises:
        ConfigError: an argument is not, or nothing names a recipe.
    """
    name, words = _words(script, executor)
    if name == RUN_RECIPE:
        return _run_recipe(words, needs_recipe=True)
    parser = _parser(name)
    parser.add_argument("--recipe", required=True)
    if script.m and name == "bridgepack.running.train":
        parser.add_argument("--artifact")
        parser.add_argument("--run-folder")
    options, rest = parser.parse_known_args(words)
    return Command(
        script=name,
        recipe=options.recipe,
        artifact=getattr(options, "artifact", None),
        overrides=_overrides(rest, name),
    )


def read_overrides(script: Script, executor: Executor) -> Command:
    """Return the settings among the arguments of a script whose recipe is known from elsewhere.

    Options that are nobody's here are passed over: the script's own parser gives them their meaning.

    Raises:
        ConfigError: the text cannot be split, or an option of Megatron-Bridge's own script is wrong.
    """
    name, words = _words(script, executor)
    if name == RUN_RECIPE:
        return _run_recipe(words, needs_recipe=False)
    parser = _parser(name)
    parser.add_argument(*_CONFIG_FILE_OPTIONS, dest="config_file")
    options, rest = parser.parse_known_args(words)
    found = tuple(word for word in rest if (match := _OVERRIDE.fullmatch(word)) and (match[4] or match[1] == "~"))
    return Command(script=name, config_file=options.config_file, overrides=found)


def _run_recipe(words: Sequence[str], *, needs_recipe: bool) -> Command:
    """Return what `run_recipe.py` is started with.

    Source: Megatron-Bridge 0.6, scripts/training/run_recipe.py, _build_parser, parse_args and _selected_recipe_name.
    """
    parser = _parser(RUN_RECIPE)
    selection = parser.add_mutually_exclusive_group(required=needs_recipe)
    selection.add_argument("--recipe")
    selection.add_argument("--model")
    parser.add_argument("--mode", choices=MODES)
    parser.add_argument("--step-func", "--step_func")
    parser.add_argument("--dataset")
    for flags, kind, field in _FIELD_OPTIONS:
        parser.add_argument(*flags, type=kind, dest=field)
    for flag in ("--deterministic", "--dry-run", "--dry_run", "--dump-env", "--dump_env"):
        parser.add_argument(flag, action="store_true")
    options, rest = parser.parse_known_args(words)
    values = vars(options)
    fields = [(field, values[field]) for _, _, field in _FIELD_OPTIONS if values[field] is not None]
    mode = options.mode or (mode_in_name(options.recipe) if options.recipe else None)
    if mode is None and needs_recipe:
        raise ConfigError(f"{RUN_RECIPE} has no --mode, and no recipe's name tells it. Add --mode {'|'.join(MODES)}.")
    recipe = options.recipe or (f"{options.model}_{_task(mode)}_config" if options.model and mode else None)
    return Command(
        script=RUN_RECIPE,
        is_run_recipe=True,
        recipe=recipe,
        mode=mode,
        dataset=options.dataset,
        is_deterministic=options.deterministic,
        overrides=(
            *(f"{field}={json.dumps(value) if isinstance(value, str) else value}" for field, value in fields),
            *_overrides(rest, RUN_RECIPE),
        ),
    )


def mode_in_name(recipe: str) -> str | None:
    """Return the mode that a recipe's name tells: `qwen3_8b_peft_config` -> `lora`.

    Source: Megatron-Bridge 0.6, scripts/training/recipe_metadata.py, infer_recipe_mode.
    """
    parts = set(recipe.lower().split("_"))
    names = (({"pretrain"}, "pretrain"), ({"sft", "finetune"}, "sft"), ({"dora"}, "dora"), ({"peft", "lora"}, "lora"))
    return next((mode for known, mode in names if parts & known), None)


def _task(mode: str) -> str:
    return "peft" if mode in {"lora", "dora"} else mode


def _overrides(words: Sequence[str], script: str) -> tuple[str, ...]:
    """Return words that are all overrides.

    Raises:
        ConfigError: one is none.
    """
    for word in words:
        if word.startswith("-"):
            flag = word.partition("=")[0]
            hint = _EARLIER_OPTIONS.get(flag, "Remove it." if script == RUN_RECIPE else "")
            raise ConfigError(
                f"argument {shown(word)} of {script} is no option that is known here; allowed: --recipe, path=value, "
                f"and the options of Megatron-Bridge 0.6's {RUN_RECIPE} where that is the script. {hint}".rstrip()
            )
        if not _OVERRIDE.fullmatch(word):
            raise ConfigError(_no_override(word, script))
    return tuple(words)


def _no_override(word: str, script: str) -> str:
    section = word.lstrip("+~").partition("=")[0].partition(".")[0]
    nearest = nearest_name(section, ALL_SECTIONS)
    hint = f"Did you mean {nearest}?" if nearest and section != nearest else "Correct or remove it."
    return (
        f"argument {shown(word)} of {script} is no override of a ConfigContainer; allowed: section.field=value, e.g. "
        f"train.train_iters=100. {hint}"
    )


def _words(script: Script, executor: Executor) -> tuple[str, list[str]]:
    """Return the name of a script, and its arguments as it gets them.

    Raises:
        ConfigError: the quotes do not match.
    """
    try:
        if script.inline:
            return _words_inline(script.inline)
        name = script.path if script.m else script_name(script)
        if reads_arguments_by_shell(executor):
            return name, shlex.split(" ".join(script.args))
    except ValueError as error:
        raise ConfigError(
            f"the arguments of {script_name(script)} cannot be split as a shell does: {error}. Correct the quotes."
        ) from None
    return name, list(script.args)


def _words_inline(text: str) -> tuple[str, list[str]]:
    """Return `run_recipe.py` and its arguments out of a shell script that calls it once; else all words."""
    lexer = shlex.shlex(text.replace("\\\n", " ").replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    words = list(lexer)
    calls = [index for index, word in enumerate(words) if PurePosixPath(word).name == RUN_RECIPE]
    if len(calls) != 1:
        return "the inline script", words
    after = words[calls[0] + 1 :]
    end = next((index for index, word in enumerate(after) if _SEPARATORS.fullmatch(word)), len(after))
    return RUN_RECIPE, after[:end]


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Turn a wrong argument into an error that users see.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"the arguments of {self.prog} are wrong: {message}. Correct them.")


def _parser(name: str) -> _Parser:
    return _Parser(prog=name, allow_abbrev=False, add_help=False)
