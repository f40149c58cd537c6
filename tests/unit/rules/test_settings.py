"""Settings are read by dotted path; what is not stated or of a wrong kind is a reason not to judge."""

import re
from pathlib import PurePosixPath
from typing import Any

import pytest

from bridgepack.records import RunConfig
from bridgepack.rules.engine.context import CannotJudgeError
from bridgepack.rules.engine.settings import Settings

VALUES: dict[str, Any] = {
    "model": {
        "_target_": "a.b.GPTModelProvider",
        **{"size": 4, "flag": True},
        "backend": {"_target_": "E", "_name_": "flash"},
    },
    "peft": None,
    "dataset": {"kwargs": None, "path": PurePosixPath("/data"), "names": ["a", "b"], "text": "8"},
}


def settings(*, is_complete: bool) -> Settings:
    return Settings(
        config=RunConfig(values=VALUES, is_complete=is_complete, place="mine.yaml", user_paths={"a.b": "c"})
    )


def test_values_of_every_kind() -> None:
    read = settings(is_complete=True)
    assert read.integer("model.size") == 4
    assert read.integer("dataset.kwargs", default=7) == 7
    assert read.integer_or_none("dataset.kwargs") is None
    assert read.number_or_none("model.size") == 4.0
    assert read.flag("model.flag") is True
    assert read.flag("dataset.kwargs") is False
    assert read.text_or_none("model.backend") == "flash"
    assert read.text_or_none("dataset.path") == "/data"
    assert read.mapping("dataset.kwargs") == {}
    assert read.items("dataset.names") == ("a", "b")
    assert read.items("dataset.text") == ("8",)
    assert read.items("dataset.kwargs") == ()
    assert read.class_name("model") == "GPTModelProvider"
    assert read.class_name("peft") is None


def test_a_field_below_none_is_none() -> None:
    assert settings(is_complete=False).value("peft.dim") is None


def test_absent_is_none_in_a_complete_config_and_a_reason_elsewhere() -> None:
    assert settings(is_complete=True).value("model.new") is None
    with pytest.raises(CannotJudgeError, match=r"model\.new is not set in mine\.yaml"):
        settings(is_complete=False).value("model.new")
    with pytest.raises(CannotJudgeError, match=r"^c\S* is not set in"):
        settings(is_complete=False).value("a.b")
    assert not settings(is_complete=True).is_stated("model.new")


WRONG = """
integer dataset.text | integer model.flag | integer dataset.kwargs | number_or_none dataset.text | flag model.size
text_or_none dataset.names | text_or_none model.size | mapping dataset.names | class_name dataset.text
"""


@pytest.mark.parametrize("wrong", re.split(r"[|\n]", WRONG.strip()))
def test_a_wrong_kind_is_a_reason(wrong: str) -> None:
    kind, path = wrong.split()
    with pytest.raises(CannotJudgeError):
        getattr(settings(is_complete=True), kind)(path)
