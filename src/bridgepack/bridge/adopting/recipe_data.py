"""The data settings of a ConfigContainer as sections of a recipe: inputs, tokenizer, preprocessing."""

import dataclasses
from typing import Any

from bridgepack.bridge.shipped import import_host
from bridgepack.config.recipe.preprocessing import PromptCompletionPreprocessing
from bridgepack.errors import ConfigError
from bridgepack.rules.engine.subject import TEXT_DATASETS

#: Default columns of the host for prompt and completion.
#: Source: megatron/bridge/data/builders/gpt_sft.py of 0.6.2, _default_gpt_sft_preprocessing.
_LEGACY = {"prompt_column": "input", "completion_column": "output", "separator": " "}


def data_section(dataset: Any) -> dict[str, Any]:
    """Return the inputs of a dataset config.

    The host converts rows of datasets that it has an adapter for: to build packs from such a dataset, pass `data=`.

    Raises:
        ConfigError: the config has no data.
    """
    if getattr(dataset, "dataset_root", None) is not None:
        root = str(dataset.dataset_root)
        section: dict[str, Any] = {"train": f"{root}/training.jsonl"}
        return section | ({"validation": f"{root}/validation.jsonl"} if dataset.do_validation else {})
    is_text = type(dataset).__name__ in TEXT_DATASETS
    source = dataset.hf_dataset if is_text else dataset.source
    if source is None:
        raise ConfigError("dataset names no data. Pass the inputs as data={'train': ...}.")
    by_host = not getattr(dataset, "enable_offline_packing", False)
    train = _source(source, by_host=by_host)
    if not dataset.do_validation:
        return {"train": train}
    validation = dataset.hf_validation_dataset if is_text else dataset.validation_source
    proportion = dataset.hf_validation_proportion if is_text else None
    if validation is not None or proportion is None:
        validation = source.with_split("validation") if validation is None else validation
        return {"train": train, "validation": _source(validation, by_host=by_host)}
    if not by_host or not isinstance(train, dict):
        return {"train": train, "validation_fraction": proportion}
    percent, split = round(100 * proportion), train["split"].partition("[")[0]
    return {
        "train": train | {"split": f"{split}[{percent}%:]"},
        "validation": train | {"split": f"{split}[:{percent}%]"},
    }


def _source(source: Any, *, by_host: bool) -> dict[str, Any] | str:
    """Return a source; a source that the host reads keeps the host's name."""
    try:
        resolved = import_host("megatron.bridge.data.sources.hf").resolve_hf_dataset_source(source)
    except ValueError as error:
        raise ConfigError(f"dataset: {error} Pass the inputs as data={{'train': ...}}.") from error
    options = resolved.load_kwargs or {}
    files = options.get("data_files")
    if isinstance(files, str) and resolved.path_or_dataset in ("json", "parquet", "arrow", "csv"):
        return files
    name = source.dataset_name if by_host else None
    found: dict[str, Any] = {"dataset": name or resolved.path_or_dataset, "split": resolved.split}
    if isinstance(resolved.subset, str) and name is None:
        found["name"] = resolved.subset
    if "revision" in options:
        found["revision"] = options["revision"]
    return found


def tokenizer_section(config: Any) -> dict[str, Any]:
    """Return the tokenizer of a config: its own, else its processor's, else its model's.

    Raises:
        ConfigError: the config has no tokenizer name.
    """
    tokenizer = config.tokenizer
    candidates = (
        tokenizer.tokenizer_model if tokenizer.tokenizer_type == "HuggingFaceTokenizer" else None,
        getattr(config.dataset, "hf_processor_path", None),
        getattr(config.model, "hf_model_id", None),
    )
    name = next((str(candidate) for candidate in candidates if candidate), None)
    if name is None:
        raise ConfigError(
            f"tokenizer is a {tokenizer.tokenizer_type} without a name; allowed: a HuggingFaceTokenizer. "
            "Set tokenizer.tokenizer_model."
        )
    options = tokenizer.hf_tokenizer_kwargs or {}
    return {
        "name_or_path": name,
        "revision": options.get("revision"),
        "chat_template": tokenizer.chat_template_path,
        "trust_remote_code": bool(options.get("trust_remote_code", False)),
    }


def preprocessing_section(dataset: Any) -> dict[str, Any]:
    """Return the preprocessing of a dataset config, or the host's default if it has none."""
    preprocessing = dataset.preprocessing
    if preprocessing is None:
        kwargs = getattr(dataset, "dataset_kwargs", None) or {}
        is_chat = kwargs.get("chat", dataset.hf_dataset is not None)
        return {"kind": "chat"} if is_chat else {"kind": "prompt_completion", **_LEGACY}
    if type(preprocessing).__name__ == "ChatSFTPreprocessingConfig":
        return {"kind": "chat", "loss_mode": preprocessing.loss_mode}
    values = dataclasses.asdict(preprocessing)
    known = PromptCompletionPreprocessing.model_fields
    return {"kind": "prompt_completion"} | {name: value for name, value in values.items() if name in known}
