"""Rules on a run while it trains: the guard judges every step from the facts of all ranks."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import ClassVar

from bridgepack.records.guarded import DataOrder, RankFacts, ResumeFacts, StepFacts
from bridgepack.rules.judging.rule import ERROR, Decorator, Found, Rule, wrong


class StepRule(Rule):
    """A rule on one training step, over all ranks."""

    judges: ClassVar[str] = "a step, while it trains"


class ResumeRule(Rule):
    """A rule on a run that resumes from a checkpoint."""

    judges: ClassVar[str] = "a resumed run, as it starts"


step_rule = Decorator[Callable[[StepFacts], Found], StepRule](StepRule)
resume_rule = Decorator[Callable[[ResumeFacts], Found], ResumeRule](ResumeRule)


@step_rule("BP890", ERROR, noticed="never")
def stage_trained_without_boundaries(step: StepFacts) -> Found:
    """A pipeline stage or a tensor rank computed a micro batch of packs without their boundaries.

    Why: Silent: its layers attend across all sequences of a pack as if they were one sequence; the loss still falls.
    Bad: in a pipeline of 3 stages the layers of stage 1 get packed_seq_params None.
    Good: every layer of every stage gets cu_seqlens in every micro batch.
    Fix: Read the finding: if the loader gave boundaries, the forward step or the model lost them (BP802
        names settings that do); if it gave none, the dataset or its collate lost them.
    Evidence: executed with a pipeline of 3 stages whose middle one loses them; the issues above.
    Source: Megatron-LM issue 4092, pull requests 4103 and 4150; Megatron-Bridge issue 2952, pull request 3926
    """
    if not step.is_packed:
        return
    for facts in step.ranks:
        if facts.num_without:
            details = facts.details
            parts = f" ({', '.join(details.without)})" if details.without else ""
            loader = f"; the loader gave {details.from_loader}" if details.from_loader else ""
            actual = f"{facts.num_without} of {facts.num_calls} forward passes without boundaries{parts}{loader}"
            allowed_values = "boundaries in every forward pass of packs"
            yield wrong(step.describe(facts), actual, allowed_values, group=f"stage {facts.place.pipeline}")


@step_rule("BP891", ERROR, noticed="never, or a crash in a kernel", evidence="executed with 2 tensor ranks")
def boundaries_differ_between_ranks(step: StepFacts) -> Found:
    """Ranks that compute the same pack have different sequence boundaries for it.

    Why: Silent: parts of a layer, or layers of the model, see different sequences in the same tokens.
    Bad: with 2 tensor ranks one has cu_seqlens [0, 5, 8] and the other [0, 8]. Good: both have [0, 5, 8].
    Fix: Make every rank of a replica read the same batch: no rank-dependent randomness, filter or cache in the
        dataset, one version of the code and of the files on all machines.
    Source: Megatron-LM issue 4092; bridge/training/gpt_step.py:320-396
    """
    for ranks in step.replicas().values():
        ranks_with_boundaries = [facts for facts in ranks if facts.boundaries]
        digests = Counter(facts.boundaries for facts in ranks_with_boundaries)
        if len(digests) < 2:
            continue
        largest_count = max(digests.values())
        usual = next(facts for facts in ranks_with_boundaries if digests[facts.boundaries] == largest_count)
        for facts in ranks_with_boundaries:
            if facts.boundaries != usual.boundaries:
                boundaries_text, usual_text = _first_difference(facts.details.boundaries, usual.details.boundaries)
                actual = boundaries_text or "different boundaries"
                allowed_values = f"those of {step.sizes.describe(usual.place)}{f': {usual_text}' if usual_text else ''}"
                yield wrong(step.describe(facts), actual, allowed_values, group=f"replica {facts.place.data}")


@step_rule("BP892", ERROR, "bridge/data/packing/gpt_sft.py:151-331; bridge/data/samplers.py", noticed="never")
def boundaries_not_those_of_the_plan(step: StepFacts) -> Found:
    """All ranks of a replica have the same boundaries, but not those of the packs planned for this step.

    Why: Silent: sequences are cut or joined, or other packs are read, so the proof of the data does not hold.
    Bad: pack 7 has 5 sequences; the step has one sequence of 4096 tokens.
    Good: the step has the boundaries of the packs that the replay names for it.
    Fix: Compare the finding with `bridgepack inspect ARTIFACT --pack N`. If the number of packs, seed or order
        differs, look for settings that differ from the recipe. If the packs are right and the boundaries wrong, the
        dataset or its collate is not Megatron-Bridge's own.
    Evidence: executed with boundaries cut on all ranks of a replica.
    """
    for ranks in step.replicas().values():
        for facts in ranks:
            if facts.planned_boundaries and facts.boundaries and facts.boundaries != facts.planned_boundaries:
                details = facts.details
                boundaries_text, planned_text = _first_difference(
                    details.boundaries, details.planned_boundaries, details.packs
                )
                actual = boundaries_text or "other boundaries"
                allowed_values = planned_text or "those of the packs planned for this step"
                yield wrong(step.describe(facts), actual, allowed_values, group=f"replica {facts.place.data}")


@step_rule("BP893", ERROR, "bridge/data/packing/gpt_sft.py:151-331; bridge/training/losses.py:60-115", noticed="never")
def trained_tokens_not_those_of_the_plan(step: StepFacts) -> Found:
    """The tokens that a replica trained do not match the loss masks of its packs.

    Why: Silent: prompts or padding are trained, or answers are not, and the loss counts the wrong tokens.
    Bad: the masks of a step's packs have 1203 ones; its loss counted 1207 tokens.
    Good: its loss counted these 1203 tokens, with the packs' labels.
    Fix: If the number differs, look for code that changes the mask. If only the labels differ, look for a mask or
        labels shifted by one. `bridgepack inspect ARTIFACT --pack N` shows the trained tokens of each pack.
    Evidence: executed with a mask shifted by one token.
    """
    for ranks in step.replicas().values():
        planner = next((facts for facts in ranks if facts.planned_tokens >= 0), None)
        if planner is None:
            continue
        for tensor, group in sorted(_losses_by_tensor_rank(ranks).items()):
            tokens = sum(facts.trained_tokens for facts in group)
            labels = [facts.trained_labels for facts in group]
            has_other_labels = planner.planned_labels >= 0 <= min(labels) and sum(labels) != planner.planned_labels
            if tokens == planner.planned_tokens and not has_other_labels:
                continue
            actual = f"{tokens} trained tokens{' with other labels' if tokens == planner.planned_tokens else ''}"
            yield wrong(
                step.describe(group[0]),
                f"{actual}{_per_micro_batch(group, planner)}",
                f"{planner.planned_tokens} trained tokens, with the labels of the packs",
                group=f"replica {planner.place.data} tensor {tensor}",
            )


@step_rule("BP894", ERROR, "bridge/training/losses.py:60-115; core/rerun_state_machine.py:464-540")
def loss_not_finite(step: StepFacts) -> Found:
    """The loss of a micro batch is not a finite number.

    Why: Silent or crash: weights become NaN. If the host checks, only the last stage stops, and the others wait until
        they time out.
    Bad: the loss of micro batch 3 is nan on the last stage. Good: every loss is a finite number.
    Fix: Look at the packs that the finding names with `bridgepack inspect ARTIFACT --pack N`; lower optimizer.lr or
        lengthen the warm-up; look for a kernel that fails on sequences of that length.
    Noticed: first step after it, if rerun_state_machine.check_for_nan_in_loss is on.
    Evidence: executed with a loss of NaN.
    """
    for facts in step.ranks:
        if facts.num_not_finite:
            losses, packs = facts.details.losses, facts.details.packs
            bad = [index for index, loss in enumerate(losses) if loss in {"nan", "inf", "-inf"}]
            texts = [f"micro batch {index}: {losses[index]}{_pack_note(packs, index)}" for index in bad[:3]]
            actual = f"{facts.num_not_finite} losses that are not finite{': ' if texts else ''}{'; '.join(texts)}"
            yield wrong(step.describe(facts), actual, "finite losses", group="loss")


@step_rule("BP897", ERROR, "bridge/peft/recompute.py:40-120; core/pipeline_parallel/schedules.py:570", noticed="never")
def trained_weights_without_gradient(step: StepFacts) -> Found:
    """Weights that the run should train get no gradient: all of them, or those of a module in each of the first steps.

    Why: Silent: the gradient norm is 0, or a part of the adapters stays as it began; the run saves them and ends well.
    Bad: LoRA in linear_fc1 and linear_fc2 alone, with recompute_modules [mlp]: nothing before them is trained, so
        autograd skips the recomputed modules. Good: LoRA in linear_qkv, too, or nothing recomputed.
    Fix: Train a module before the recomputed ones (linear_qkv), do not recompute the modules that are trained, or take
        the modules that no loss depends on out of the trained ones.
    Evidence: executed with finetune(): gradient norm 0 in every step; Megatron-Bridge issues 1750, 5586, 5918.
    """
    if step.num_trained == 0:
        yield wrong(f"step {step.step}", "0 trained weights", "at least 1: name modules of the model to train")
    losses = [facts.trained_tokens for facts in step.ranks if facts.trained_tokens >= 0]
    stages = _by_stage(step.ranks)
    total = sum(ranks[0].num_modules for ranks in stages.values())
    if not total or (losses and not any(losses)):
        return
    still = {stage: _without_gradient(ranks) for stage, ranks in stages.items()}
    if sum(map(len, still.values())) == total:
        names = [name for ranks in stages.values() for _, name in ranks[0].details.still]
        actual = f"no gradient in any of the {total} modules with trained weights{_names_text(names, total)}"
        yield wrong(f"step {step.step}", actual, "a gradient that is not 0", group="all")
    elif step.settles_gradients:
        for stage, positions in still.items():
            if positions:
                facts = stages[stage][0]
                names = [name for position, name in facts.details.still if position in positions]
                actual = f"{len(positions)} of {facts.num_modules} modules had no gradient in any step so far"
                allowed_values = "a gradient in every module with trained weights"
                yield wrong(
                    step.describe(facts),
                    f"{actual}{_names_text(names, len(positions))}",
                    allowed_values,
                    group=f"stage {stage}",
                )


@resume_rule("BP895", ERROR, "bridge/data/samplers.py; design: resumed runs", noticed="never")
def resumed_with_another_artifact(resume: ResumeFacts) -> Found:
    """A run resumes from a checkpoint with an artifact that differs from the one it began with.

    Why: Silent: the loader skips as many packs as the checkpoint counted, but in another list: some data is never seen
        and some is seen twice. Bad: 500 steps with artifact 3f2a..., then a resumed job with artifact 91bc...
    Good: the resumed job reads artifact 3f2a... again.
    Fix: Use the artifact that the run began with. To continue with other data, start a new run: set another
        checkpoint.folder, and checkpoint.pretrained to the last checkpoint.
    Evidence: executed with a resumed run on CPU.
    """
    before, now = resume.before, resume.now
    if before.fingerprint and before.fingerprint != now.fingerprint:
        actual = f"artifact {now.artifact} with fingerprint {now.fingerprint[:12] or 'unknown'}"
        allowed_values = f"artifact {before.artifact} with fingerprint {before.fingerprint[:12]}, as before"
        yield wrong(resume.checkpoint, actual, allowed_values)


@resume_rule("BP896", ERROR, "bridge/data/samplers.py; design: resumed runs", noticed="never")
def resumed_in_another_order(resume: ResumeFacts) -> Found:
    """A run resumes from a checkpoint with settings that change the order of the same packs.

    Why: Silent: the loader shuffles differently and skips as many packs as the checkpoint counted: some data is never
        seen and some is seen twice in an epoch.
    Bad: 500 steps with packing.seed 1234, then a resumed job with packing.seed 7; or with dataloader_type cyclic on 1
        GPU, then on 2.
    Good: the resumed job has the loader, the seed and the global batch size of the first job.
    Fix: Restore the settings that differ. To continue with other settings, start a new run: set another
        checkpoint.folder, and checkpoint.pretrained to the last checkpoint.
    Evidence: executed with the samplers of the host; what a loader does not read is not compared.
    """
    before, now = resume.before, resume.now
    if before.fingerprint != now.fingerprint:
        return
    for name in dict.fromkeys([*_order_settings(before), *_order_settings(now)]):
        old, new = getattr(before, name), getattr(now, name)
        if None not in (old, new) and old != new:
            yield wrong(resume.checkpoint, f"{name} {new}", f"{name} {old}, as before", group=name)


def _order_settings(order: DataOrder) -> Iterator[str]:
    """Yield the fields that decide which packs a run reads at a step.

    Source: bridgepack/replay/samplers.py, which is compared with the host's samplers.
    """
    yield from ("loader", "global_batch_size", "num_packs", "is_limited")
    loader = order.loader or "batch"
    if loader == "batch" or order.is_limited:
        yield "seed"
    if loader == "batch" and (order.num_packs or 0) % (order.global_batch_size or 1):
        yield "drop_last"
    if loader == "cyclic":
        yield from ("micro_batch_size", "data_parallel_size")
        if order.data_parallel_size != 1:
            yield "data_sharding"


def _by_stage(ranks: Sequence[RankFacts]) -> dict[int, list[RankFacts]]:
    stages = defaultdict(list)
    for facts in ranks:
        stages[facts.place.pipeline].append(facts)
    return stages


def _without_gradient(ranks: Sequence[RankFacts]) -> set[int]:
    """Return the modules of a stage that have a gradient on none of its ranks, by position."""
    with_gradient = 0
    for facts in ranks:
        with_gradient |= facts.with_gradient
    return {position for position in range(ranks[0].num_modules) if not with_gradient >> position & 1}


def _names_text(names: Sequence[str], total: int) -> str:
    """Return up to four names as ` (layer 1 mlp.linear_fc1, ... and 3 more)`; empty without names."""
    examples = names[:4]
    more = f" and {total - len(examples)} more" if total > len(examples) else ""
    return f" ({', '.join(examples)}{more})" if examples else ""


def _losses_by_tensor_rank(ranks: Sequence[RankFacts]) -> dict[int, list[RankFacts]]:
    """Return tensor rank -> its ranks that computed a loss, one per context-parallel part of the sequences."""
    ranks_by_tensor_rank = defaultdict(list)
    for facts in ranks:
        if facts.trained_tokens >= 0:
            ranks_by_tensor_rank[facts.place.tensor].append(facts)
    return ranks_by_tensor_rank


def _first_difference(texts: Sequence[str], references: Sequence[str], packs: Sequence[str] = ()) -> tuple[str, str]:
    """Return the first micro batch that differs, as (own text, other text); empty strings without details."""
    for index, (first, second) in enumerate(zip_longest(texts, references, fillvalue="no such micro batch")):
        if first != second:
            return f"micro batch {index}{_pack_note(packs, index)}: {first}", second
    return "", ""


def _per_micro_batch(group: Sequence[RankFacts], planner: RankFacts) -> str:
    """Return text on the first micro batch whose count differs from the plan; empty without details."""
    counts = [sum(numbers) for numbers in zip(*(facts.details.trained for facts in group), strict=False)]
    for index, (count, planned_count) in enumerate(zip(counts, planner.details.planned, strict=False)):
        if count != planned_count:
            return (
                f"; micro batch {index}{_pack_note(planner.details.packs, index)}: {count} instead of {planned_count}"
            )
    return f"; packs {', '.join(planner.details.packs)}" if planner.details.packs else ""


def _pack_note(packs: Sequence[str], index: int) -> str:
    return f" (pack {packs[index]})" if index < len(packs) else ""
