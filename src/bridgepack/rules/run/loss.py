"""Rules on averaging the loss: over tokens or over micro batches, and in which collective."""

from bridgepack.records.messages import say
from bridgepack.rules.judging.rule import ADVICE, ERROR, VALIDATE, WARNING, Found, fixable_rule, place, rule, wrong
from bridgepack.rules.judging.subject import PACKS_OFFLINE, Run
from bridgepack.rules.run.reading import (
    DIFFUSION_DATASETS,
    FINETUNING_DATASETS,
    PRETRAINING_DATASETS,
    computes_loss_per_token,
    fine_tunes,
    graph_capture,
    per_token_loss,
    splits_context,
)

_PER_TOKEN = "model.calculate_per_token_loss"
_AVERAGE = "ddp.average_in_collective"


def _averages_in_collective(run: Run) -> bool:
    """Return whether gradients are averaged in the collective; Megatron-FSDP always turns that off.

    Source: megatron/bridge/training/config.py:1083.
    """
    is_sharded = run.is_on("dist.use_megatron_fsdp") or run.is_on("ddp.use_megatron_fsdp")
    return run.flag(_AVERAGE) and not (is_sharded and not run.is_on("ddp.disable_symmetric_registration"))


def _is_checked_by_host(run: Run) -> bool:
    """Return whether validate() checks the loss settings: with context parallelism and a fine-tuning dataset."""
    return splits_context(run) and fine_tunes(run)


@fixable_rule("BP011", ERROR, "PSB011; bridge/training/config.py:1452", when=_is_checked_by_host, noticed=VALIDATE)
def per_token_loss_off_with_context_parallelism(run: Run) -> Found:
    """Context parallelism is on in fine-tuning, but the loss is not computed per token.

    Why: Crash at start: validate() refuses it, because a rank with only prompt tokens divides by 0 (NaN).
    Bad: context_parallel_size 2, calculate_per_token_loss false. Good: calculate_per_token_loss true.
    Fix: Set {model.calculate_per_token_loss} true and {ddp.average_in_collective} false.
    Evidence: executed with the real 0.6.2; Megatron-LM #1764, NeMo #14488, Bridge #374.
    """
    if not computes_loss_per_token(run):
        allowed_values = f"true, because context parallelism is {run.context_parallel_size}"
        yield wrong(
            _PER_TOKEN, "false", allowed_values, changes=per_token_loss(run, "a rank may hold no trained token")
        )


@fixable_rule("BP012", ERROR, "PSB012; bridge/training/config.py:1455", when=_is_checked_by_host, noticed=VALIDATE)
def average_in_collective_with_context_parallelism(run: Run) -> Found:
    """Context parallelism is on in fine-tuning, and gradients are averaged in the collective.

    Why: Crash at start: validate() refuses it; ranks hold different numbers of trained tokens.
    Bad: context_parallel_size 2, ddp.average_in_collective true. Good: ddp.average_in_collective false.
    Fix: Set {ddp.average_in_collective} to false. Evidence: executed with the real 0.6.2.
    """
    if _averages_in_collective(run):
        allowed_values = f"false, because context parallelism is {run.context_parallel_size}"
        yield wrong(
            _AVERAGE, "true", allowed_values, to=False, because="ranks hold different numbers of trained tokens"
        )


@fixable_rule("BP013", ERROR, "PSB013; core/distributed/distributed_data_parallel.py:180", noticed="setup")
def average_in_collective_with_per_token_loss(run: Run) -> Found:
    """The loss is computed per token, and gradients are averaged in the collective.

    Why: Crash at setup, after the weights were loaded; validate() refuses it only with context parallelism.
    Bad: calculate_per_token_loss true, average_in_collective true. Good: average_in_collective false.
    Fix: Set {ddp.average_in_collective} to false.
    """
    if computes_loss_per_token(run) and _averages_in_collective(run) and not _is_checked_by_host(run):
        why = "the loss per token forbids averaging in the collective"
        allowed_values = say("false, because {model.calculate_per_token_loss} is true")
        yield wrong(_AVERAGE, "true", allowed_values, to=False, because=why)


