"""Rules on batch sizes and the GPUs that share them."""

from bridgepack.records.messages import join, setting
from bridgepack.rules.judging.rule import (
    ADVICE,
    ERROR,
    EXECUTED,
    VALIDATE,
    WARNING,
    Found,
    fixable_rule,
    place,
    rule,
    wrong,
)
from bridgepack.rules.judging.subject import SPECS, Run
from bridgepack.rules.run.reading import fine_tunes, nearest_multiples

#: Minimum share of a run's compute time, 0-1, that balancing must save to be advised.
_WORTH_BALANCING = 0.03
#: Name in a balance record -> the run's setting.
_BALANCED_FOR = {
    "loader": "dataset.dataloader_type",
    "loader_seed": "dataset.seed",
    "data_sharding": "dataset.data_sharding",
    "data_parallel_size": "data_parallel_size",
    "global_batch_size": "train.global_batch_size",
}
_EVAL_CONTEXT = "dist.eval_context_parallel_size"
_EVAL_SIZES = ("validation.eval_micro_batch_size", "validation.eval_global_batch_size")
_MODEL_SIZES = ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
_PARALLEL_SIZES = (*(f"model.{kind}_parallel_size" for kind in _MODEL_SIZES), _EVAL_CONTEXT)


def _does_not_divide(run: Run) -> bool:
    """Return whether global_batch_size is not a multiple of micro_batch_size x data-parallel ranks.

    Source: megatron/bridge/data/samplers.py:261, megatron/core/num_microbatches_calculator.py:381.
    """
    share = run.micro_batch_size * run.data_parallel_size
    if share <= 0 or run.global_batch_size <= 0 or run.global_batch_size % share == 0:
        return False
    is_rounded_down = run.is_on("train.decrease_batch_size_if_needed") and run.global_batch_size > share
    return not is_rounded_down or run.value("dataset.dataloader_type") == "batch"


def _require_multiple(path: str, batch: int, size: int, copies: int) -> Found:
    share = size * copies
    allowed_values = f"a multiple of {share} (micro batch {size} x {copies} data-parallel ranks), e.g. "
    yield wrong(path, str(batch), f"{allowed_values}{nearest_multiples(batch, share)}")


@rule("BP602", ERROR, "PSB602; bridge/data/samplers.py:261, core/num_microbatches_calculator.py:381", noticed="setup")
def global_batch_not_divisible(run: Run) -> Found:
    """global_batch_size is not a multiple of micro_batch_size x data-parallel ranks.

    Why: Crash at setup: the microbatch calculator, or the sampler, refuses it.
    Bad: global_batch_size 12, micro_batch_size 1, 8 GPUs without model parallelism. Good: global_batch_size 16.
    Fix: Make {train.global_batch_size} a multiple of {train.micro_batch_size} x GPUs / (tensor x pipeline x context
        parallelism).
    """
    run.require_plain_gpus()
    if _does_not_divide(run):
        size, copies = run.micro_batch_size, run.data_parallel_size
        yield from _require_multiple("train.global_batch_size", run.global_batch_size, size, copies)


@rule("BP603", ERROR, "PSB603; bridge/training/config.py:1335", noticed=VALIDATE, evidence=EXECUTED)
def evaluation_batch_not_divisible(run: Run) -> Found:
    """eval_global_batch_size is not a multiple of eval_micro_batch_size x data-parallel ranks of evaluation.

    Why: Crash at start: validate() refuses it, with or without validation data. Unset evaluation sizes are those of
        training; the context parallelism of evaluation may differ.
    Bad: eval_global_batch_size 12 on 8 GPUs without model parallelism. Good: eval_global_batch_size 16.
    Fix: Make {validation.eval_global_batch_size} a multiple of {validation.eval_micro_batch_size} x data-parallel ranks
        of evaluation.
    """
    run.require_plain_gpus()
    copies, batch = run.data_parallel_size_with(_evaluation_context(run)), run.eval_global_batch_size
    share = run.eval_micro_batch_size * copies
    if share > 0 and batch > 0 and batch % share:
        yield from _require_multiple(_EVAL_SIZES[1], batch, run.eval_micro_batch_size, copies)


def _evaluation_context(run: Run) -> int:
    """Return the context parallel size of evaluation: that of training unless it has its own."""
    eval_context = run.stated_integer(_EVAL_CONTEXT)
    return eval_context if eval_context is not None and eval_context > 0 else run.context_parallel_size


