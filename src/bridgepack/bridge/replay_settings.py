"""Replay settings of a recipe, or of a run's settings under the host's paths."""

import math
from collections.abc import Mapping
from typing import Any

from packaging.version import Version

from bridgepack.bridge.wiring import Packs, host_settings
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from bridgepack.host import HostRelease, release_of
from bridgepack.host.names import in_canonical_names
from bridgepack.records import TRAIN, RunConfig
from bridgepack.records.messages import say, setting
from bridgepack.records.results import leaves
from bridgepack.replay.settings import EvaluationSchedule, ReplaySettings, Topology, require_positive

#: Section of a missing setting -> the class whose default the host takes.
_CLASSES = {"dataset": "GPTSFTDatasetConfig", "validation": "ValidationConfig", "rng": "RNGConfig"}


def replay_settings(
    source: SFTRecipe | RunConfig,
    *,
    num_packs: Mapping[str, int],
    world_size: int | None,
    version: str,
    split: str = TRAIN,
    resume_step: int = 0,
) -> ReplaySettings:
    """Return the settings that decide the order of a split's packs.

    Args:
        source: a recipe, wired as by `to_bridge`; or the settings of a run.
        num_packs: split -> number of packs, for every split.
        world_size: processes of the run (default: from `source`).
        version: version of Megatron-Bridge.
        split: `training` or `validation`.
        resume_step: steps done by the loaded checkpoint; 0 for a new run.

    Raises:
        ConfigError: a setting is missing, or the host does not run with it.
    """
    values = _Values(source, num_packs, version)
    if num_packs.get(split, 0) < 1:
        raise ConfigError(f"split is {split!r}; allowed: {', '.join(num_packs) or 'none, as there are no packs'}.")
    is_training = split == TRAIN
    context = values.integer("model.context_parallel_size", 1)
    global_batch, micro_batch = values.integer("train.global_batch_size"), values.integer("train.micro_batch_size")
    if not is_training:
        context = values.integer("dist.eval_context_parallel_size", context)
        global_batch = values.integer("validation.eval_global_batch_size", global_batch)
        micro_batch = values.integer("validation.eval_micro_batch_size", micro_batch)
    max_samples = _max_samples(values, "dataset.max_train_samples" if is_training else None)
    if is_training:
        split_values = _training_values(values, max_samples or num_packs[split]) | {"resume_step": resume_step}
    else:
        split_values = _evaluation_values(values, num_packs.get(TRAIN, 0), release_of(version), resume_step)
    return ReplaySettings(
        version=Version(version).base_version,  # a pre-release counts as its release: 0.6.2rc1 -> 0.6.2
        num_packs=num_packs[split],
        topology=_topology(values, _world_size(source, world_size), context),
        loader=_loader(values),
        micro_batch_size=micro_batch,
        global_batch_size=global_batch,
        seed=_seed(values, max_samples),
        data_sharding=values.flag("dataset.data_sharding", default=True),
        max_samples=max_samples,
        **split_values,
    )


def evaluation_schedule(
    source: SFTRecipe | RunConfig, *, num_packs: Mapping[str, int], version: str
) -> EvaluationSchedule:
    """Return when a run evaluates, and on which batches; arguments as for `replay_settings`.

    Raises:
        ConfigError: a setting is missing or has the wrong type.
    """
    return _schedule(_Values(source, num_packs, version), num_packs.get(TRAIN, 0))


def stated_world_size(source: SFTRecipe | RunConfig) -> int | None:
    """Return the number of processes of a run, or None if it is not set."""
    return source.world_size if isinstance(source, RunConfig) else source.parallelism.num_gpus


class _Values:
    """Typed reads by the host's path; missing or null settings have the default."""

    def __init__(self, source: SFTRecipe | RunConfig, num_packs: Mapping[str, int], version: str) -> None:
        self._defaults = release_of(version).facts.defaults
        self._place = source.place if isinstance(source, RunConfig) else source.name
        if isinstance(source, RunConfig):
            self.flat = dict(leaves(in_canonical_names(source.values, release_of(version))[0]))
            return
        if source.packing.mode != "offline":
            raise ConfigError(
                f"packing.mode is {source.packing.mode}; allowed: offline. Only packs on disk have an order that "
                "can be replayed.",
                field="packing.mode",
            )
        packs = Packs(folder=source.artifact or "", num_packs=num_packs)
        self.flat = {setting.path: setting.value for setting in host_settings(source, packs=packs)}

    def value(self, path: str, default: Any = None, *, kinds: tuple[type, ...] = (), allowed_values: str = "") -> Any:
        value = self.flat.get(path)
        if value is not None and kinds and type(value) not in kinds:
            message = say(
                "{path} is {value!r}; allowed: {allowed}.", path=setting(path), value=value, allowed=allowed_values
            )
            raise ConfigError(message)
        return default if value is None else value

    def host_default(self, path: str) -> Any:
        """Return the host's default of a setting."""
        section, _, name = path.partition(".")
        return self._defaults[_CLASSES[section]][name]

    def integer(self, path: str, default: int | None = None) -> int:
        value = self.integer_or_none(path, default)
        if value is None:
            template = "{path} is not set in {place}; the order of packs depends on it. Set it."
            raise ConfigError(say(template, path=setting(path), place=self._place))
        return value

    def integer_or_none(self, path: str, default: int | None = None) -> int | None:
        number: int | None = self.value(path, default, kinds=(int,), allowed_values="a whole number")
        return number

    def flag(self, path: str, *, default: bool) -> bool:
        return bool(self.value(path, default, kinds=(bool,), allowed_values="true or false"))

    def evaluation(self, name: str) -> int | None:
        """Return a setting of `validation`; as in the host, `train`, its place before 0.4, takes precedence."""
        old = self.integer_or_none(f"train.{name}")
        return self.integer_or_none(f"validation.{name}") if old is None else old


