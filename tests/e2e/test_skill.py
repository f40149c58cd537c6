"""SKILL.md is enough to mend what scripts/skill_eval breaks."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.small_builds import environment

pytestmark = pytest.mark.full

SCRIPT = Path(__file__).parents[2] / "scripts" / "skill_eval"


def test_ten_tasks_end_as_they_should_by_the_commands_of_the_skill(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, SCRIPT], env=environment(tmp_path), capture_output=True, text=True, timeout=300, check=False
    )

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert [line.split()[0] for line in ran.stdout.splitlines()] == ["done"] * 10
