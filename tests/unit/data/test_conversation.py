"""Names of roles: whatever alias a recipe accepts gives a role that the row is kept with."""

from typing import Any

import pytest

from bridgepack.config.recipe.data import DataConfig
from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.sequences.conversation import ConversationReader
from bridgepack.errors import RowError

CALL = '{"name": "add", "arguments": {"a": 1}}'


def _roles(aliases: dict[str, str], *turns: dict[str, Any]) -> list[str]:
    data = DataConfig(train="chats.jsonl", role_aliases=aliases)
    reader = ConversationReader(ChatPreprocessing(), data.role_aliases)
    return [message["role"] for message in reader.read({"conversations": list(turns)}).messages]


@pytest.mark.parametrize(
    ("target", "role"),
    [
        *((role, role) for role in ("system", "developer", "user", "assistant", "tool")),
        ("observation", "tool"),
        ("function_call", "assistant"),
    ],
)
def test_every_role_that_an_alias_may_name_is_read(target: str, role: str) -> None:
    assert _roles({"result": target}, {"from": "result", "value": CALL}) == [role]
    assert _roles({"result": target}, {"role": "result", "content": CALL}) == [role]


@pytest.mark.parametrize("alias", ["bard", "Bard", "BARD"])
@pytest.mark.parametrize("name", ["bard", "Bard"])
def test_case_of_an_alias_does_not_count(alias: str, name: str) -> None:
    assert _roles({alias: "assistant"}, {"from": name, "value": "Hi"}) == ["assistant"]
    assert _roles({alias: "assistant"}, {"role": name, "content": "Hi"}) == ["assistant"]


def test_alias_of_a_known_role_counts_before_the_role() -> None:
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hi"}]

    assert _roles({"user": "system"}, *turns) == ["system", "assistant"]


def test_name_without_an_alias_is_refused() -> None:
    with pytest.raises(RowError, match="turn 1: role 'critic'; known: assistant, developer, system, tool, user"):
        _roles({"bard": "assistant"}, {"from": "critic", "value": "No."})


def test_aliases_that_differ_in_case_only_must_agree() -> None:
    with pytest.raises(ValueError, match=r"role_aliases\['Bard'\] is 'user' and role_aliases\['bard'\] is 'assistant'"):
        DataConfig(train="chats.jsonl", role_aliases={"Bard": "user", "bard": "assistant"})
    assert DataConfig(train="chats.jsonl", role_aliases={"Bard": "user", "bard": "user"}).role_aliases
