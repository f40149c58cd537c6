"""The settings of a ConfigContainer as sections of a recipe."""

import dataclasses
import math
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, get_args

from bridgepack import geometry
from bridgepack.bridge.imports import import_host
from bridgepack.bridge.inherited import has_formats_of
from bridgepack.bridge.live import value_in
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.shipped import named_precision
from bridgepack.bridge.wiring import SPECS
from bridgepack.bridge.wiring.columns import CONVERSATION_COLUMNS, PAIR
from bridgepack.config.recipe.host_paths import ADAPTER, OPTIMIZER, PACK_PATHS, TOPOLOGY, read_fields
from bridgepack.config.recipe.preprocessing import FORM_FIELDS, PromptCompletionPreprocessing
from bridgepack.config.recipe.replaced import filled_template
from bridgepack.config.recipe.training import CudaGraphConfig, PrecisionConfig
from bridgepack.errors import ConfigError
from bridgepack.rules.judging.subject import TEXT_DATASETS

_OFFLINE = "dataset.enable_offline_packing"
_DIRECT = "DirectHFSFTDatasetConfig"
_ADAPTERS = {"LoRA": "lora", "VLMLoRA": "lora", "DoRA": "dora"}
#: The host gives turns to the template as rows have them.
_AS_HOST = dict.fromkeys(FORM_FIELDS, "keep")


