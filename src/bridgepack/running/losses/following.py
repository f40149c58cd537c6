"""What is known of a run before its losses are followed, and whether they can be."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.bridge.container import config_of_container
from bridgepack.bridge.imports import import_host
from bridgepack.config.recipe.training import LossesConfig
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.records import SPLITS, TRAIN
from bridgepack.running.guard.ranks import place_and_sizes
from bridgepack.running.guard.watch import num_eager_steps
from bridgepack.running.losses.packs import SplitPacks
from bridgepack.running.losses.rows import RowWriter
from bridgepack.running.losses.sums import Call, Interval


@dataclass(kw_only=True, slots=True)
class Following:
    """What is known while a run is followed, on a rank of the last pipeline stage."""

    splits: dict[str, SplitPacks]
    group: Any  #: data- and context-parallel ranks, which share the sums
    num_context_ranks: int  #: ranks that share each sequence now: evaluation may have other ones
    device: Any  #: of the model's weights
    fingerprint: str  #: of the artifact
    is_first_of_tensor: bool  #: of the ranks with the same losses, it is the one that writes those of rows
    report_steps: tuple[int, ...]  #: a step that is a multiple of one of them ends an interval
    save_steps: int | None  #: steps between checkpoints; None without any
    is_writer: bool = False  #: the last rank that follows, which has the host's trackers
    reports_sources: bool  #: not only rows are written
    rows: RowWriter | None = None  #: of a rank that writes the losses of rows
    evaluation: int = 0  #: which of this start, from 1
    is_over: bool = False  #: training has ended; an evaluation may follow
    start: int = 1  #: which start of the run
    split: str = TRAIN  #: whose packs are read now; empty for those of a test
    step: int = 0  #: as the host logs it
    calls: list[Call] = field(default_factory=list)  #: micro batches since the step began
    intervals: dict[str, Interval] = field(default_factory=dict)


def begin(context: Any, folder: Path, settings: LossesConfig) -> tuple[Following | None, str]:
    """Return what this rank follows of an artifact, None on other stages than the last; or why the run cannot be.

    Raises:
        BridgepackError: the artifact cannot be read.
    """
    state, model = context.state, context.model
    place, sizes = place_and_sizes(model)
    if problem := _why_not(state):
        return None, problem
    artifact = Artifact(folder, may_be_changed=True)  # every rank opens it
    folders = {name: path for name, path in _folders_read(state).items() if artifact.manifest.split(name)}
    names = [name for name in folders if folders[name].resolve() == (folder / name).resolve()]
    if TRAIN not in names:
        return None, f"the run does not read {folder / TRAIN}."
    is_mixture = any(len(artifact.split(name).sources) > 1 for name in names)
    if settings.by_source is None and not is_mixture and not settings.by_row:
        return None, "the packs have one source; losses.by_source true follows it all the same."
    if place.pipeline != sizes.pipeline - 1:
        return None, ""
    save_steps = _save_steps(state.cfg)
    every_steps = settings.every_steps or state.cfg.logger.log_interval or 1
    following = Following(
        splits={name: SplitPacks.of(artifact, name) for name in names},
        group=groups_of(model).dp_cp,
        num_context_ranks=sizes.context,
        device=next(model[-1].parameters()).device,
        fingerprint=artifact.manifest.fingerprint,
        is_first_of_tensor=place.tensor == 0,
        # an interval ends at a checkpoint, too, where a run may restart
        report_steps=tuple(int(number) for number in (every_steps, save_steps) if number),
        save_steps=save_steps,
        reports_sources=is_mixture if settings.by_source is None else settings.by_source,
    )
    return following, ""


def _why_not(state: Any) -> str:
    """Return why a run's losses cannot be followed; empty if they can."""
    dataset = config_of_container(state.cfg, place="the run").values["dataset"]
    if not dataset.get("enable_offline_packing"):
        return "the run reads no packs of an artifact, so the rows of a batch are unknown."
    if num_eager_steps(state.cfg.model) is not None:
        return "model.cuda_graph_impl is full_iteration, and no Python code runs inside such a graph."
    return ""


def _save_steps(config: Any) -> int | None:
    """Return the steps between checkpoints; None if none is saved."""
    saves = config.checkpoint.save_interval if config.checkpoint.save is not None else None
    return int(saves) if saves else None


def _folders_read(state: Any) -> dict[str, Path]:
    """Return split -> the folder of the packs that the run reads."""
    specs = getattr(state.cfg.dataset, "offline_packing_specs", None)
    paths = (getattr(specs, name, None) for name in ("packed_train_data_path", "packed_val_data_path"))
    return {split: Path(str(path)) for split, path in zip(SPLITS, paths, strict=True) if path is not None}


def groups_of(model: Any) -> Any:
    """Return the process groups of a model."""
    return import_host("training.utils.pg_utils").get_pg_collection(model)
