"""Settings of the topology, the loss and the data."""

from collections.abc import Iterator
from typing import Any

from bridgepack.bridge.wiring.columns import PAIR, columns_for_host, layouts_for_host
from bridgepack.bridge.wiring.settings import SPECS, Scope, Setting, derived_setting
from bridgepack.config.recipe.host_paths import EXCHANGE, PACK_PATHS, PROMPT_COMPLETION, TOPOLOGY
from bridgepack.config.recipe.preprocessing import ChatPreprocessing, PromptCompletionPreprocessing
from bridgepack.host.roots import canonical_name_of
from bridgepack.records import VALIDATION

#: Columns of rows that the host does not read, because they are packed.
_ANY_COLUMNS = {"prompt_column": PAIR[0], "completion_column": PAIR[1], "prompt_template": "{prompt}"}
#: How the loss counts tokens, whatever the recipe says.
LOSS_SETTINGS = (
    derived_setting(
        "model.calculate_per_token_loss", True, "every trained token has the same weight, on every pack and rank"
    ),
    derived_setting("ddp.average_in_collective", False, "per-token loss sums over ranks and divides once"),
)


def topology_settings(scope: Scope) -> Iterator[Setting]:
    """Yield the parallel sizes and the settings of the loss."""
    yield from scope.settings(TOPOLOGY)
    yield from scope.settings(EXCHANGE, if_set=True)
    if scope.recipe.model is not None and "/" in scope.recipe.model.name:
        yield scope.setting("model.hf_model_id", "model.name")
    yield from LOSS_SETTINGS


def dataset_settings(scope: Scope) -> Iterator[Setting]:
    """Yield the settings of the dataset."""
    size = scope.recipe.packing.packed_sequence_size
    yield scope.setting("model.seq_length", "packing.packed_sequence_size", size)
    yield scope.setting("dataset.seq_length", "packing.packed_sequence_size", size)
    yield derived_setting("dataset.do_validation", scope.has_validation, "data.validation or data.validation_fraction")
    yield derived_setting("dataset.do_test", False, "the host never packs a test split")
    yield from _tokenizer(scope)
    if scope.recipe.packing.mode == "offline":
        yield from _offline(scope)
    else:
        yield from _from_hub(scope)


def _tokenizer(scope: Scope) -> Iterator[Setting]:
    tokenizer = scope.recipe.tokenizer
    yield scope.setting("tokenizer.tokenizer_model", "tokenizer.name_or_path")
    yield derived_setting(
        "tokenizer.tokenizer_type", "HuggingFaceTokenizer", "packs are made with a Hugging Face tokenizer"
    )
    if tokenizer.chat_template is not None:
        yield scope.setting("tokenizer.chat_template_path", "tokenizer.chat_template")
    for name in ("revision", "trust_remote_code"):
        if getattr(tokenizer, name):
            yield scope.setting(f"tokenizer.hf_tokenizer_kwargs.{name}", f"tokenizer.{name}")


def _offline(scope: Scope) -> Iterator[Setting]:
    folder = scope.packs.folder if scope.packs else scope.recipe.artifact
    yield scope.setting("dataset.seed", "packing.seed")
    yield derived_setting("dataset.enable_offline_packing", True, "packing.mode is offline", "packing.mode")
    yield scope.setting(f"{SPECS}.packed_sequence_size", "packing.packed_sequence_size")
    yield _multiple(scope)
    yield scope.setting(f"{SPECS}.max_single_sequence_length", "packing.max_sequence_length")
    yield scope.setting(f"{SPECS}.pad_cu_seqlens", "packing.pad_cu_seqlens")
    if folder is not None and not scope.reads_other_packs(folder):
        for path, name in PACK_PATHS.items():
            is_read = name != VALIDATION or scope.has_validation
            yield derived_setting(path, f"{folder}/{name}" if is_read else None, "the folder of the packs")
        yield derived_setting("dataset.dataset_root", folder, "the host wants one source; nothing in it is read")
    yield derived_setting("dataset.dataset_kwargs.pad_to_max_length", True, "packs of one width, for every kernel")
    yield derived_setting("dataset.dataloader_type", "batch", "the host's loader for packs")
    yield derived_setting(
        "dataset.preprocessing",
        _preprocessing(scope),
        "as the packs were made; the host packs nothing",
        "preprocessing",
    )


def _from_hub(scope: Scope) -> Iterator[Setting]:
    in_batch = scope.recipe.packing.mode == "in_batch"
    yield derived_setting("dataset.enable_in_batch_packing", in_batch, f"packing.mode is {scope.recipe.packing.mode}")
    yield derived_setting("dataset.preprocessing", _preprocessing(scope), "preprocessing", "preprocessing")
    because = "the tokenizer, with what reads images and sound where the model has it"
    yield derived_setting(
        "dataset.hf_processor_path", scope.recipe.tokenizer.name_or_path, because, "tokenizer.name_or_path"
    )
    if scope.recipe.tokenizer.trust_remote_code:
        yield scope.setting("dataset.trust_remote_code", "tokenizer.trust_remote_code")


def _multiple(scope: Scope) -> Setting:
    multiple = scope.recipe.packing.pad_seq_to_mult
    path, field = f"{SPECS}.pad_seq_to_mult", "packing.pad_seq_to_mult"
    if multiple is not None:
        return Setting(path=path, value=multiple, origin="recipe", field=field)
    because = "lcm of 2 x context parallelism and, with sequence parallelism, context x tensor parallelism"
    return derived_setting(path, scope.multiple, because, field)


def _preprocessing(scope: Scope) -> dict[str, Any] | None:
    preprocessing, module = scope.recipe.preprocessing, canonical_name_of("data.sft_processing")
    if isinstance(preprocessing, ChatPreprocessing):
        return {"_target_": f"{module}.ChatSFTPreprocessingConfig", "loss_mode": preprocessing.loss_mode}
    if isinstance(preprocessing, PromptCompletionPreprocessing):
        kind = f"{module}.PromptCompletionSFTPreprocessingConfig"
        columns = columns_for_host(layouts_for_host(scope.recipe)) or _ANY_COLUMNS
        return {"_target_": kind, **columns, **{name: getattr(preprocessing, name) for name in PROMPT_COMPLETION}}
    return None
