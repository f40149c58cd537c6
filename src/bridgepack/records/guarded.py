"""The guard's data about one training step: each rank's facts, and the plan's expectations per replica."""

from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class RankPlace:
    """The ranks of one process of a run; ranks count from 0."""

    rank: int  #: global rank
    data: int = 0  #: data-parallel rank: which copy of the model, so which packs
    pipeline: int = 0  #: pipeline stage
    tensor: int = 0  #: tensor-parallel rank
    context: int = 0  #: context-parallel rank


@dataclass(frozen=True, kw_only=True, slots=True)
class GroupSizes:
    """Number of ranks of each kind."""

    data: int = 1  #: copies of the model
    pipeline: int = 1  #: pipeline stages
    tensor: int = 1  #: ranks that share each layer's weights
    context: int = 1  #: ranks that share each sequence
    expert_copies: int = 1  #: ranks that have the same experts

    def describe(self, place: RankPlace) -> str:
        """Return a place in words, without kinds of size 1: `rank 5 (pipeline stage 1 of 0-2)`."""
        kinds = (
            ("pipeline stage", place.pipeline, self.pipeline),
            ("tensor rank", place.tensor, self.tensor),
            ("context rank", place.context, self.context),
            ("data-parallel rank", place.data, self.data),
        )
        coordinates = ", ".join(f"{name} {value} of 0-{size - 1}" for name, value, size in kinds if size > 1)
        return f"rank {place.rank} ({coordinates})" if coordinates else f"rank {place.rank}"


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEvidence:
    """Details of one rank, exchanged only after a problem was found."""

    host: str = ""  #: name of the machine
    from_loader: str = ""  #: the loader's output: how many micro batches, and how many of them without boundaries
    without: tuple[str, ...] = ()  #: parts of the model that got no boundaries, the first few
    #: per micro batch: physical offsets, then logical ones if they differ; the first few
    boundaries: tuple[str, ...] = ()
    trained: tuple[int, ...] = ()  #: trained tokens of each micro batch
    losses: tuple[str, ...] = ()  #: loss per trained token of each micro batch, as text, because it may be `nan`
    packs: tuple[str, ...] = ()  #: packs of each micro batch according to the plan
    planned_boundaries: tuple[str, ...] = ()  #: `boundaries` according to the plan
    planned: tuple[int, ...] = ()  #: `trained` according to the plan
    #: position -> name of the modules without a gradient on this rank, the first few
    still: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class RankFacts:
    """Facts about one rank in one step; only numbers, because every rank sends them to every other."""

    place: RankPlace  #: ranks of the process
    num_calls: int  #: forward passes of its model chunks
    num_without: int = 0  #: forward passes without boundaries, at the model or at one of its layers
    #: digest of the boundaries of all micro batches, in order; 0 if a part got none or none is known
    boundaries: int = 0
    trained_tokens: int = -1  #: trained tokens over all micro batches; -1 if the rank computes no loss
    trained_labels: int = -1  #: sum of the labels of the trained tokens; -1 if unknown
    num_not_finite: int = 0  #: micro batches whose loss is not a finite number
    planned_boundaries: int = 0  #: digest that the plan expects; 0 if this rank does not know the plan
    planned_tokens: int = -1  #: trained tokens of its replica according to the plan; -1 if unknown
    planned_labels: int = -1  #: sum of their labels according to the plan; -1 if unknown
    num_modules: int = 0  #: modules with trained weights whose gradients this rank read; equal on all ranks of a stage
    #: bit i: a gradient of module i was not 0, in one of the first checked steps, later in this step
    with_gradient: int = 0
    evidence: RankEvidence | None = None  #: details; None until a problem is found

    @property
    def details(self) -> RankEvidence:
        """The evidence; empty if none was exchanged."""
        return self.evidence or RankEvidence()


@dataclass(frozen=True, kw_only=True, slots=True)
class StepFacts:
    """Facts about all ranks in one step."""

    step: int  #: as the host logs it, from 1
    is_packed: bool  #: the run's rows are packed, so that every part of the model needs boundaries
    ranks: tuple[RankFacts, ...]  #: in the order of ranks
    sizes: GroupSizes = field(default_factory=GroupSizes)  #: number of ranks of each kind
    num_trained: int | None = None  #: trained weights of the whole model; None if not counted
    #: it is the last of the first checked steps: every module should have had a gradient
    settles_gradients: bool = False

    def describe(self, facts: RankFacts) -> str:
        """Return step and rank in words: `step 3, rank 5 (pipeline stage 1 of 0-2)`."""
        return f"step {self.step}, {self.sizes.describe(facts.place)}"

    def replicas(self) -> dict[int, tuple[RankFacts, ...]]:
        """Return data-parallel rank -> the ranks of that copy of the model."""
        ranks_by_replica: dict[int, list[RankFacts]] = {}
        for facts in self.ranks:
            ranks_by_replica.setdefault(facts.place.data, []).append(facts)
        return {data: tuple(ranks) for data, ranks in sorted(ranks_by_replica.items())}


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedWeights:
    """A rank's share of a run's weights; the shares of all ranks add up to the model."""

    stage: int  #: pipeline stage
    trained: float  #: trained weights on this rank / ranks with the same ones
    total: float  #: the same of all weights
    num_modules: int  #: modules of the language model with trained weights
    kinds: tuple[tuple[str, int], ...]  #: name of a module without its layer, and how many there are; the first few


@dataclass(frozen=True, kw_only=True, slots=True)
class DataOrder:
    """Everything that decides which packs a step reads; stored beside a run's checkpoints.

    Unknown numbers are None.
    """

    fingerprint: str  #: fingerprint of the artifact; empty if it has none
    artifact: str  #: folder of the artifact
    global_batch_size: int | None = None  #: packs per step
    data_parallel_size: int | None = None  #: copies of the model, which a cyclic loader deals the packs out to
    seed: int | None = None  #: seed of the loader
    num_packs: int | None = None  #: rows of the training split, or the number that it is limited to
    loader: str | None = None  #: `batch`, `single` or `cyclic`
    micro_batch_size: int | None = None  #: packs per forward on one copy of the model
    drop_last: bool | None = None  #: whether packs that fill no global batch are left out
    data_sharding: bool | None = None  #: whether each copy of the model draws from its own part of the packs
    is_limited: bool | None = None  #: whether the host draws so many packs by the seed, before the loader sees them


@dataclass(frozen=True, kw_only=True, slots=True)
class ResumeFacts:
    """A run that resumes from a checkpoint."""

    checkpoint: str  #: folder of the checkpoint
    before: DataOrder  #: data order of the run that wrote the checkpoint
    now: DataOrder  #: data order of the resumed run
