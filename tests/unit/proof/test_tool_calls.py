"""What a tool call says is looked for in the text of its turn, in the forms that templates write."""

import json
from typing import Any

import pytest

from bridgepack.proof.masks.thoughts import lost_parts

ARGUMENTS = {"city": 'Zürich "old"', "days": 3, "exact": True, "near": [{"name": "Bern"}], "unit": None}


def _calls(arguments: Any, name: str = "forecast") -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name, "arguments": arguments}}]


@pytest.mark.parametrize(
    "text",
    [
        f"forecast {json.dumps(ARGUMENTS)}",
        f"forecast {json.dumps(ARGUMENTS, ensure_ascii=False)}",
        json.dumps({"name": "forecast", "arguments": json.dumps(ARGUMENTS)}),
        f"forecast {ARGUMENTS}",
        '<forecast><city>Zürich "old"</city><days>3</days><exact>true</exact><near><name>Bern</name></near><unit/>',
    ],
)
@pytest.mark.parametrize("as_text", [False, True])
def test_calls_that_survive(text: str, as_text: bool) -> None:
    assert lost_parts(text, _calls(json.dumps(ARGUMENTS) if as_text else ARGUMENTS)) == []


@pytest.mark.parametrize(
    ("text", "calls", "expected"),
    [
        ("", _calls({}), ["the name 'forecast'"]),
        ("call_1 {}", _calls({}), ["the name 'forecast'"]),
        ('forecast {"days": 4}', _calls({"days": 3}), ["3"]),
        ('forecast {"days": 3}', _calls({"city": "Bern", "days": 3}), ['"city"', '"Bern"']),
        ("forecast", _calls("no JSON"), ["the arguments 'no JSON'"]),
        ("forecast", _calls('{"on": false}'), ['"on"', "false"]),
        ("forecast", [{"name": "other", "arguments": {}}], ["the name 'other'"]),
    ],
)
def test_calls_that_are_lost(text: str, calls: list[dict[str, Any]], expected: list[str]) -> None:
    assert sorted(lost_parts(text, calls)) == sorted(expected)


@pytest.mark.parametrize("calls", [None, [], "text", [None], [{}], [{"function": "x"}], _calls(None), _calls(" ")])
def test_what_is_no_call_loses_nothing(calls: Any) -> None:
    assert lost_parts("forecast", calls) == []
