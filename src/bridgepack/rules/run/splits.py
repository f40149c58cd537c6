"""Rules on a dataset's Hugging Face source and on its preprocessing, as far as the host's own checks go."""

from __future__ import annotations

import string
from collections.abc import Iterator, Mapping

from bridgepack.rules.rule import ERROR, Violation
from bridgepack.rules.run.reading import is_on, is_set, is_text
from bridgepack.rules.run_rule import rule
from bridgepack.rules.run_subject import TEXT_DATASETS, RunSubject

#: Named sources of the host and the splits that they have.
#: Source: megatron/bridge/data/sources/hf.py:141.
_PRESET_SPLITS: Mapping[str, frozenset[str]] = {
    "cord_v2": frozenset({"train", "validation", "test"}),
    "cv17": frozenset({"train", "validation", "test", "validated"}),
    "gsm8k": frozenset({"train", "test"}),
    "llava_video_178k": frozenset({"train", "open_ended"}),
    "medpix": frozenset({"train", "validation"}),
    "openmathinstruct2": frozenset({"train", "train_1M", "train_2M", "train_5M"}),
    "openmathinstruct2_thinking": frozenset({"train", "train_1M", "train_2M", "train_5M"}),
    "raven": frozenset({"train"}),
    "rdr": frozenset({"train"}),
    "squad": frozenset({"train", "validation"}),
    "tulu3": frozenset({"train"}),
}
_DIRECT = "DirectHFSFTDatasetConfig"
#: Dataset config -> where its sources are, and the switch without which the host does not look at one.
_SOURCES: Mapping[str, Mapping[str, str | None]] = {
    **{kind: {"hf_dataset": None, "hf_validation_dataset": None, "hf_test_dataset": None} for kind in TEXT_DATASETS},
    _DIRECT: {"source": None, "validation_source": "do_validation", "test_source": "do_test"},
}
_HF_ONLY = ("hf_validation_dataset", "hf_test_dataset", "hf_output_root", "hf_validation_proportion")
_CHAT_LOSS_MODES = ("assistant", "last_turn", "full")
_COMPLETION_LOSS_MODES = ("completion", "full")


@rule("BP033", ERROR, "PSB017; megatron/bridge/data/builders/gpt_sft.py:142", noticed="validate()")
def hugging_face_splits_contradict(subject: RunSubject) -> Iterator[Violation]:
    """Settings of Hugging Face splits contradict each other or the source.

    Why: Crash at start: validate() refuses it.
    Bad: dataset_root set and hf_validation_proportion 0.1.
    Good: hf_dataset set and hf_validation_proportion 0.1.
    Fix: Keep the settings of the source in use; give validation one source; turn off splits that the source lacks.
    """
    if not is_text(subject):
        return
    stated = {name: subject.settings.value(f"dataset.{name}") for name in _HF_ONLY}
    named = [name for name, value in stated.items() if value is not None]
    named += ["hf_rewrite"] if is_on(subject, "dataset.hf_rewrite") else []
    if subject.settings.value("dataset.dataset_root") is not None:
        for name in named:
            yield Violation(where=f"dataset.{name}", found="set with dataset_root", allowed="hf_dataset instead")
        return
    if stated["hf_output_root"] is not None and not str(stated["hf_output_root"]).strip():
        yield Violation(
            where="dataset.hf_output_root", found=repr(stated["hf_output_root"]), allowed="a folder, or null"
        )
    yield from _contradictions(subject, stated)


def _contradictions(subject: RunSubject, stated: Mapping[str, object]) -> Iterator[Violation]:
    proportion = subject.settings.number_or_none("dataset.hf_validation_proportion")
    validation, test = stated["hf_validation_dataset"], stated["hf_test_dataset"]
    where = "dataset.hf_validation_proportion"
    if proportion is not None and not 0.0 < proportion < 1.0:
        yield Violation(where=where, found=f"{proportion:g}", allowed="between 0 and 1, both excluded")
    if proportion is not None and validation is not None:
        yield Violation(where=where, found="set with hf_validation_dataset", allowed="one of them")
    validates, tests = subject.settings.flag("dataset.do_validation"), subject.settings.flag("dataset.do_test")
    if not validates and (validation is not None or proportion is not None):
        yield Violation(where="dataset.do_validation", found="false with a validation source", allowed="true")
    if not tests and test is not None:
        yield Violation(where="dataset.do_test", found="false with hf_test_dataset", allowed="true")
    if validates and validation is None and proportion is None and not _has_split(subject, "validation"):
        yield Violation(
            where="dataset.do_validation", found="true", allowed="false: the source has no validation split"
        )
    if tests and test is None and not _has_split(subject, "test"):
        yield Violation(where="dataset.do_test", found="true", allowed="false: the source has no test split")


def _has_split(subject: RunSubject, split: str) -> bool:
    source = subject.settings.mapping("dataset.hf_dataset")
    splits = _PRESET_SPLITS.get(str(source.get("dataset_name")))
    return splits is None or split in splits


