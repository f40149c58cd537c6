"""Rules on a dataset's Hugging Face source and preprocessing that repeat the host's own checks."""

import string
from collections.abc import Mapping

from bridgepack.rules.judging.rule import ERROR, VALIDATE, Found, rule, wrong
from bridgepack.rules.judging.subject import IS_TEXT, TEXT_DATASETS, Run

#: Named source of the host -> its splits.
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
#: Dataset config -> setting of a source -> the switch that must be on for the host to read it, or None.
_SOURCES: Mapping[str, Mapping[str, str | None]] = {
    **{kind: {"hf_dataset": None, "hf_validation_dataset": None, "hf_test_dataset": None} for kind in TEXT_DATASETS},
    _DIRECT: {"source": None, "validation_source": "do_validation", "test_source": "do_test"},
}
_HF_ONLY = ("hf_validation_dataset", "hf_test_dataset", "hf_output_root", "hf_validation_proportion")
_CHAT_LOSS_MODES = ("assistant", "last_turn", "full")
_COMPLETION_LOSS_MODES = ("completion", "full")


@rule("BP033", ERROR, "PSB017; bridge/data/builders/gpt_sft.py:142", when=IS_TEXT, noticed=VALIDATE)
def hugging_face_splits_contradict(run: Run) -> Found:
    """Settings of Hugging Face splits contradict each other or the data source.

    Bad: dataset_root set and hf_validation_proportion 0.1. Good: hf_dataset set and hf_validation_proportion 0.1.
    Fix: Keep only the settings of the source that is used, give validation one source, and turn off the splits that the
        source does not have.
    """
    settings = {name: run.value(f"dataset.{name}") for name in _HF_ONLY}
    fields = [name for name, value in settings.items() if value is not None]
    fields += ["hf_rewrite"] if run.is_on("dataset.hf_rewrite") else []
    reads_packs = run.config.builds_packs and not run.is_stated("dataset.dataset_root")  # then it is their folder
    if reads_packs or run.value("dataset.dataset_root") is not None:
        for name in fields:
            yield wrong(f"dataset.{name}", "set with dataset_root", "hf_dataset instead")
        return
    if settings["hf_output_root"] is not None and not str(settings["hf_output_root"]).strip():
        yield wrong("dataset.hf_output_root", repr(settings["hf_output_root"]), "a folder, or null")
    yield from _contradictions(run, settings)


def _contradictions(run: Run, settings: Mapping[str, object]) -> Found:
    proportion = run.number_or_none("dataset.hf_validation_proportion")
    validation, test = settings["hf_validation_dataset"], settings["hf_test_dataset"]
    where = "dataset.hf_validation_proportion"
    if proportion is not None and not 0.0 < proportion < 1.0:
        yield wrong(where, f"{proportion:g}", "between 0 and 1, both excluded")
    if proportion is not None and validation is not None:
        yield wrong(where, "set with hf_validation_dataset", "one of them")
    validates, tests = run.flag("dataset.do_validation"), run.flag("dataset.do_test")
    if not validates and (validation is not None or proportion is not None):
        yield wrong("dataset.do_validation", "false with a validation source", "true")
    if not tests and test is not None:
        yield wrong("dataset.do_test", "false with hf_test_dataset", "true")
    if validates and validation is None and proportion is None and not _has_split(run, "validation"):
        yield wrong("dataset.do_validation", "true", "false: the source has no validation split")
    if tests and test is None and not _has_split(run, "test"):
        yield wrong("dataset.do_test", "true", "false: the source has no test split")


def _has_split(run: Run, split: str) -> bool:
    source = run.mapping("dataset.hf_dataset")
    splits = _PRESET_SPLITS.get(str(source.get("dataset_name")))
    return splits is None or split in splits


@rule("BP040", ERROR, "PSB017; bridge/data/sources/hf.py:65", noticed=VALIDATE)
def hugging_face_source_refused(run: Run) -> Found:
    """The Hugging Face source has no dataset, two datasets, or an unknown preset.

    Bad: hf_dataset.dataset_name alpaca. Good: hf_dataset.path_or_dataset tatsu-lab/alpaca.
    Fix: Set either dataset_name to a preset of the host, or path_or_dataset to the id of any dataset.
    """
    for field, switch in _SOURCES.get(run.dataset_kind, {}).items():
        if run.is_set(f"dataset.{field}") and (switch is None or run.flag(f"dataset.{switch}")):
            yield from _source_problems(run, f"dataset.{field}")