@rule("BP619", ERROR, "PSB602, PSC303, PSB603; bridge/training/config.py:1024,1328", noticed=VALIDATE)
def gpus_not_a_multiple_of_model_parallelism(run: Run) -> Found:
    """The number of GPUs is not a multiple of tensor x pipeline x context parallelism.

    Why: Crash at start: validate() refuses it, for the sizes of training and, if they differ, for those of
        evaluation. Bad: 8 GPUs with tensor parallelism 2 and context parallelism 3. Good: context parallelism 2.
    Fix: Change the number of GPUs or one of the three sizes. Evidence: executed with the real 0.6.2.
    """
    run.require_plain_gpus()
    contexts = {"model.context_parallel_size": run.context_parallel_size, _EVAL_CONTEXT: _evaluation_context(run)}
    for path, context in contexts.items():
        if run.data_parallel_size_with(context) == 0:
            size = run.model_parallel_size_with(context)
            allowed_values = f"a multiple of {size} GPUs, e.g. {nearest_multiples(run.world_size, size)}"
            place = path if path == _EVAL_CONTEXT else _size_in_the_way(run)
            yield wrong(place, f"{run.world_size} GPUs with {size} per copy of the model", allowed_values)
            return


def _size_in_the_way(run: Run) -> str:
    """Return the path of the size that does not divide the GPUs, or of the largest if their product alone does not."""
    names = ("tensor_model_parallel_size", "pipeline_model_parallel_size", "context_parallel_size")
    sizes = {f"model.{name}": int(getattr(run, name)) for name in names}
    return max(sizes, key=lambda path: (run.world_size % sizes[path] > 0, sizes[path]))


@rule("BP628", ERROR, "PSB602, PSB603; bridge/training/config.py:1335", noticed="setup, mostly validate() already")
def batch_size_not_positive(run: Run) -> Found:
    """A batch size is missing, zero or negative.

    Why: Crash at start or setup: validate() divides by it, and the microbatch calculator needs at least one.
    Bad: train.global_batch_size null. Good: train.global_batch_size 64.
    Fix: Set {train.micro_batch_size} and {train.global_batch_size}; the evaluation sizes may stay unset.
    """
    for path in ("train.micro_batch_size", "train.global_batch_size", *_EVAL_SIZES):
        size = run.stated_integer(path) if path in _EVAL_SIZES else run.integer_or_none(path)
        if size is None and path in _EVAL_SIZES:
            continue
        if size is None or size <= 0:
            yield wrong(path, str(size), "a positive number")


@fixable_rule("BP629", ERROR, "PSB602; bridge/training/config.py:1020, core/parallel_state.py")
def parallel_size_not_positive(run: Run) -> Found:
    """A parallel size is zero or negative.

    Why: Crash at start: the number of GPUs is divided by it.
    Bad: model.context_parallel_size 0. Good: model.context_parallel_size 1.
    Fix: Set it to 1 to turn that kind of parallelism off. Noticed: setup, mostly validate() already.
    """
    for path in _PARALLEL_SIZES:
        size = run.stated_integer(path)
        if size is not None and size < 1:
            yield wrong(path, str(size), "1 or more", to=1, because="1 turns that kind of parallelism off")


@rule("BP028", ADVICE, "PSB028; core/pipeline_parallel/schedules.py", when=fine_tunes)
def fewer_micro_batches_than_pipeline_stages(run: Run) -> Found:
    """A step has fewer micro batches than the pipeline has stages.

    Why: Slow: stages wait for each other; with one micro batch only one stage works at a time. Packing makes this
        more likely, because a batch has fewer packs.
    Bad: PP 4, 4 copies of the model, micro_batch_size 1, global_batch_size 8. Good: global_batch_size 32.
    Fix: Raise {train.global_batch_size}, or lower pipeline parallelism. Evidence: SkyRL #223; inferred from the
        schedule.
    """
    stages = run.pipeline_model_parallel_size
    if stages == 1:
        return
    run.require_plain_gpus()
    share = run.micro_batch_size * run.data_parallel_size
    if share > 0 and 0 < run.global_batch_size < share * stages:
        actual = f"{run.global_batch_size // share} micro batches for {stages} stages"
        yield wrong("train.global_batch_size", actual, f"{share * stages} or more packs")


