"""`check` and the real `validate()` agree: what the host rejects is reported, and what is said of the host is true."""

import os
from collections import Counter
from typing import Any

import pytest

from bridgepack.rules.judging.rule import Severity
from bridgepack.rules.registry import RUN_RULES
from tests.support.generated_configs import GeneratedConfig, generated
from tests.support.gpu_host import pretend_gpu_host
from tests.support.upstream_recipes import RecipeFunction, findings_of, load_recipe_config, silence, validate

#: `scripts/test --exhaustive` draws 3,500.
NUM_CONFIGS = int(os.environ.get("BRIDGEPACK_NUM_CONFIGS", "300"))
BASES = (
    *("llama32_1b_sft_1gpu_h100_bf16_config", "llama32_1b_peft_1gpu_h100_bf16_config"),
    *("qwen3_8b_sft_4gpu_h100_bf16_config", "qwen3_30b_a3b_sft_8gpu_h100_bf16_config"),
    *("gpt_oss_20b_sft_8gpu_h100_bf16_config", "qwen25_vl_3b_sft_1gpu_h100_bf16_config"),
    *("nemotron_3_nano_sft_8gpu_h100_bf16_config", "moonlight_16b_sft_8gpu_h100_bf16_8k_config"),
)
#: Code -> numbers of the catalogue that it follows from.
EVIDENCE = {rule.code: rule.catalogue_ids for rule in RUN_RULES}
#: When the host notices what no number of the catalogue is about, and validate() accepts.
LATER = ("setup", "model build", "first step")


@pytest.fixture(scope="module")
def bases(host: None, upstream_recipes: dict[str, RecipeFunction]) -> dict[str, Any]:
    by_name = {name.rpartition(".")[2]: function for name, function in upstream_recipes.items()}
    return {name: load_recipe_config(by_name[name]) for name in BASES}


def errors_of(case: GeneratedConfig) -> dict[str, str]:
    """Return code -> when the host notices, of every error that check reports."""
    findings = findings_of(case.config, case.base, case.world_size)
    return {found.code: found.noticed for found in findings if found.severity == Severity.ERROR}


def test_check_and_validate_agree(bases: dict[str, Any]) -> None:
    missed: Counter[str] = Counter()
    examples: dict[str, Any] = {}
    num_rejected = num_accepted = 0
    with pretend_gpu_host(), silence():
        for seed in range(NUM_CONFIGS):
            case = generated(bases, seed)
            verdict = validate(case.config, case.world_size)
            errors = errors_of(case)
            seen = {code for code, noticed in errors.items() if noticed.startswith("validate()")}
            if verdict is None:
                num_accepted += 1
                problems = [f"accepted, but {code} says that validate() notices" for code in seen]
                unproved = [
                    code for code, noticed in errors.items() if not (EVIDENCE[code] or noticed.startswith(LATER))
                ]
                problems += [f"accepted, and {code} has no evidence" for code in unproved]
            else:
                num_rejected += 1
                problems = [] if seen else [f"rejected, not reported: {verdict[:160]}"]
            for problem in problems:
                missed[problem] += 1
                examples.setdefault(problem, (seed, case.base, case.world_size, case.faults))
    report = "\n".join(f"{count} x {problem}\n    {examples[problem]}" for problem, count in missed.most_common(20))
    assert not missed, f"{sum(missed.values())} of {NUM_CONFIGS} disagree:\n{report}"
    assert num_rejected > NUM_CONFIGS // 5
    assert num_accepted > NUM_CONFIGS // 5
