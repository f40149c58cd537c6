"""Finds the files of a tokenizer on the Hugging Face hub: in the local cache, or fetched into it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.data import TokenizerConfig

#: Files that loading a tokenizer without transformers may read.
_WANTED = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json", "config.json")
_NEEDED = ("tokenizer.json", "tokenizer_config.json")
#: Names that make a tokenizer one that only transformers loads.
_NOT_PLAIN = ("added_tokens.json", "additional_chat_templates/", "tekken.json")


def hub_folder(config: TokenizerConfig) -> Path | None:
    """Return the folder of the hub's cache with a tokenizer's files of one commit; None where transformers must look.

    Args:
        config: of the recipe; `name_or_path` is an id.
    """
    if config.trust_remote_code:
        return None
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    try:
        return _fetched(config.name_or_path, config.revision)
    except Exception:  # no such id, no network, gated: transformers looks again and its error is worded
        return None


def _fetched(repository: str, revision: str | None) -> Path | None:
    from huggingface_hub import HfApi, hf_hub_download
    from huggingface_hub.errors import OfflineModeIsEnabled

    try:
        found: Any = HfApi().model_info(repository, revision=revision)
        names, commit = [sibling.rfilename for sibling in found.siblings], found.sha
    except OfflineModeIsEnabled:
        return _cached(repository, revision)
    if any(name.startswith(_NOT_PLAIN) for name in names) or not set(_NEEDED) <= set(names):
        return None
    paths = [Path(hf_hub_download(repository, name, revision=commit)) for name in _WANTED if name in names]
    return paths[0].parent


def _cached(repository: str, revision: str | None) -> Path | None:
    """Return the folder of a commit that is in the cache with what is needed."""
    from huggingface_hub import try_to_load_from_cache

    found = [try_to_load_from_cache(repository, name, revision=revision) for name in _NEEDED]
    paths = [Path(path) for path in found if isinstance(path, str)]
    return paths[0].parent if len(paths) == len(_NEEDED) else None
