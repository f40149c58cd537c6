"""The real megatron-core refuses TransformerEngine's variables exactly where BP734 does, for every backend."""

import os
from itertools import product
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from bridgepack.host.variables import ATTENTION_VARIABLES, FLASH_VERSIONS, OF_BACKEND
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.registry import RUN_RULES
from tests.unit.rules.run_cases import subject_of

pytestmark = pytest.mark.bridge

(RULE,) = (rule for rule in RUN_RULES if rule.code == "BP734")
VALUES = (None, "0", "1", "True")


def _refused(backend: Any, variables: dict[str, str], version: int | None) -> bool:
    from megatron.core.models.common.language_module.language_module import LanguageModule

    config = SimpleNamespace(
        attention_backend=backend,
        flash_attention_version=version,
        batch_invariant_mode=False,  # the last of 0.7
    )
    with mock.patch.dict(os.environ, variables, clear=True):
        try:
            LanguageModule._set_attention_backend(SimpleNamespace(config=config))
        except AssertionError:
            return True
    return False


def _found(backend: Any, variables: dict[str, str], version: int | None) -> bool:
    changes = {"env_vars": variables, "model.attention_backend": backend, "model.flash_attention_version": version}
    return bool(judge_run(subject_of({"set": changes}), [RULE]).findings)


def test_variables_are_refused_as_by_the_host(bridge: ModuleType) -> None:
    from megatron.core.transformer.enums import AttnBackend

    assert {member.name for member in AttnBackend} == set(OF_BACKEND)
    num_refused = num_checked = 0
    for member, values in product(AttnBackend, product(VALUES, repeat=len(ATTENTION_VARIABLES))):
        variables = {name: value for name, value in zip(ATTENTION_VARIABLES, values, strict=True) if value}
        held = {"_target_": "megatron.core.transformer.enums.AttnBackend", "_name_": member.name}
        is_refused = _refused(member, variables, None)
        assert not _refused(None, variables, None)  # the variables act where the backend is null
        assert _found(held, variables, None) == is_refused, (member, variables)
        assert not _refused(member.name, variables, None)
        assert not _found(member.name, variables, None)
        num_refused, num_checked = num_refused + is_refused, num_checked + 1
    assert (num_checked, num_refused) == (5 * 4**3, 5 * (4**3 - 2**3))


def test_generations_of_flash_attention_are_refused_as_by_the_host(bridge: ModuleType) -> None:
    from megatron.core.transformer.enums import AttnBackend

    for version, name, value in product((None, *FLASH_VERSIONS), FLASH_VERSIONS.values(), ("0", "1")):
        variables, held = {name: value}, {"_target_": "megatron.core.transformer.enums.AttnBackend", "_name_": "auto"}
        assert _found(held, variables, version) == _refused(AttnBackend.auto, variables, version), (version, variables)
