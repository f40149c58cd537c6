"""A run from a case: a healthy run, and what the case changes in it.

A case is a mapping with, all optional:

- `set`: dotted path -> value, and `remove`: dotted paths, in the settings of `tests/rules/base_run.json`;
  `{"_path_": "..."}` stands for a `pathlib.Path`.
- `recipe`: true for settings that are not complete: only what `set` says is stated.
- `derived`: paths whose values follow from a recipe's other fields.
- `place`: what the user named; `world_size`: number of GPUs, 8 by default, null for not known.
- `no_recipe`: a model's name that is no recipe, and the hint that goes with it.
- `refusal`: what is said of a setting that the host does not take.
- `versions`: distribution -> version that the run is judged for.
- `environment`: `{"versions": {...}, "python": "3.12.4"}`.
- `files`: path -> number of lines, or `"folder"`; the checkpoint of the healthy run exists beside them; `modified`:
  path -> seconds; `read_only`: folders.
- `waiting`: ratios by name, and what differs in `built` (null for not balanced) and `run` from one balance.
- `tokenizers`: `of_run` and `of_model`, as `TokenizerFacts` with keys of JSON, and what `TokenizerPair` has beside
  them; without it they are compared as far as the settings and the artifact tell.
- `installed_fields`: class of the installed host -> field -> its type.
- `base_model`: settings of the model whose weights are loaded.
- `asks_for_losses`: true for a recipe with losses.by_source or losses.by_row true.
- `evaluated_sets`: `EvaluatedSets`: how many of the run's evaluations read each validation set.
- `other_settings`: settings about rows that differ from the packs'.
- `artifact`: an artifact's case, as in `in_memory_artifact`.
"""

import copy
import fnmatch
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Any

from packaging.version import Version
from scripts.bench.balance import RUN

from bridgepack.checking.tokenizers import tokenizers_of
from bridgepack.host import TARGET
from bridgepack.records import Refusal, RunConfig, StepRatios, Waiting
from bridgepack.rules.judging.base_model import UNKNOWN_MODEL, BaseModel
from bridgepack.rules.judging.context import NO_PACKS
from bridgepack.rules.judging.environment import Versions
from bridgepack.rules.judging.facts import NOT_ASKED, EvaluatedSets, InstalledFields, SlowFacts
from bridgepack.rules.judging.rule import Rule
from bridgepack.rules.judging.subject import Environment, Run
from bridgepack.rules.judging.tokenizers import TokenizerFacts, TokenizerPair
from tests.unit.rules.in_memory_artifact import artifact_facts

#: A recipe, which states less than a ConfigContainer.
RECIPE: dict[str, Any] = {
    "name": "a_recipe",
    "tokenizer": {"name_or_path": "some/tokenizer"},
    "packing": {"packed_sequence_size": 4096},
    "parallelism": {"num_gpus": 8, "context_parallel_size": 2},
    "batch": {"global_batch_size": 8},
    "preprocessing": {"kind": "chat"},
    "data": {"train": ["train.jsonl"]},
}
#: The checkpoint that the healthy run starts from.
CHECKPOINT = {"/checkpoints/llama-3.2-1b/latest_checkpointed_iteration.txt": 1}
BASE, CASES = (Path(__file__).parents[2] / "rules" / name for name in ("base_run.json", "cases"))


def content_of(rule: Rule) -> dict[str, Any]:
    """Return the case file of a rule: `bad` and `good`, one case or several of each."""
    content: dict[str, Any] = json.loads((CASES / f"{rule.code}.json").read_text(encoding="utf-8"))
    return content


def cases_of(rule: Rule, kind: str) -> list[dict[str, Any]]:
    cases = content_of(rule)[kind]
    return cases if isinstance(cases, list) else [cases]


def base_values() -> dict[str, Any]:
    values = _with_paths(json.loads(BASE.read_text(encoding="utf-8")))
    assert isinstance(values, dict)
    return values