@rule("BP040", ERROR, "PSB017; megatron/bridge/data/sources/hf.py:65", noticed="validate()")
def hugging_face_source_refused(subject: RunSubject) -> Iterator[Violation]:
    """The Hugging Face source names no data, two, or a preset that the host does not have.

    Why: Crash at start: validate() refuses it.
    Bad: hf_dataset.dataset_name alpaca.
    Good: hf_dataset.path_or_dataset tatsu-lab/alpaca.
    Fix: Set dataset_name to a preset of the host, or path_or_dataset to any data set; not both.
    """
    for field, switch in _SOURCES.get(subject.dataset_kind, {}).items():
        if is_set(subject, f"dataset.{field}") and (switch is None or subject.settings.flag(f"dataset.{switch}")):
            yield from _source_problems(subject, f"dataset.{field}")


def _source_problems(subject: RunSubject, where: str) -> Iterator[Violation]:
    source = subject.settings.mapping(where)
    name, path = source.get("dataset_name"), source.get("path_or_dataset")
    if (name is None) == (path is None):
        found = "neither dataset_name nor path_or_dataset" if name is None else "dataset_name and path_or_dataset"
        yield Violation(where=where, found=found, allowed="exactly one of them")
    elif name is not None and (not isinstance(name, str) or name not in _PRESET_SPLITS):
        yield Violation(where=f"{where}.dataset_name", found=repr(name), allowed=", ".join(_PRESET_SPLITS))
    elif name is not None and (source.get("subset") is not None or source.get("schema_adapter") is not None):
        yield Violation(where=where, found="a preset with subset or schema_adapter", allowed="the preset alone")
    elif isinstance(name, str) and not _has_preset_split(name, source.get("split")):
        allowed = ", ".join(sorted(_PRESET_SPLITS[name]))
        yield Violation(where=f"{where}.split", found=repr(source.get("split")), allowed=allowed)
    elif path is not None and not str(path).strip():
        yield Violation(where=f"{where}.path_or_dataset", found=repr(path), allowed="the name of a data set")
    elif path is not None and source.get("split") is not None and not str(source.get("split")).strip():
        yield Violation(where=f"{where}.split", found=repr(source.get("split")), allowed="null, or the name of a split")


def _has_preset_split(name: str, split: object) -> bool:
    """Say whether a named source has every split of an expression such as `train[:90%]+validation`."""
    parts = () if split is None else str(split).split("+")
    return all(part.partition("[")[0] in _PRESET_SPLITS[name] for part in parts)


@rule("BP037", ERROR, "PSB519; megatron/bridge/data/sft_processing.py:57,96", noticed="validate()")
def preprocessing_refused(subject: RunSubject) -> Iterator[Violation]:
    """Preprocessing has a loss mode, a column or a template that the host does not take.

    Why: Crash at start: validate() refuses it.
    Bad: preprocessing ChatSFTPreprocessingConfig with loss_mode answers.
    Good: preprocessing ChatSFTPreprocessingConfig with loss_mode assistant.
    Fix: Use one of the allowed values.
    """
    where = "dataset.preprocessing"
    is_required = subject.dataset_kind == _DIRECT
    if not (is_required or is_text(subject)) or not subject.settings.is_stated(where):
        return
    kind = subject.settings.class_name(where)
    values = subject.settings.mapping(where)
    if kind == "ChatSFTPreprocessingConfig":
        yield from _outside(values, "loss_mode", _CHAT_LOSS_MODES)
    elif kind == "PromptCompletionSFTPreprocessingConfig":
        yield from _outside(values, "loss_mode", _COMPLETION_LOSS_MODES)
        yield from _outside(values, "truncation_method", ("left", "right"))
        yield from _column_problems(values)
    elif kind is not None or is_required:
        allowed = "ChatSFTPreprocessingConfig or PromptCompletionSFTPreprocessingConfig"
        yield Violation(where=where, found=str(kind), allowed=allowed)


def _outside(values: Mapping[str, object], field: str, allowed: tuple[str, ...]) -> Iterator[Violation]:
    if field in values and values[field] not in allowed:
        yield Violation(where=f"dataset.preprocessing.{field}", found=repr(values[field]), allowed=" or ".join(allowed))


def _column_problems(values: Mapping[str, object]) -> Iterator[Violation]:
    prompt, completion = values.get("prompt_column", "prompt"), values.get("completion_column", "completion")
    for field, column in (("prompt_column", prompt), ("completion_column", completion)):
        if not isinstance(column, str) or not column.strip():
            yield Violation(where=f"dataset.preprocessing.{field}", found=repr(column), allowed="the name of a column")
    if prompt == completion:
        allowed = "two different columns"
        yield Violation(where="dataset.preprocessing.completion_column", found=repr(completion), allowed=allowed)
    template = values.get("prompt_template", "{prompt}")
    if not isinstance(template, str) or _placeholders(template) != {"prompt"}:
        where = "dataset.preprocessing.prompt_template"
        yield Violation(where=where, found=repr(template), allowed="a text with {prompt} and no other placeholder")


def _placeholders(template: str) -> set[str]:
    try:
        return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        return set()
