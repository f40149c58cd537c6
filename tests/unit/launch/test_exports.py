"""Environment variables survive `export NAME=VALUE` in the scripts that nemo-run writes."""

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridgepack.errors import ConfigError
from bridgepack.launch.tasks import exported


def _in_bash(value: str) -> str:
    script = f'export X={value}\nprintf "%s" "$X"'
    finished = subprocess.run(["env", "-i", "HOME=/ada", "bash", "-c", script], capture_output=True, check=True)
    return finished.stdout.decode()


@pytest.mark.parametrize(
    ("value", "expected", "printed"),
    [
        ("WARN", "WARN", "WARN"),
        ("/a:/b", "/a:/b", "/a:/b"),
        ("--a --b", '"--a --b"', "--a --b"),
        ("$HOME/cache", "$HOME/cache", "/ada/cache"),
        ("${HOME}/my cache", '"${HOME}/my cache"', "/ada/my cache"),
        ('say "x" \\ `id`', '"say \\"x\\" \\\\ \\`id\\`"', 'say "x" \\ `id`'),
        ("a;b&c|d#e", '"a;b&c|d#e"', "a;b&c|d#e"),
        ("", "", ""),
    ],
)
def test_values_are_one_word(value: str, expected: str, printed: str) -> None:
    (text,) = exported({"X": value}, {}).values()

    assert text == expected
    assert _in_bash(text) == printed


@settings(max_examples=40, deadline=None)
@given(st.text(st.characters(blacklist_categories=("Cs",), blacklist_characters="\0")))
def test_a_variable_that_is_named_means_itself(secret: str) -> None:
    (text,) = exported({"X": "<${env:SECRET}>"}, {"SECRET": secret}).values()

    assert _in_bash(text) == f"<{secret}>"


def test_a_reference_stays_for_display() -> None:
    assert exported({"X": "${env:SECRET}"}, None) == {"X": "${env:SECRET}"}
    with pytest.raises(ConfigError, match=r"executor.env_vars.X is '\$\{env:SECRET\}'; the environment has no"):
        exported({"X": "${env:SECRET}"}, {})