def subject_of(case: Mapping[str, Any]) -> Run:
    values: dict[str, Any] = {} if case.get("recipe") else base_values()
    for path in case.get("remove", []):
        section, leaf = _section_of(values, path)
        del section[leaf]
    for path, value in case.get("set", {}).items():
        set_value(values, path, _with_paths(value))
    run = Run(
        config=RunConfig(
            values=values,
            is_complete=not case.get("recipe", False),
            builds_packs=case.get("builds_packs", False),
            derived=frozenset(case.get("derived", ())),
            place=case.get("place", "my_run.yaml"),
            no_recipe=tuple(case["no_recipe"]) if "no_recipe" in case else None,
            refusals=(Refusal(**case["refusal"]),) if "refusal" in case else (),
            inputs=tuple((field, path) for field, path in case.get("inputs", {}).items()),
        ),
        versions=Versions(
            versions={name: Version(text) for name, text in {**TARGET.companions, **case.get("versions", {})}.items()},
            origin="a case",
        ),
        world_size_given=case.get("world_size", 8),
        artifact=artifact_facts(case["artifact"]) if "artifact" in case else None,
        environment=Environment(**{"origin": "a case", **case["environment"]}) if "environment" in case else None,
        files=InMemoryFiles(
            files={**CHECKPOINT, **case["files"]},
            modified=case.get("modified", {}),
            read_only=tuple(case.get("read_only", [])),
        )
        if "files" in case
        else None,
        slow_facts=SlowFacts(
            installed_fields=lambda: (
                InstalledFields(case["installed_fields"]) if "installed_fields" in case else NOT_ASKED
            ),
            base_model=lambda: (
                BaseModel(name="some/model", settings=case["base_model"]) if "base_model" in case else UNKNOWN_MODEL
            ),
            balance_refusal=lambda: case.get("balance_refused"),
            asks_for_losses=lambda: case.get("asks_for_losses", False),
            evaluated_sets=lambda: EvaluatedSets(**case["evaluated_sets"]) if "evaluated_sets" in case else NO_PACKS,
            other_settings=lambda: tuple(case.get("other_settings", ())),
            waiting=lambda: _waiting(**case["waiting"]) if "waiting" in case else NO_PACKS,
        ),
    )

    def tokenizers() -> TokenizerPair | str:
        if "tokenizers" in case:
            return _pair(**case["tokenizers"])
        return tokenizers_of(run, None, run.artifact, looks_at_files=False)

    return replace(run, slow_facts=replace(run.slow_facts, tokenizers=tokenizers))


def _pair(of_run: Mapping[str, Any], of_model: Mapping[str, Any], **others: Any) -> TokenizerPair:
    facts = {"vocab_size": None, "is_of_weights": True, "is_named_alike": False, **others}
    return TokenizerPair(of_run=_tokenizer(**of_run), of_model=_tokenizer(**of_model), **facts)


def _tokenizer(**facts: Any) -> TokenizerFacts:
    for name in ("tokens", "more_tokens"):
        facts[name] = {int(index): token for index, token in facts.get(name, {}).items()}
    facts["tokens"] |= facts["more_tokens"]
    facts |= {name: frozenset(ids) for name, ids in facts.items() if name.endswith("_ids") and name != "num_ids"}
    return TokenizerFacts(**{"name": "some/tokenizer", "num_ids": max(facts["tokens"], default=-1) + 1 or None} | facts)


def _waiting(built: Mapping[str, Any] | None, run: Mapping[str, Any], **ratios: float) -> Waiting:
    of_run = replace(RUN, data_parallel_size=8, global_batch_size=32)
    kinds = ("as_built", "shuffled", "within_batch", "across_batches")
    found = {kind: StepRatios(mean=ratio, p95=ratio, worst=ratio) for kind in kinds for ratio in [ratios[kind]]}
    return Waiting(
        run=replace(of_run, **run),
        built=None if built is None else replace(of_run, **built),
        num_steps=100,
        share_of_run=ratios.get("share_of_run", 1.0),
        **found,
    )


def set_value(values: dict[str, Any], path: str, value: Any) -> None:
    section, leaf = _section_of(values, path)
    section[leaf] = copy.deepcopy(value)


def _section_of(values: dict[str, Any], path: str) -> tuple[dict[str, Any], str]:
    """Return the section of a dotted path and the last name in it; sections that are missing or None are made."""
    *sections, leaf = path.split(".")
    for section in sections:
        if not isinstance(values.get(section), dict):
            values[section] = {}
        values = values[section]
    return values, leaf


def _with_paths(value: Any) -> Any:
    if isinstance(value, dict):
        if set(value) == {"_path_"}:
            return PurePosixPath(value["_path_"])
        return {key: _with_paths(item) for key, item in value.items()}
    return [_with_paths(item) for item in value] if isinstance(value, list) else value


@dataclass(frozen=True, kw_only=True)
class InMemoryFiles:
    files: Mapping[str, Any]
    modified: Mapping[str, float] = field(default_factory=dict)
    read_only: tuple[str, ...] = ()

    def exists(self, path: str) -> bool:
        return path in self.files or self.is_folder(path)

    def is_folder(self, path: str) -> bool:
        return self.files.get(path) == "folder" or any(name.startswith(f"{path.rstrip('/')}/") for name in self.files)

    def names(self, folder: str) -> tuple[str, ...]:
        inside = [name for name in self.files if name.startswith(f"{folder.rstrip('/')}/")]
        return tuple(sorted({name[len(folder.rstrip("/")) + 1 :].split("/")[0] for name in inside}))

    def matches(self, pattern: str) -> tuple[str, ...]:
        depth = pattern.count("/")
        return tuple(
            sorted(name for name in self.files if fnmatch.fnmatchcase(name, pattern) and name.count("/") == depth)
        )

    def num_bytes(self, path: str) -> int | None:
        lines = self.files.get(path)
        return None if lines in (None, "folder") else 100 * int(lines)

    def num_lines(self, path: str, *, at_most: int) -> int | None:
        lines = self.files.get(path)
        return None if lines in (None, "folder") else min(int(lines), at_most)

    def modified_s(self, path: str) -> float | None:
        return self.modified.get(path, 0.0) if self.exists(path) else None

    def is_writable(self, path: str) -> bool:
        return not any(f"{path.rstrip('/')}/".startswith(f"{folder.rstrip('/')}/") for folder in self.read_only)
