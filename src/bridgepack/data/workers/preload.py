"""Imports transformers in the fork server, and loads a recipe's tokenizer and engine, which its workers share."""

import atexit
import json
import os
from pathlib import Path

from bridgepack.data.tokenizers.frameworks import import_transformers
from bridgepack.data.workers.memory import collect_rarely
from bridgepack.data.workers.process import RECIPE_VARIABLE

_ERROR_OUTPUT = 2


def _load_shared(target: str, overrides: tuple[str, ...]) -> None:
    """Load a recipe's tokenizer and engine, ignoring errors: they will occur again in a worker, which reports them."""
    errors = os.dup(_ERROR_OUTPUT)
    with Path(os.devnull).open("w") as nowhere:
        os.dup2(nowhere.fileno(), _ERROR_OUTPUT)
    try:
        _load_stage(target, overrides)
    except BaseException:  # panics in Rust code are not Exceptions
        return
    finally:
        os.dup2(errors, _ERROR_OUTPUT)
        os.close(errors)


def _load_stage(target: str, overrides: tuple[str, ...]) -> None:
    """Load a recipe's stage if recipe and tokenizer are pure data; a user's code runs only in workers."""
    from bridgepack.config.load import load_recipe, parse_overrides
    from bridgepack.config.recipe.data import path_of
    from bridgepack.data.reading.inputs import find_inputs
    from bridgepack.data.reading.remote import scheme_of
    from bridgepack.data.sequences.loading import load_stage

    if ":" in target or target.endswith(".py"):
        return
    recipe = load_recipe(target, parse_overrides(overrides))
    if Path(recipe.tokenizer.name_or_path).is_dir() and not recipe.tokenizer.trust_remote_code:
        paths = tuple(path for source in recipe.data.all_sources if (path := path_of(source)) is not None)
        local = tuple(path for path in paths if scheme_of(path) is None)
        num_bytes = sum(file.num_bytes for file in find_inputs(local, "data", "training", Path()))
        stage = load_stage(recipe.model_dump_json(), recipe.tokenizer.engine, num_bytes)
        stage.identity()  # fills the tokenizer's cached properties: its size and its template


collect_rarely()
import_transformers()
if RECIPE_VARIABLE in os.environ:
    atexit.register(os._exit, 0)  # to take what was loaded apart would take half a second
    _load_shared(*json.loads(os.environ[RECIPE_VARIABLE]))