@fixable_rule(
    "BP014",
    ADVICE,
    "PSB014; bridge/training/losses.py:102, core/pipeline_parallel/schedules.py",
    when=PACKS_OFFLINE,
)
def loss_averaged_over_packs(run: Run) -> Found:
    """The loss is averaged within each pack before it is averaged over the batch.

    Why: Silent: a pack with ten trained tokens weighs as much as one with four thousand, so curves depend on pack size.
    Bad: enable_offline_packing true, calculate_per_token_loss false. Good: calculate_per_token_loss true.
    Fix: Set {model.calculate_per_token_loss} true and {ddp.average_in_collective} false.
    Evidence: read in the source; Bridge #2952, SkyRL #223. Most recipes of the host average over packs.
    """
    if not run.flag(_PER_TOKEN) and not splits_context(run):
        allowed_values = "true, so that every trained token weighs the same"
        yield wrong(_PER_TOKEN, "false", allowed_values, changes=per_token_loss(run))


@rule("BP032", WARNING, "PSB011, PSB810; bridge/training/config.py:1439", when=splits_context)
def custom_dataset_with_mean_loss_under_context_parallelism(run: Run) -> Found:
    """Context parallelism is on with your own dataset class, but the loss is not computed per token.

    Why: Silent: validate() requires the loss per token only for the host's own fine-tuning datasets; otherwise a rank
        without a trained token gives NaN or a wrong average. BP810 is the same rule for packs.
    Bad: my_package.MyProvider, CP 2, calculate_per_token_loss false. Good: calculate_per_token_loss true.
    Fix: Set {model.calculate_per_token_loss} true and {ddp.average_in_collective} false, unless this is pretraining.
    Evidence: read in the source; Megatron-LM #1764.
    """
    datasets = FINETUNING_DATASETS | PRETRAINING_DATASETS | DIFFUSION_DATASETS
    if not (computes_loss_per_token(run) or run.is_packed) and run.dataset_kind not in datasets:
        actual = f"false, with {run.dataset_kind} and context parallelism {run.context_parallel_size}"
        yield wrong(_PER_TOKEN, actual, "true in fine-tuning")


@fixable_rule("BP617", ADVICE, "PSB617; bridge/training/losses.py:102", when=PACKS_OFFLINE)
def validation_loss_weighs_packs(run: Run) -> Found:
    """The validation loss is averaged over packs, not over tokens.

    Why: Silent: it cannot be compared with the loss of an unpacked run, or of packs of another size.
    Bad: packed validation with calculate_per_token_loss false. Good: calculate_per_token_loss true.
    Fix: Set {model.calculate_per_token_loss} true and {ddp.average_in_collective} false.
    """
    if run.evaluates and not run.flag(_PER_TOKEN):
        allowed_values = "true, if you compare validation losses"
        yield wrong(_PER_TOKEN, "false", allowed_values, changes=per_token_loss(run))


@rule("BP643", ERROR, "core/full_cuda_graph.py; running/losses/packs.py")
def losses_by_source_of_unknown_rows(run: Run) -> Found:
    """losses.by_source or by_row is true, but what a micro batch holds, or the losses of its tokens, cannot be known.

    Why: Silent without this rule: only packs that `build` wrote tell the source of each token, and inside a
        full-iteration CUDA graph no Python code runs.
    Bad: losses.by_source true and data that are packed in the batch. Good: losses.by_source true and packs of `build`.
    Fix: Set losses.by_source to null, which follows losses where it can, and losses.by_row to false; or pack offline
        without such a graph.
    """
    if not run.slow_facts.asks_for_losses():
        return
    where, allowed_values = place("losses"), "by_source null and by_row false, or packs of `build`"
    actual = "by_source or by_row is true, and"
    if not (run.packs_offline and run.is_text):
        yield wrong(where, f"{actual} the run reads no packs of an artifact", allowed_values)
    elif graph_capture(run).is_full_iteration:
        yield wrong(where, f"{actual} a full-iteration CUDA graph computes the steps", allowed_values)


@rule("BP027", ADVICE, "PSB027; docs/bridge-rl-integration.md:190", when=splits_context)
def context_parallelism_without_packing(run: Run) -> Found:
    """Context parallelism is on, but rows are not packed.

    Why: Crash in SkyRL and NeMo-RL, which refuse it. Elsewhere ranks split rows that are mostly padding.
    Bad: context_parallel_size 2, enable_offline_packing false. Good: enable_offline_packing true.
    Fix: Turn packing on. Noticed: assertion in SkyRL or NeMo-RL. Evidence: SkyRL #274; the host's documentation.
    """
    if not run.is_packed and fine_tunes(run):
        actual, allowed_values = f"{run.context_parallel_size}, without packing", "packing, or no context parallelism"
        yield wrong("model.context_parallel_size", actual, allowed_values)
