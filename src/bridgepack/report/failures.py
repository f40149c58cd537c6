"""Renders the error of a command in the chosen format."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bridgepack.bridge.locations import line_of
from bridgepack.errors import Problem
from bridgepack.rules.engine.sarif import github_command, render_gitlab_failure, render_sarif_failure

#: Used in place of a rule's code.
CANNOT_BE_READ = "cannot-be-read"


def failure_to_dict(error: BaseException, message: str, exit_code: int) -> dict[str, Any]:
    """Return an error as plain values: `kind`, `message`, `problems` with field, file and line, `exit_code`."""
    problems = [asdict(problem) for problem in problems_of(error)]
    kind = type(error).__name__
    return {"error": {"kind": kind, "message": message, "problems": problems, "exit_code": exit_code}}


def problems_of(error: BaseException, target: str = "") -> tuple[Problem, ...]:
    """Return the problems of an error with file and line; problems without a file get `target` if it is a file."""
    file = next((place for place in (target, target.rpartition(":")[0]) if os.path.isfile(place)), "")  # noqa: PTH113
    problems = getattr(error, "problems", ()) or (Problem(message=str(error)),)
    return tuple(_located(problem, file) for problem in problems)


def _located(problem: Problem, file: str) -> Problem:
    if not problem.file:
        return replace(problem, file=file)
    if problem.line is not None:
        return problem
    return replace(problem, line=line_of(Path(problem.file), [problem.field]) or 1)


def rendered_failure(error: BaseException, form: str, target: str) -> str:
    """Return why a target cannot be checked as `json`, `sarif`, `github` or `gitlab`."""
    problems = problems_of(error, target)
    if form == "sarif":
        return render_sarif_failure(CANNOT_BE_READ, problems)
    if form == "gitlab":
        return render_gitlab_failure(CANNOT_BE_READ, [replace(one, file=one.file or target) for one in problems])
    if form == "github":
        lines = [github_command("error", CANNOT_BE_READ, one.message, one.file, one.line) for one in problems]
        return "\n".join(lines) + "\n"
    return json.dumps(failure_to_dict(error, str(error), 2), indent=2, ensure_ascii=False) + "\n"
