"""What the releases of Megatron-Bridge call packing, and which form of packs each reads: data, nothing is imported.

Source: the wheels of megatron-bridge 0.3.0 to 0.6.2, each compared with the one before.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Literal

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from bridgepack.errors import ConfigError

BRIDGE, CORE, ENGINE = "megatron-bridge", "megatron-core", "transformer-engine"
#: The target of this package; judged where nothing else is said.
TARGET: Mapping[str, str] = {BRIDGE: "0.6.2", CORE: "0.19.2", ENGINE: "2.17.1"}
PackFormat = Literal["parquet", "npy"]


@dataclass(frozen=True, kw_only=True, slots=True)
class HostRelease:
    """Names and habits of some versions of Megatron-Bridge; paths of settings are those of 0.6.2 unless said."""

    versions: str  #: as a specifier, e.g. `>=0.3,<0.4`.
    core: str = TARGET[CORE]  #: version of megatron-core that its wheels resolve to
    engine: str = TARGET[ENGINE]  #: version of transformer-engine that it was released with
    pack_format: PackFormat = "parquet"  #: form of packs that it reads; `parquet` is a folder, a pattern or a file
    #: dotted name of PackedSequenceSpecs
    specs_class: str = "megatron.bridge.data.datasets.packed_sequence.PackedSequenceSpecs"
    #: dotted name of the dataset's config
    dataset_class: str = "megatron.bridge.training.config.FinetuningDatasetConfig"
    specs_path: str = "dataset.packed_sequence_specs"  #: where the specs are in the config, in this release's path
    #: path -> path in this release; a path stands for all below it
    renamed: Mapping[str, str] = field(default_factory=dict)
    #: path -> what this release does instead; a path stands for all below it
    absent: Mapping[str, str] = field(default_factory=dict)
    #: offsets go to TransformerEngine's context-parallel slicing without the -1 that fill rows up
    trims_offsets: bool = True
    pads_both_offsets: bool = False  #: `pad_cu_seqlens` gives logical offsets the same length as the physical ones
    ramps_up_batches: bool = False  #: `train.rampup_batch_size` counts
    #: it refuses fewer training packs than a global batch, whichever the loader. Source: data/loaders.py
    #: (build_train_valid_test_data_loaders).
    checks_supply: bool = True
    has_eval_sizes: bool = True  #: evaluation has batch sizes, a context-parallel size and a first step of its own
    #: its `batch` loader shuffles, and begins each epoch at its start after a resumption. Source: data/samplers.py
    #: (MegatronPretrainingBatchSampler).
    shuffles_batches: bool = False
    has_drop_last: bool = False  #: `dataset.drop_last` counts; without it the last partial batch is dropped

    def __contains__(self, text: str) -> bool:
        """Return whether a version is of this release; 0.6.2rc1 and 0.6.2+abc count as 0.6.2."""
        return SpecifierSet(self.versions).contains(Version(text).base_version, prereleases=True)


_SPECS = "dataset.offline_packing_specs"
_RENAMED_BEFORE_06 = {_SPECS: "dataset.packed_sequence_specs"}
_RENAMED_BEFORE_05 = {**_RENAMED_BEFORE_06, "model.cuda_graph_modules": "model.cuda_graph_scope"}
_EVALUATION = ("eval_iters", "eval_interval")
_ABSENT_BEFORE_06 = {
    "dataset.enable_offline_packing": "packed_sequence_specs alone switches packing on",
    "dataset.preprocessing": "packs that exist are read as they are",
    f"{_SPECS}.max_single_sequence_length": "packs that exist are read as they are",
    "tokenizer.chat_template_path": "packs that exist are read as they are",
    "dataset.enable_in_batch_packing": "other classes have pack_sequences_in_batch",
    "train.num_epochs": "a run counts steps: train.train_iters",
    "env_vars": "the job's own environment counts",
}
_ABSENT_BEFORE_05 = {
    **_ABSENT_BEFORE_06,
    "dist.eval_context_parallel_size": "evaluation runs with model.context_parallel_size",
    "validation.eval_global_batch_size": "evaluation takes train.global_batch_size",
    "validation.eval_micro_batch_size": "evaluation takes train.micro_batch_size",
}

_V04 = HostRelease(
    versions=">=0.4,<0.5",
    core="0.17.1",
    engine="2.14.1",
    renamed=_RENAMED_BEFORE_05,
    absent=_ABSENT_BEFORE_05,
    trims_offsets=False,
    ramps_up_batches=True,
    checks_supply=False,
    has_eval_sizes=False,
)
_V051 = HostRelease(
    versions=">=0.5.1,<0.6", core="0.18.0", engine="2.16.0", renamed=_RENAMED_BEFORE_06, absent=_ABSENT_BEFORE_06
)

RELEASES: tuple[HostRelease, ...] = (
    replace(
        _V04,
        versions=">=0.3,<0.4",
        core="0.16.1",
        engine="2.12.0",
        pack_format="npy",
        renamed={**_RENAMED_BEFORE_05, **{f"validation.{name}": f"train.{name}" for name in _EVALUATION}},
    ),
    _V04,
    replace(_V051, versions=">=0.5,<0.5.1", trims_offsets=False),
    _V051,
    HostRelease(
        versions=">=0.6",
        specs_class="megatron.bridge.data.packing.PackedSequenceSpecs",
        dataset_class="megatron.bridge.data.builders.gpt_sft.GPTSFTDatasetConfig",
        specs_path=_SPECS,
        pads_both_offsets=True,
        shuffles_batches=True,
        has_drop_last=True,
    ),
)


def release_of(bridge_version: str) -> HostRelease:
    """Return the release that a version of Megatron-Bridge belongs to.

    Raises:
        ConfigError: it is no version, or older than 0.3.
    """
    try:
        found = next((release for release in RELEASES if bridge_version in release), None)
    except InvalidVersion:
        raise ConfigError(
            f"--bridge-version is {bridge_version!r}; allowed: a version such as {TARGET[BRIDGE]}."
        ) from None
    if found is None:
        raise ConfigError(
            f"--bridge-version is {bridge_version}; allowed: 0.3 and newer, the first with packed SFT and context "
            "parallelism. Upgrade megatron-bridge."
        )
    return found


def note_of_newer(bridge_version: str) -> str:
    """Return what to say of a version that is newer than all that is known here; empty for others, as for none."""
    with suppress(InvalidVersion):
        if Version(Version(bridge_version).base_version) > Version(TARGET[BRIDGE]):
            newest = f"{TARGET[BRIDGE]}, the newest that this bridgepack knows"
            return f"{bridge_version} is newer than {newest}, and treated like it"
    return ""


def packed_file_name(split: str, packed_sequence_size: int) -> str:
    """Return the name of a split's `.npy` file, as the host calls it: `training_4096.npy`.

    Source: megatron-bridge 0.3.1, data/builders/finetuning_dataset.py (train_path_packed).
    """
    return f"{split}_{packed_sequence_size}.npy"
