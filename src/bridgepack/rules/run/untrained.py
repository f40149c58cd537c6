"""Rules on settings with which a run trains nothing, or stops before its first step."""

from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ERROR, WARNING, Found, rule, set_to, wrong
from bridgepack.rules.judging.subject import Run

_RATE, _OPTIMIZER, _LOADER = "optimizer.lr", "optimizer.optimizer", "dataset.dataloader_type"
_SKIPS = ("train.skip_train", "validation.skip_train")
#: Optimizers of megatron-core, and of emerging-optimizers, which it takes by their names there.
_CORE_OPTIMIZERS = ("adam", "sgd")
_EMERGING_OPTIMIZERS = frozenset(
    {"adaptive_muon", "dist_muon", "lion", "muon", "normalized_optimizer", "scion", "soap", "spectral_clip", "splus"}
)


@rule("BP642", ERROR)
def learning_rate_not_above_zero(run: Run) -> Found:
    """The learning rate is zero or negative.

    Why: Silent: every step runs, checkpoints are saved, and no weight changes, or each moves away from the minimum.
    Bad: optimizer.lr 0. Good: optimizer.lr 1e-5. Fix: Set {optimizer.lr} above 0, or remove it for the default.
    Source: core/optimizer_param_scheduler.py (get_lr)
    """
    rate = run.number_or_none(_RATE) if run.is_stated(_RATE) else None
    if rate is not None and rate <= 0:
        yield wrong(_RATE, f"{rate:g}", "above 0", fix=say("Set {optimizer.lr} above 0."))


@rule("BP627", ERROR)
def training_is_skipped(run: Run) -> Found:
    """The run is told to skip training.

    Why: Silent: the job evaluates, if it has validation data, and ends without a step.
    Bad: validation.skip_train true. Good: validation.skip_train false. Fix: Set {validation.skip_train} to false.
    Source: bridge/training/pretrain.py:148; bridge/training/config.py:464
    """
    for path in filter(run.is_on, _SKIPS):
        yield wrong(path, "true", "false", fix=set_to(path, "false"))


@rule("BP630", ERROR, noticed="first step")
def external_loader_of_a_dataset(run: Run) -> Found:
    """The loader is external, but the dataset is one that the host makes.

    Why: Crash at the first step: the host asks the dataset itself for the next batch, "object is not an iterator".
    Bad: dataset.dataloader_type external. Good: dataset.dataloader_type batch.
    Fix: Set {dataset.dataloader_type} to batch. Source: bridge/data/loaders.py:462-467; bridge/data/samplers.py
    """
    if run.is_text and run.text_or_none(_LOADER) == "external":
        yield wrong(_LOADER, "external", "batch, cyclic or single")


@rule("BP639", WARNING, noticed="setup")
def optimizer_unknown(run: Run) -> Found:
    """Neither megatron-core nor the package emerging-optimizers is known to have an optimizer of this name.

    Why: Crash at setup: "Unsupported emerging optimizer", or an import error if the package is missing.
    Bad: optimizer.optimizer adamw. Good: optimizer.optimizer adam. Fix: Use adam, whose weight decay is that of AdamW.
    Source: core/optimizer/__init__.py:767,1038; core/optimizer/emerging_optimizers.py:495-501
    """
    name = run.text_or_none(_OPTIMIZER) if run.is_stated(_OPTIMIZER) else None
    if name is not None and name not in (*_CORE_OPTIMIZERS, *_EMERGING_OPTIMIZERS):
        yield wrong(_OPTIMIZER, name, f"{', '.join(_CORE_OPTIMIZERS)}, or a name of emerging-optimizers")


@rule("BP641", ERROR, noticed="setup")
def seed_not_above_zero(run: Run) -> Found:
    """The seed of the run is zero or negative, or that of the data is negative.

    Why: Crash at setup: "Seed (0) should be a positive integer", or in NumPy, which takes none below 0.
    Bad: rng.seed 0. Good: rng.seed 1234. Fix: Use a seed above 0.
    Source: bridge/training/initialize.py:852; bridge/data/loaders.py:311-318
    """
    for path, least in (("rng.seed", 1), ("dataset.seed", 0)):
        seed = run.stated_integer(path)
        if seed is not None and seed < least:
            yield wrong(path, str(seed), f"at least {least}")
