"""What a folder says of the model in it: its configs, its tokenizer, its weights; files are read, nothing is loaded."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bridgepack.config.reading import read_sections
from bridgepack.data.tokenizers.files import TokenizerFiles, read_object, tokenizer_files
from bridgepack.errors import ConfigError
from bridgepack.host.checkpoints import HF_CONFIG, checkpoint_kind
from bridgepack.host.positions import Positions
from bridgepack.user_files import read_text, text_if_there

_GENERATION, _ADAPTER, _RUN_CONFIG = "generation_config.json", "adapter_config.json", "run_config.yaml"
#: Key of a `config.json` -> field of the host, of those that mean the same in every family.
#: Source: bridge/models/conversion/model_bridge.py (CONFIG_MAPPING)
_OF_HUGGING_FACE: Mapping[str, str] = {
    "num_hidden_layers": "num_layers",
    "hidden_size": "hidden_size",
    "num_attention_heads": "num_attention_heads",
    "num_key_value_heads": "num_query_groups",
    "rms_norm_eps": "layernorm_epsilon",
    "rope_theta": "rotary_base",
}
#: Scalings of positions that a `config.json` counts in its positions, and the host's model has, too.
_SCALINGS = ("yarn", "llama3")
#: Folders of a checkpoint of Megatron-Bridge with a tokenizer and an export for Hugging Face.
#: Source: megatron-bridge 0.6.2, training/checkpointing.py, `save_tokenizer_assets` and `HF_WEIGHTS_SUBDIR`.
_PARTS_OF_CHECKPOINT = (".", "tokenizer", "hf")


@dataclass(frozen=True, kw_only=True)
class ModelFolder:
    """A model on this machine, as its folder describes it. What a folder lacks, or cannot be read, is empty or None."""

    path: Path
    #: what the host finds there to start from: its own checkpoints, or a model of Hugging Face with weights; None for
    #: a folder without weights, such as one with a config and a tokenizer only, an adapter or GGUF files
    kind: Literal["megatron", "hugging_face"] | None
    config: Mapping[str, Any]  #: `config.json` of Hugging Face
    generation: Mapping[str, Any]  #: `generation_config.json`: with which tokens a server stops
    adapter: Mapping[str, Any]  #: `adapter_config.json`, where the folder has an adapter of PEFT
    run_config: Mapping[str, Any]  #: `run_config.yaml` of the newest checkpoint of Megatron-Bridge
    tokenizer: TokenizerFiles | None  #: the tokenizer beside the weights

    @property
    def language_config(self) -> Mapping[str, Any]:
        """The part of `config.json` on the language model, which models of several modalities have in a section."""
        inner = self.config.get("text_config")
        return inner if isinstance(inner, Mapping) else self.config

    @property
    def vocab_size(self) -> int | None:
        """Rows of the embedding, as the model's config or the checkpoint's says."""
        model = _section(self.run_config, "model")
        sizes = (self.language_config, self.config, model, _section(model, "transformer"))
        return next((size for part in sizes if type(size := part.get("vocab_size")) is int and size > 0), None)

    @property
    def settings(self) -> Mapping[str, Any]:
        """Settings of the host's model that `config.json` gives in every family; empty without its sizes."""
        config = self.language_config
        settings = {ours: config[theirs] for theirs, ours in _OF_HUGGING_FACE.items() if config.get(theirs) is not None}
        return settings if "hidden_size" in settings else {}

    @property
    def positions(self) -> Positions | None:
        """The positions that the model was trained for, as `config.json` says."""
        config = self.language_config
        scaling = _section(config, "rope_scaling") or _section(config, "rope_parameters")
        factor, original = scaling.get("factor"), scaling.get("original_max_position_embeddings")
        is_scaled = scaling.get("rope_type", scaling.get("type")) in _SCALINGS
        if type(num_positions := config.get("max_position_embeddings")) is not int or num_positions < 1:
            return None
        if not is_scaled or not isinstance(factor, (int, float)) or factor < 1:
            return Positions(most=num_positions)
        num_scaled = int(original * factor) if type(original) is int else 0
        return Positions(most=max(num_positions, num_scaled), factor=float(factor))

    def token_ids(self, name: str) -> frozenset[int]:
        """Return the ids of the model's `eos`, `pad` or `bos`, of all its configs; a config may list several."""
        configs = (self.generation, self.config, self.language_config)
        values = [config.get(f"{name}_token_id") for config in configs]
        ids = [index for value in values for index in (value if isinstance(value, list) else [value])]
        return frozenset(index for index in ids if type(index) is int)

    @property
    def base(self) -> str | None:
        """The folder or id of the model that an adapter was trained on; None if the folder has no adapter."""
        if _section(self.run_config, "peft"):
            return _text(_section(self.run_config, "checkpoint").get("pretrained_checkpoint"))
        return _text(self.adapter.get("base_model_name_or_path"))

    @property
    def hub_id(self) -> str | None:
        """The id on the hub that a checkpoint of Megatron-Bridge was imported from."""
        return _text(_section(self.run_config, "model").get("hf_model_id"))

    @property
    def tokenizer_name(self) -> str | None:
        """The tokenizer that a checkpoint of Megatron-Bridge was trained with: an id on the hub, or a folder."""
        return _text(_section(self.run_config, "tokenizer").get("tokenizer_model"))


def read_model_folder(path: Path) -> ModelFolder:
    """Return what a folder says of the model in it.

    The folder is one of Hugging Face (config, weights, tokenizer), checkpoints of Megatron-Bridge, of which the newest
    counts, one of their iterations, or an adapter. Files that are missing or cannot be read say nothing.
    """
    places = [*dict.fromkeys(_places(path))]
    return ModelFolder(
        path=path,
        kind=checkpoint_kind(_names(path)),
        config=_first_object(places, HF_CONFIG),
        generation=_first_object(places, _GENERATION),
        adapter=_first_object(places, _ADAPTER),
        run_config=next(filter(None, (_sections(place / _RUN_CONFIG) for place in places)), {}),
        tokenizer=next(filter(None, map(tokenizer_files, places)), None),
    )


def _places(path: Path) -> Iterator[Path]:
    """Yield the folders with the files of a model, the surest first."""
    newest = _newest_iteration(path)
    for folder in (path,) if newest is None else (newest, path):
        yield from (folder / part for part in _PARTS_OF_CHECKPOINT if (folder / part).is_dir())


def _newest_iteration(path: Path) -> Path | None:
    """Return the checkpoint that the host loads from a folder of checkpoints, or None."""
    with suppress(OSError, ValueError):
        text = read_text(path / "latest_checkpointed_iteration.txt").strip()
        folder = path / ("release" if text == "release" else f"iter_{int(text):07d}")
        if folder.is_dir():
            return folder
    iterations = [name for name in _names(path) if name.startswith("iter_") and name[len("iter_") :].isdecimal()]
    return path / max(iterations, key=lambda name: int(name[len("iter_") :])) if iterations else None


def _names(path: Path) -> tuple[str, ...]:
    with suppress(OSError):
        return tuple(sorted(entry.name for entry in path.iterdir()))
    return ()


def _first_object(places: list[Path], name: str) -> Mapping[str, Any]:
    return next(filter(None, (read_object(place / name) for place in places)), {})


def _sections(path: Path) -> Mapping[str, Any]:
    with suppress(ConfigError):
        return read_sections(path) if text_if_there(path) is not None else {}
    return {}


def _section(values: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    inner = values.get(name)
    return inner if isinstance(inner, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value.strip() else None
