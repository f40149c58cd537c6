"""`check --real-validate` has an error exactly where `to_bridge` or the host refuses, and so have our rules alone."""

import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from bridgepack.bridge.refusing.refusals import OF_RECIPE
from bridgepack.bridge.validating.verdict import TO_BRIDGE, VALIDATE, Question, verdict_of
from bridgepack.checking import real
from bridgepack.checking.check import check_target
from bridgepack.checking.options import CheckOptions
from bridgepack.records import HostVerdict
from bridgepack.rules.judging.report import CheckReport
from bridgepack.rules.judging.rule import Severity
from tests.support.generated_recipes import GeneratedRecipe, generated_recipe
from tests.support.upstream_recipes import NOT_LOADED, RecipeFunction, recipes_offline, silence

pytestmark = pytest.mark.full

#: As many as `test_validate_agrees` draws: 3,500 before a release.
NUM_RECIPES = int(os.environ.get("BRIDGEPACK_NUM_CONFIGS", "300"))
#: What our rules alone may miss: the beginning of `kind_of` -> why.
WRITTEN = {
    "validate(): AssertionError: Cannot specify more than one of train_iters": "steps are known with the packs only",
    "validate(): AssertionError: One of train_iters": "steps are known with the packs only",
    "validate(): ValueError: lr_decay_steps must be": "steps are known with the packs only",
    "validate(): ValueError: When bias_activation_fusion is True": "bases on file hold no functions",
    "validate(): ValueError: Storing activation input in FP": "bases on file hold no functions",
    "validate(): ValueError: TransformerEngine only support gelu": "bases on file hold no functions",
}
#: Begins a problem where the host refuses, and only its own verdict tells it.
ALONE = "not found by our rules alone: "
#: Whether what `to_bridge` refuses must be a finding of our rules, too; else only the host's verdict tells it.
HOLDS_TO_BRIDGE = True


@pytest.fixture(scope="module")
def bases(upstream_recipes: dict[str, RecipeFunction]) -> list[str]:
    names = (name.rpartition(".")[2] for name in upstream_recipes if name not in NOT_LOADED)
    return sorted(names)


def kind_of(verdict: HostVerdict) -> str:
    """Return what a refusal is about, without its numbers and names."""
    words = re.sub(r"'[^']*'|\"[^\"]*\"|\[[^\]]*\]|\{[^}]*\}|-?\d+(\.\d+)?", "_", verdict.reason)
    return f"{verdict.stage}: {words[:110]}"


def problems_of(verdict: HostVerdict, report: CheckReport) -> list[str]:
    """Return where a report and the host disagree; a finding that the host may notice later, too, accuses nobody."""
    errors = [finding for finding in report.findings if finding.severity == Severity.ERROR]
    noticed = [finding for finding in errors if finding.noticed.startswith(VALIDATE)]
    if verdict.state == "accepted":
        sure = {finding.code for finding in noticed if ", or" not in finding.noticed}
        sure |= {finding.code for finding in errors} & OF_RECIPE
        return [f"accepted, but {code} says that the host refuses" for code in sorted(sure)]
    own = {finding.code for finding in (errors if verdict.stage == TO_BRIDGE else noticed)} - {"BP993"}
    if verdict.stage == TO_BRIDGE:
        own &= set(re.findall(r"\((BP\d{3})\)", verdict.reason))
    if own:
        twice = [finding.code for finding in errors if finding.code == "BP993"]
        return [f"{', '.join(sorted(own))} and {code} report one fault" for code in twice]
    return [f"{ALONE}{kind_of(verdict)}"] if errors else ["refused, and nothing is reported"]


def verdict_and_report(case: GeneratedRecipe, given: dict[str, HostVerdict]) -> tuple[HostVerdict, CheckReport]:
    """Return what the host says of a recipe, asked in this process, and the report of a check that is told so."""
    question = Question(
        recipe=case.recipe.model_dump(mode="json", exclude_unset=True),
        world_size=case.recipe.parallelism.num_gpus,
        gpu="gb200" if "gb200" in case.base else "h100",
    )
    given["verdict"] = verdict_of(question)
    return given["verdict"], check_target(case.recipe, CheckOptions(real_validate=True, looks_at_files=False))


def test_an_error_exactly_where_the_host_refuses(
    bases: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    examples: dict[str, Any] = {}
    given: dict[str, HostVerdict] = {}
    monkeypatch.setattr(real, "host_verdict", lambda *_, **__: given["verdict"])
    monkeypatch.chdir(tmp_path)
    with recipes_offline(tmp_path / "hub"), silence():
        for seed in range(NUM_RECIPES):
            case = generated_recipe(bases, seed)
            if case is None:
                counts["no recipe"] += 1
                continue
            verdict, report = verdict_and_report(case, given)
            counts[verdict.state] += 1
            for problem in problems_of(verdict, report):
                missed[problem] += 1
                examples.setdefault(problem, (seed, case.base, case.changes))
    allowed = [*WRITTEN, *([] if HOLDS_TO_BRIDGE else [TO_BRIDGE])]
    wrong = [problem for problem in missed if not problem.startswith(tuple(f"{ALONE}{kind}" for kind in allowed))]
    text = "\n".join(f"{count} x {problem}\n    {examples[problem]}" for problem, count in missed.most_common(40))
    assert not wrong, f"{NUM_RECIPES} recipes, {dict(counts)}: {wrong}\nof all:\n{text}"
    assert counts["accepted"] > NUM_RECIPES // 5
    assert counts["refused"] > NUM_RECIPES // 5