def _source_problems(run: Run, where: str) -> Found:
    source = run.mapping(where)
    name, path = source.get("dataset_name"), source.get("path_or_dataset")
    if (name is None) == (path is None):
        actual = "neither dataset_name nor path_or_dataset" if name is None else "dataset_name and path_or_dataset"
        yield wrong(where, actual, "exactly one of them")
    elif name is not None and (not isinstance(name, str) or name not in _PRESET_SPLITS):
        yield wrong(f"{where}.dataset_name", repr(name), ", ".join(_PRESET_SPLITS))
    elif name is not None and (source.get("subset") is not None or source.get("schema_adapter") is not None):
        yield wrong(where, "a preset with subset or schema_adapter", "the preset alone")
    elif isinstance(name, str) and not _has_preset_split(name, source.get("split")):
        allowed_values = ", ".join(sorted(_PRESET_SPLITS[name]))
        yield wrong(f"{where}.split", repr(source.get("split")), allowed_values)
    elif path is not None and not str(path).strip():
        yield wrong(f"{where}.path_or_dataset", repr(path), "the name of a dataset")
    elif path is not None and source.get("split") is not None and not str(source.get("split")).strip():
        yield wrong(f"{where}.split", repr(source.get("split")), "null, or the name of a split")


def _has_preset_split(name: str, split: object) -> bool:
    """Return whether a named source has every split of an expression such as `train[:90%]+validation`."""
    parts = () if split is None else str(split).split("+")
    return all(part.partition("[")[0] in _PRESET_SPLITS[name] for part in parts)


@rule("BP037", ERROR, "PSB519; bridge/data/sft_processing.py:57,96", noticed=VALIDATE)
def preprocessing_refused(run: Run) -> Found:
    """Preprocessing has a loss mode, column or template that the host does not accept.

    Bad: ChatSFTPreprocessingConfig with loss_mode answers. Good: loss_mode assistant.
    Fix: Use one of the allowed values.
    """
    is_required, where = run.dataset_kind == _DIRECT, "dataset.preprocessing"
    if not (is_required or run.is_text) or not run.is_stated(where):
        return
    kind, values = run.class_name(where), run.mapping(where)
    if kind == "ChatSFTPreprocessingConfig":
        yield from _outside(values, "loss_mode", _CHAT_LOSS_MODES)
    elif kind == "PromptCompletionSFTPreprocessingConfig":
        yield from _outside(values, "loss_mode", _COMPLETION_LOSS_MODES)
        yield from _outside(values, "truncation_method", ("left", "right"))
        yield from _column_problems(values)
    elif kind is not None or is_required:
        yield wrong(where, str(kind), "ChatSFTPreprocessingConfig or PromptCompletionSFTPreprocessingConfig")


def _outside(values: Mapping[str, object], field: str, allowed_values: tuple[str, ...]) -> Found:
    if field in values and values[field] not in allowed_values:
        yield wrong(f"dataset.preprocessing.{field}", repr(values[field]), " or ".join(allowed_values))


def _column_problems(values: Mapping[str, object]) -> Found:
    prompt, completion = values.get("prompt_column", "prompt"), values.get("completion_column", "completion")
    for field, column in (("prompt_column", prompt), ("completion_column", completion)):
        if not isinstance(column, str) or not column.strip():
            yield wrong(f"dataset.preprocessing.{field}", repr(column), "the name of a column")
    if prompt == completion:
        yield wrong("dataset.preprocessing.completion_column", repr(completion), "two different columns")
    template = values.get("prompt_template", "{prompt}")
    if not isinstance(template, str) or _placeholders(template) != {"prompt"}:
        where = "dataset.preprocessing.prompt_template"
        yield wrong(where, repr(template), "a string with {prompt} and no other placeholder")


def _placeholders(template: str) -> set[str]:
    try:
        return {name for _, name, _, _ in string.Formatter().parse(template) if name is not None}
    except ValueError:
        return set()