@fixable_rule("BP615", WARNING, "PSB615; bridge/data/loaders.py:272", noticed="dataset build")
def last_batch_kept_with_custom_dataset(run: Run) -> Found:
    """The last incomplete batch is kept, but this dataset cannot pad it.

    Why: Crash at dataset build unless the batch divides the packs: only GPTSFTDatasetConfig can pad the last batch.
    Bad: dataloader_type batch and drop_last false with DirectHFSFTDatasetConfig. Good: drop_last true.
    Fix: Set {dataset.drop_last} to true.
    """
    if run.is_text or run.value("dataset.dataloader_type") != "batch":
        return
    if run.value("dataset.drop_last") is False and run.value("train.num_epochs") is None:
        yield wrong("dataset.drop_last", f"false with {run.dataset_kind}", "true", to=True)


@rule("BP634", WARNING, "bridge/data/samplers.py", noticed="never", evidence=EXECUTED)
def packs_balanced_for_another_run(run: Run) -> Found:
    """The packs were balanced for a number of ranks, batch, loader or seed that differs from the run's.

    Why: Slow: the loader gives ranks packs that are not balanced among them, so they wait for the slowest rank.
    Bad: packs balanced for 8 data-parallel ranks, 16 in the run. Good: packs balanced for 16.
    Fix: Run `bridgepack repack` with the recipe's new settings; it does not tokenise again.
    """
    waiting = run.slow_facts.require_waiting()
    built_for = waiting.built
    differences = {} if built_for is None else built_for.differences(waiting.run)
    if built_for is not None and differences:
        at_build = ", ".join(f"{name} {value}" for name, (value, _) in differences.items())
        now = ", ".join(f"{name} {value}" for name, (_, value) in differences.items())
        best = waiting.across_batches if built_for.kind == "across_batches" else waiting.within_batch
        yield wrong(
            join(setting(_BALANCED_FOR[name]) if "." in _BALANCED_FOR[name] else name for name in differences),
            f"{now}, packs balanced for {at_build}: steps take {waiting.as_built.mean:.3f} times an even step",
            f"{best.mean:.3f} times, with packs balanced for this run",
        )


@rule("BP637", ERROR, "bridge/data/samplers.py", noticed="never", evidence=EXECUTED)
def balance_that_build_refuses(run: Run) -> Found:
    """packing.balance cannot be applied to the recipe's run, so `bridgepack build` refuses it.

    Why: Crash before anything is built: the run has one rank or one pack per rank, or the cost of a token is unknown.
    Bad: packing.balance.kind within_batch with 1 GPU. Good: with 8 GPUs and 32 packs per step.
    Fix: Set packing.balance.kind to none, or change the setting that the finding names.
    """
    refusal = run.slow_facts.balance_refusal()
    if refusal is not None:
        yield wrong(place("packing.balance.kind"), refusal, "none, or a run that can be balanced")


@rule("BP636", ADVICE, "bridge/training/utils/flop_utils.py, data/samplers.py")
def balance_would_gain(run: Run) -> Found:
    """Ranks wait for the slowest rank of each step; balancing the order of the packs saves more than 3%.

    Why: Slow: attention costs the square of a sequence's length, so packs of the same size differ in cost, and each
        step takes as long as its slowest rank. Balancing holds for the first epoch only, because the loader shuffles
        every epoch differently. The estimate counts FLOPs.
    Bad: steps take 1.18 times an even step, 1.01 when balanced. Good: 1.02 times.
    Fix: Set packing.balance.kind and run `bridgepack repack`; for several epochs, set `epochs` of the sources and one
        epoch of the run. Evidence: read in the source; the effect is inferred.
    """
    waiting = run.slow_facts.require_waiting()
    if waiting.built is None and waiting.gain > _WORTH_BALANCING:
        yield wrong(
            f"{SPECS}.packed_train_data_path",
            f"steps take {waiting.as_built.mean:.3f} times an even step (p95 {waiting.as_built.p95:.3f}, worst "
            f"{waiting.as_built.worst:.3f})",
            f"{waiting.within_batch.mean:.3f} times with packing.balance.kind within_batch, "
            f"{waiting.across_batches.mean:.3f} with across_batches",
        )
    holds = waiting.built is not None and not waiting.built.differences(waiting.run)
    if holds and waiting.gain_of_one_pass > _WORTH_BALANCING:
        yield wrong(
            "train.num_epochs" if run.is_set("train.num_epochs") else "train.train_iters",
            f"{waiting.share_of_run:.0%} of the steps are the first epoch, which is balanced; later steps take "
            f"{waiting.shuffled.mean:.3f} times an even step",
            f"{waiting.as_built.mean:.3f} times in all, with one epoch of the run and `epochs` set on the sources",
        )
