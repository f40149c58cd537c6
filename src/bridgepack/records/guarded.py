"""What the guard sees of one training step: each rank's facts, and what the plan expects of each replica."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """Where one process of a run is; ranks count from 0.

    Attributes:
        rank: among all.
        data: which copy of the model, so which packs.
        pipeline: pipeline stage.
        tensor: among those that share each layer's weights.
        context: among those that share each sequence.
    """

    rank: int
    data: int = 0
    pipeline: int = 0
    tensor: int = 0
    context: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSizes:
    """How many ranks there are of each kind.

    Attributes:
        data: copies of the model.
        pipeline: pipeline stages.
        tensor: ranks that share each layer's weights.
        context: ranks that share each sequence.
    """

    data: int = 1
    pipeline: int = 1
    tensor: int = 1
    context: int = 1

    def described(self, place: RankPlace) -> str:
        """Return a place in words, without the kinds of which there is one: `rank 5 (pipeline stage 1 of 0-2)`."""
        kinds = (
            ("pipeline stage", place.pipeline, self.pipeline),
            ("tensor rank", place.tensor, self.tensor),
            ("context rank", place.context, self.context),
            ("data-parallel rank", place.data, self.data),
        )
        named = ", ".join(f"{name} {value} of 0-{size - 1}" for name, value, size in kinds if size > 1)
        return f"rank {place.rank} ({named})" if named else f"rank {place.rank}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEvidence:
    """Details of one rank, exchanged only once something is wrong.

    Attributes:
        host: name of the machine.
        from_loader: what the loader gave: how many micro batches, and how many of them without boundaries.
        without: parts of the model that got no boundaries, the first few.
        boundaries: of each micro batch: physical offsets, then logical ones where they differ; the first of many.
        trained: trained tokens of each micro batch.
        losses: loss per trained token of each micro batch, as text, since it may be `nan`.
        packs: packs of each micro batch by the plan.
        planned_boundaries: as `boundaries`, by the plan.
        planned: as `trained`, by the plan.
    """

    host: str = ""
    from_loader: str = ""
    without: tuple[str, ...] = ()
    boundaries: tuple[str, ...] = ()
    trained: tuple[int, ...] = ()
    losses: tuple[str, ...] = ()
    packs: tuple[str, ...] = ()
    planned_boundaries: tuple[str, ...] = ()
    planned: tuple[int, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """What one rank did in one step; numbers only, since every rank sends them to every other.

    Attributes:
        place: where it is.
        num_calls: forward passes of its model chunks.
        num_without: of them, those that got no boundaries, at the model or at one of its layers.
        boundaries: digest of the boundaries of all micro batches, in order; 0 where a part got none or none is known.
        trained_tokens: trained tokens over all micro batches; -1 where the rank computes no loss.
        trained_labels: sum of the labels of the trained tokens; -1 where they are not known.
        num_not_finite: micro batches whose loss is not a finite number.
        planned_boundaries: digest that the plan expects; 0 where this rank does not know the plan.
        planned_tokens: trained tokens of its replica by the plan; -1 where it does not know.
        planned_labels: sum of their labels by the plan; -1 where it does not know.
        evidence: details; None until something is wrong.
    """

    place: RankPlace
    num_calls: int
    num_without: int = 0
    boundaries: int = 0
    trained_tokens: int = -1
    trained_labels: int = -1
    num_not_finite: int = 0
    planned_boundaries: int = 0
    planned_tokens: int = -1
    planned_labels: int = -1
    evidence: RankEvidence | None = None

    @property
    def details(self) -> RankEvidence:
        """The evidence; empty where none was exchanged."""
        return self.evidence or RankEvidence()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFacts:
    """What all ranks did in one step.

    Attributes:
        step: as the host logs it, from 1.
        is_packed: the run's rows are packed, so that every part of the model needs boundaries.
        sizes: how many ranks there are of each kind.
        ranks: by rank.
    """

    step: int
    is_packed: bool
    ranks: tuple[RankFacts, ...]
    sizes: GroupSizes = field(default_factory=GroupSizes)

    def described(self, facts: RankFacts) -> str:
        """Return where something happened: `step 3, rank 5 (pipeline stage 1 of 0-2)`."""
        return f"step {self.step}, {self.sizes.described(facts.place)}"

    def replicas(self) -> dict[int, tuple[RankFacts, ...]]:
        """Return data-parallel rank -> the ranks of that copy of the model."""
        found: dict[int, list[RankFacts]] = {}
        for facts in self.ranks:
            found.setdefault(facts.place.data, []).append(facts)
        return {data: tuple(ranks) for data, ranks in sorted(found.items())}


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOrder:
    """What decides which packs a step reads; it is kept beside a run's checkpoints.

    Attributes:
        fingerprint: of the artifact; empty where it has none.
        artifact: its folder.
        global_batch_size: packs per step.
        data_parallel_size: copies of the model; without effect on which packs a step reads.
        seed: of the loader.
        num_packs: rows of the training split.

    A number is None where it is not known.
    """

    fingerprint: str
    artifact: str
    global_batch_size: int | None = None
    data_parallel_size: int | None = None
    seed: int | None = None
    num_packs: int | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeFacts:
    """A run that goes on from a checkpoint.

    Attributes:
        checkpoint: folder of the checkpoint.
        before: what the run was made with.
        now: what it would go on with.
    """

    checkpoint: str
    before: DataOrder
    now: DataOrder