def _loader(values: _Values) -> Any:
    path = "dataset.dataloader_type"
    return values.value(path, values.host_default(path))


def _topology(values: _Values, world_size: int, context: int) -> Topology:
    uses_decentralized_groups = values.flag("dist.use_decentralized_pg", default=False)
    return Topology(
        world_size=world_size,
        tensor_model_parallel_size=values.integer("model.tensor_model_parallel_size", 1),
        pipeline_model_parallel_size=values.integer("model.pipeline_model_parallel_size", 1),
        context_parallel_size=context,
        pipeline_before_data=values.flag("dist.use_tp_pp_dp_mapping", default=False) and not uses_decentralized_groups,
    )


def _training_values(values: _Values, num_samples: int) -> dict[str, Any]:
    epochs, loader = values.value("train.num_epochs"), _loader(values)
    if epochs is not None and loader != "batch":
        raise ConfigError(
            say(
                "{train.num_epochs} is {epochs} with {dataset.dataloader_type} {loader}; allowed: batch, as only its "
                "loader counts epochs, and training does not start. Set one of them.",
                epochs=epochs,
                loader=loader,
            )
        )
    drops_last = epochs is None and values.flag("dataset.drop_last", default=values.host_default("dataset.drop_last"))
    return {"drop_last": drops_last, "num_steps": _num_steps(values, num_samples)}


def _evaluation_values(values: _Values, num_packs: int, release: HostRelease, resume_step: int) -> dict[str, Any]:
    keeps_last = _loader(values) == "batch" and release.keeps_last_evaluation_batch
    num_batches = _schedule(values, num_packs).batches_until(resume_step)
    return {"is_evaluation": True, "drop_last": not keeps_last, "resume_step": num_batches}


def _schedule(values: _Values, num_packs: int) -> EvaluationSchedule:
    eval_iters = values.evaluation("eval_iters")
    return EvaluationSchedule(
        eval_interval=values.evaluation("eval_interval") or None,
        eval_iters=values.host_default("validation.eval_iters") if eval_iters is None else eval_iters,
        start_eval_at_iter=values.integer_or_none("validation.start_eval_at_iter"),
        num_steps=_num_steps(values, _max_samples(values, "dataset.max_train_samples") or num_packs),
        skips_training=values.flag("train.skip_train", default=values.flag("validation.skip_train", default=False)),
    )


def _world_size(source: SFTRecipe | RunConfig, world_size: int | None) -> int:
    num_gpus = stated_world_size(source) if world_size is None else world_size
    if num_gpus is None:
        raise ConfigError("world_size is not given, and parallelism.num_gpus is not set. Set one of them.")
    return num_gpus


def _max_samples(values: _Values, field: str | None) -> int | None:
    """Return the dataset's maximum number of packs; `dataset_kwargs` takes precedence, and applies to every split.

    Source: megatron-bridge 0.6.2, data/builders/gpt_sft.py (_build_datasets).
    """
    max_num_samples = values.integer_or_none("dataset.dataset_kwargs.max_num_samples")
    return max_num_samples if max_num_samples is not None or field is None else values.integer_or_none(field)


def _seed(values: _Values, max_samples: int | None) -> int:
    """Return the seed of the loader: the dataset's, else the run's.

    Source: megatron-bridge 0.6.2, data/loaders.py (sampler_seed).
    """
    seed = values.host_default("dataset.seed")
    if values.flat.get("dataset.seed", seed) is None:
        if max_samples is not None:
            raise ConfigError(
                say("{dataset.seed} is null with a limit of packs, so each rank draws different ones. Set a seed.")
            )
        return values.integer("rng.seed", values.host_default("rng.seed"))
    return values.integer("dataset.seed", seed)


def _num_steps(values: _Values, num_samples: int) -> int | None:
    """Return the number of steps of a run, or None if it is unknown.

    Source: megatron-bridge 0.6.2, training/config.py (TrainingConfig.finalize, _resolve_num_epochs).
    """
    epochs: float | None = values.value("train.num_epochs", kinds=(int, float), allowed_values="a number")
    samples = values.integer_or_none("train.train_samples")
    size = values.integer("train.global_batch_size")
    require_positive("train.global_batch_size", size)
    if epochs is not None:
        num_steps = epochs * math.ceil(num_samples / size)
        if not math.isfinite(num_steps):
            raise ConfigError(
                say("{train.num_epochs} is {epochs}; allowed: finite numbers. Set it to 1.", epochs=epochs)
            )
        return math.ceil(num_steps)
    if samples is not None:
        return samples // size
    return values.integer_or_none("train.train_iters")
