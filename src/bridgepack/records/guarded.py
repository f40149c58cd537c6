"""What the guard sees of one training step: each rank's facts, and what the plan expects of each replica."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """Where one process of a run is; ranks count from 0."""

    rank: int  #: among all
    data: int = 0  #: which copy of the model, so which packs
    pipeline: int = 0  #: pipeline stage
    tensor: int = 0  #: among those that share each layer's weights
    context: int = 0  #: among those that share each sequence


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSizes:
    """How many ranks there are of each kind."""

    data: int = 1  #: copies of the model
    pipeline: int = 1  #: pipeline stages
    tensor: int = 1  #: ranks that share each layer's weights
    context: int = 1  #: ranks that share each sequence

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
    """Details of one rank, exchanged only once something is wrong."""

    host: str = ""  #: name of the machine
    from_loader: str = ""  #: what the loader gave: how many micro batches, and how many of them without boundaries
    without: tuple[str, ...] = ()  #: parts of the model that got no boundaries, the first few
    #: of each micro batch: physical offsets, then logical ones where they differ; the first of many
    boundaries: tuple[str, ...] = ()
    trained: tuple[int, ...] = ()  #: trained tokens of each micro batch
    losses: tuple[str, ...] = ()  #: loss per trained token of each micro batch, as text, since it may be `nan`
    packs: tuple[str, ...] = ()  #: packs of each micro batch by the plan
    planned_boundaries: tuple[str, ...] = ()  #: as `boundaries`, by the plan
    planned: tuple[int, ...] = ()  #: as `trained`, by the plan


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """What one rank did in one step; numbers only, since every rank sends them to every other."""

    place: RankPlace  #: where it is
    num_calls: int  #: forward passes of its model chunks
    num_without: int = 0  #: of them, those that got no boundaries, at the model or at one of its layers
    #: digest of the boundaries of all micro batches, in order; 0 where a part got none or none is known
    boundaries: int = 0
    trained_tokens: int = -1  #: trained tokens over all micro batches; -1 where the rank computes no loss
    trained_labels: int = -1  #: sum of the labels of the trained tokens; -1 where they are not known
    num_not_finite: int = 0  #: micro batches whose loss is not a finite number
    planned_boundaries: int = 0  #: digest that the plan expects; 0 where this rank does not know the plan
    planned_tokens: int = -1  #: trained tokens of its replica by the plan; -1 where it does not know
    planned_labels: int = -1  #: sum of their labels by the plan; -1 where it does not know
    evidence: RankEvidence | None = None  #: details; None until something is wrong

    @property
    def details(self) -> RankEvidence:
        """The evidence; empty where none was exchanged."""
        return self.evidence or RankEvidence()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFacts:
    """What all ranks did in one step."""

    step: int  #: as the host logs it, from 1
    is_packed: bool  #: the run's rows are packed, so that every part of the model needs boundaries
    ranks: tuple[RankFacts, ...]  #: by rank
    sizes: GroupSizes = field(default_factory=GroupSizes)  #: how many ranks there are of each kind

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

    A number is None where it is not known.
    """

    fingerprint: str  #: of the artifact; empty where it has none
    artifact: str  #: its folder
    global_batch_size: int | None = None  #: packs per step
    data_parallel_size: int | None = None  #: copies of the model; without effect on which packs a step reads
    seed: int | None = None  #: of the loader
    num_packs: int | None = None  #: rows of the training split


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeFacts:
    """A run that goes on from a checkpoint."""

    checkpoint: str  #: folder of the checkpoint
    before: DataOrder  #: what the run was made with
    now: DataOrder  #: what it would go on with