def sections_of(config: Any, *, num_gpus: int | None, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the sections that every recipe sets, for `SFTRecipe.from_mapping`.

    Topology, optimiser and adapters are read by the table that `bridge.wiring` writes by. Of the other sections hardly
    a value is one setting as it is: a number of samples becomes one of steps, a size of evaluation may stand in its old
    place, a precision is found by its formats, and a multiple that the topology implies is left out. Each is a function
    here and one there, which a contract test holds against each other.

    Args:
        config: a ConfigContainer; not changed.
        num_gpus: number of GPUs of the run, which a config does not have.
        data: the inputs (default: from the config).

    Raises:
        ConfigError: the config has data or a method that a recipe cannot express.
    """
    kind = type(config.dataset).__name__
    if kind not in TEXT_DATASETS and kind != _DIRECT:
        raise ConfigError(
            f"dataset is a {kind}, which a recipe cannot express; allowed: GPTSFTDatasetConfig and {_DIRECT}. "
            "Use the ConfigContainer as it is."
        )
    return {
        "data": _data_with_layout(config, data),
        "tokenizer": tokenizer_section(config),
        "preprocessing": preprocessing_section(config.dataset),
        "packing": _packing(config),
        "parallelism": _parallelism(config, num_gpus),
        "batch": _batch(config),
        "artifact": _artifact(config),
        "method": _method(config),
        "schedule": _schedule(config),
        "optimizer": read_fields(OPTIMIZER, partial(value_at, config))
        | {"min_lr": min(config.optimizer.min_lr or 0.0, config.optimizer.lr)},
        "precision": {"recipe": _precision(config.mixed_precision)},
        "cuda_graphs": _graphs(config.model),
        "logging": {"log_interval": config.logger.log_interval},
    }


def _packing(config: Any) -> dict[str, Any]:
    if not value_in(config, _OFFLINE):
        mode = "in_batch" if value_in(config, "dataset.enable_in_batch_packing") else "none"
        return {"mode": mode, "packed_sequence_size": value_in(config, "dataset.seq_length")}
    names = ("packed_sequence_size", "max_single_sequence_length", "pad_seq_to_mult", "pad_cu_seqlens")
    size, longest, multiple, pads = (value_in(config, f"{SPECS}.{name}") for name in names)
    smallest_multiple = geometry.pad_seq_to_mult(
        context_parallel_size=config.model.context_parallel_size,
        tensor_model_parallel_size=config.model.tensor_model_parallel_size,
        sequence_parallel=bool(config.model.sequence_parallel),
        eval_context_parallel_size=config.dist.eval_context_parallel_size,
    )
    seed = value_in(config, "dataset.seed")
    section = {"mode": "offline", "packed_sequence_size": size, "pad_cu_seqlens": bool(pads), "seed": seed}
    if longest is not None and longest < size:
        section["max_sequence_length"] = longest
    if multiple is not None and multiple != smallest_multiple and multiple % smallest_multiple == 0:
        section["pad_seq_to_mult"] = multiple
    return section


def _parallelism(config: Any, num_gpus: int | None) -> dict[str, Any]:
    model = config.model
    return read_fields(TOPOLOGY, partial(value_at, config)) | {
        "expert_model_parallel_size": getattr(model, "expert_model_parallel_size", None) or 1,
        "sequence_parallel": bool(model.sequence_parallel) and model.tensor_model_parallel_size > 1,
        "num_gpus": num_gpus,
    }


def _batch(config: Any) -> dict[str, Any]:
    train, validation = config.train, config.validation
    section = {
        "micro_batch_size": train.micro_batch_size,
        "global_batch_size": train.global_batch_size,
        "eval_micro_batch_size": validation.eval_micro_batch_size or train.micro_batch_size,
    }
    if validation.eval_global_batch_size not in (None, train.global_batch_size):
        section["eval_global_batch_size"] = validation.eval_global_batch_size
    return section


def _artifact(config: Any) -> str | None:
    """Return the folder that all packs of a config lie in, under an artifact's names; None if there is none."""
    paths = {name: value_in(config, path) for path, name in PACK_PATHS.items()}
    train, _, metadata = paths.values()
    if train is None or metadata is None:
        return None
    folder = Path(train).parent
    lies_there = all(path is None or Path(path) == folder / name for name, path in paths.items())
    return str(folder) if lies_there else None


def _method(config: Any) -> dict[str, Any]:
    peft = config.peft
    if peft is None:
        return {"kind": "full"}
    name = type(peft).__name__
    if name not in _ADAPTERS:
        raise ConfigError(
            f"peft is a {name}, which a recipe cannot express; allowed: LoRA and DoRA. Keep the ConfigContainer."
        )
    values = read_fields(ADAPTER, partial(value_at, config))
    return {"kind": _ADAPTERS[name], **values, "target_modules": list(peft.target_modules)}


def _schedule(config: Any) -> dict[str, Any]:
    train, iters = config.train, None
    if train.num_epochs is None:
        samples = train.train_samples
        iters = train.train_iters if samples is None else max(samples // train.global_batch_size, 1)
    return {
        "num_epochs": train.num_epochs,
        "train_iters": iters,
        "warmup_fraction": _warmup_fraction(config.scheduler, iters),
        "lr_decay_style": config.scheduler.lr_decay_style,
        "eval_interval": _evaluation(config, "eval_interval") or None,
        "eval_iters": _evaluation(config, "eval_iters"),
    }


def _evaluation(config: Any, name: str) -> Any:
    """Return a setting of evaluation; its old place takes precedence."""
    old = getattr(config.train, name, None)
    return getattr(config.validation, name) if old is None else old


def _warmup_fraction(scheduler: Any, iters: int | None) -> float:
    """Return the fraction of the steps that, rounded up, gives the warm-up; 0 without warm-up."""
    if scheduler.lr_warmup_fraction is not None or iters is None:
        return float(scheduler.lr_warmup_fraction or 0.0)
    warmup = scheduler.lr_warmup_iters
    if warmup >= iters:
        return 0.0
    fraction = warmup / iters
    return float(fraction if math.ceil(fraction * iters) == warmup else (warmup - 0.5) / iters)


def _precision(value: Any) -> str:
    """Return the registered mixed precision with the same number formats, or `bf16_mixed` if there is none."""
    names = get_args(PrecisionConfig.model_fields["recipe"].annotation)
    value = named_precision(value) if isinstance(value, str) else value
    matching = (name for name in names if value is not None and has_formats_of(value, named_precision(name)))
    return str(next(matching, PrecisionConfig().recipe))


def _graphs(model: Any) -> dict[str, Any]:
    implementation = getattr(model, "cuda_graph_impl", "none")
    if implementation == "full_iteration":
        return {"implementation": implementation}
    names = [getattr(module, "name", module) for module in getattr(model, "cuda_graph_modules", None) or []]
    module_names = get_args(get_args(CudaGraphConfig.model_fields["modules"].annotation)[0])
    if implementation == "transformer_engine" and names and set(names) <= set(module_names):
        return {"implementation": implementation, "modules": names}
    return {"implementation": "none"}


#: Default columns of the host for prompt and completion.
#: Source: megatron/bridge/data/builders/gpt_sft.py of 0.6.2, _default_gpt_sft_preprocessing.
_LEGACY = {"prompt_column": "input", "completion_column": "output", "prompt_template": "{prompt}"}
_LEGACY_SEPARATOR = " "


def _data_with_layout(config: Any, data: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the inputs with the layout of the rows that the host would read, unless they have their own."""
    section = dict(data) if data is not None else data_section(config)
    by_host = not value_in(config, _OFFLINE)
    layout = _layout_of(config.dataset, preprocessing_section(config.dataset)["kind"], by_host=by_host)
    return section if layout is None or section.get("layout") else {**section, "layout": layout}


def _layout_of(dataset: Any, kind: str, *, by_host: bool) -> Any:
    """Return the layout of a dataset's rows; None for chats that a build reads, which finds it in the data."""
    if kind == "chat":
        layouts = [{"kind": "chat", "messages": [{"from_column": name}]} for name in CONVERSATION_COLUMNS]
        return layouts if by_host else None
    columns = {name: getattr(dataset.preprocessing, name, value) for name, value in _LEGACY.items()}
    template = filled_template(columns["prompt_template"], columns["prompt_column"])
    layout = _pair(template, columns["completion_column"])
    usual = _pair(filled_template(columns["prompt_template"], PAIR[0]), PAIR[1])
    return layout if by_host or layout == usual else [layout, usual]


def _pair(prompt: str, completion: str) -> dict[str, str]:
    return {"kind": "prompt_completion", "prompt": prompt, "completion": f"{{{completion}}}"}


def data_section(config: Any) -> dict[str, Any]:
    """Return the inputs of a config.

    The host converts rows of datasets that it has an adapter for: to build packs from such a dataset, pass `data=`.

    Raises:
        ConfigError: the config has no data.
    """
    dataset = config.dataset
    if getattr(dataset, "dataset_root", None) is not None:
        root = str(dataset.dataset_root)
        section: dict[str, Any] = {"train": f"{root}/training.jsonl"}
        return section | ({"validation": f"{root}/validation.jsonl"} if dataset.do_validation else {})
    is_text = type(dataset).__name__ in TEXT_DATASETS
    source = dataset.hf_dataset if is_text else dataset.source
    if source is None:
        raise ConfigError("dataset names no data. Pass the inputs as data={'train': ...}.")
    by_host = not value_in(config, _OFFLINE)
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
        hf_source = import_host("data.sources.hf").resolve_hf_dataset_source(source)
    except ValueError as error:
        raise ConfigError(f"dataset: {error} Pass the inputs as data={{'train': ...}}.") from error
    options = hf_source.load_kwargs or {}
    files = options.get("data_files")
    if isinstance(files, str) and hf_source.path_or_dataset in ("json", "parquet", "arrow", "csv"):
        return files
    name = source.dataset_name if by_host else None
    section: dict[str, Any] = {"dataset": name or hf_source.path_or_dataset, "split": hf_source.split}
    if isinstance(hf_source.subset, str) and name is None:
        section["name"] = hf_source.subset
    if "revision" in options:
        section["revision"] = options["revision"]
    return section


def tokenizer_section(config: Any) -> dict[str, Any]:
    """Return the tokenizer of a config: its own, else its processor's, else its model's.

    Raises:
        ConfigError: the config has no tokenizer name.
    """
    tokenizer = config.tokenizer
    candidates = (
        tokenizer.tokenizer_model if tokenizer.tokenizer_type == "HuggingFaceTokenizer" else None,
        getattr(config.dataset, "hf_processor_path", None),
        value_in(config, "model.hf_model_id"),
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
        if is_chat:
            return {"kind": "chat", **_AS_HOST}
        return {"kind": "prompt_completion", "separator": _LEGACY_SEPARATOR}
    if type(preprocessing).__name__ == "ChatSFTPreprocessingConfig":
        return {"kind": "chat", "loss_mode": preprocessing.loss_mode, **_AS_HOST}
    values = dataclasses.asdict(preprocessing)
    fields = PromptCompletionPreprocessing.model_fields
    return {"kind": "prompt_completion"} | {name: value for name, value in values.items() if name in fields}
