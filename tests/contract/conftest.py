"""The real megatron-bridge, imported once for all contract tests."""

import gc
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bridgepack.bridge.import_on_cpu import install_import_hook
from bridgepack.bridge.imports import import_host
from tests.support.gpu_host import pretend_gpu_host
from tests.support.host_datasets import build_word_tokenizer
from tests.support.small_builds import write_conversations
from tests.support.upstream_preprocessing import ChatPair
from tests.support.upstream_recipes import (
    RecipeFunction,
    recipe_configs,
    recipe_functions,
    recipes_offline,
)

install_import_hook()


@pytest.fixture(scope="session")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """Yield `megatron.bridge`; the first test that asks waits some 20 seconds for the import."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MEGATRON_CONFIG_LOCK_DIR", str(tmp_path_factory.mktemp("locks")))
        module: ModuleType = import_host()
        gc.freeze()
        yield module


@pytest.fixture(scope="module")
def host(bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Give the configs of all models without a network."""
    with recipes_offline(tmp_path_factory.mktemp("hub")):
        yield


@pytest.fixture(scope="module")
def h100_host(host: None) -> Iterator[None]:
    """Answer as a host with H100s, too."""
    with pretend_gpu_host("h100"):
        yield


@pytest.fixture(scope="session")
def host_tokenizer(bridge: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the host's tokenizer over the token ids of tests/support/packed_rows.py."""
    return build_word_tokenizer(tmp_path_factory.mktemp("tokenizer"))


@pytest.fixture(scope="session")
def conversations(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with training.jsonl, validation.jsonl and tokenizer."""
    return write_conversations(tmp_path_factory.mktemp("conversations"), limit=400)


@pytest.fixture(scope="session")
def chatml_pair(bridge: ModuleType, chatml_tokenizer: Path) -> ChatPair:
    """Return both sides' preprocessing of chats over a tokenizer with a ChatML template."""
    return ChatPair(chatml_tokenizer, loss_mode="assistant")


@pytest.fixture(scope="session")
def upstream_recipes(bridge: ModuleType) -> dict[str, RecipeFunction]:
    """Return every shipped SFT and PEFT recipe function by module and name."""
    return dict(recipe_functions())


@pytest.fixture(scope="session")
def upstream_configs(
    upstream_recipes: dict[str, RecipeFunction], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    """Return the ConfigContainer of every recipe that can be loaded, by module and name; `validate` copies them."""
    with recipes_offline(tmp_path_factory.mktemp("hub")):
        return recipe_configs()
