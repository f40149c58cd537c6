"""The file `by-source.jsonl` in a run's folder, and the values that trackers get."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bridgepack.records.losses import BY_SOURCE_FILE, ROWS_FOLDER, SourceLoss
from bridgepack.user_files import MAX_LARGE_BYTES, read_text

#: Sources that trackers show by name.
MAX_SOURCES = 64
_OTHER = "other"
#: Characters that every tracker takes in a name.
#: Source: mlflow 3, utils/validation.py (_VALID_PARAM_AND_METRIC_NAMES); the host, training/utils/mlflow_utils.py.
_REFUSED = re.compile(r"[^A-Za-z0-9_./ -]")


def source_losses(
    names: Sequence[str], sums: Sequence[Sequence[float]], *, split: str, first_step: int, step: int, start: int = 1
) -> list[SourceLoss]:
    """Return the losses of the sources that have trained tokens in an interval, and of what belongs to none.

    `sums` are (loss, trained tokens) of each source, and of none.
    """
    num_unattributed = round(sums[len(names)][1])
    return [
        SourceLoss(
            step=step,
            first_step=first_step,
            split=split,
            source=name,
            loss_sum=loss,
            num_trained_tokens=round(num_tokens),
            unattributed=num_unattributed,
            start=start,
        )
        for name, (loss, num_tokens) in zip((*names, None), sums, strict=False)
        if num_tokens > 0
    ]


def next_start(folder: Path) -> int:
    """Return the number of the start that begins now, from the files of earlier ones; raises OSError or ValueError."""
    numbers = [int(path.stem.split("-")[1]) for path in (folder / ROWS_FOLDER).glob("rank*-*-*.parquet")]
    path = folder / BY_SOURCE_FILE
    if path.is_file():
        texts = read_text(path, max_bytes=MAX_LARGE_BYTES).split("\n")
        numbers += [int(json.loads(line)["start"]) for line in texts[:-1]]
    return 1 + max(numbers, default=0)


def append_losses(folder: Path, losses: Sequence[SourceLoss]) -> None:
    """Append losses to the file of a run's folder; raises OSError if it cannot be written."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / BY_SOURCE_FILE).open("a", encoding="utf-8") as stream:
        stream.write("".join(json.dumps(asdict(loss), ensure_ascii=False) + "\n" for loss in losses))


def tracker_names(names: Sequence[str], num_trained_tokens: Sequence[int]) -> dict[str, str]:
    """Return source -> its name in trackers; beyond 64 sources, the smallest are `other`.

    Characters that a tracker refuses become `_`; names that are then equal get a number.
    """
    by_size = sorted(range(len(names)), key=lambda index: -num_trained_tokens[index])
    largest = set(by_size[: MAX_SOURCES if len(names) <= MAX_SOURCES else MAX_SOURCES - 1])
    labels: dict[str, str] = {}
    uses: set[str] = {_OTHER} if len(names) > MAX_SOURCES else set()
    for index, name in enumerate(names):
        if index not in largest:
            labels[name] = _OTHER
            continue
        plain = _REFUSED.sub("_", name)
        plain = "/".join(part for part in plain.split("/") if part.strip(". ")) or "_"
        label = next(text for text in _with_numbers(plain) if _in_mlflow(text) not in uses)
        uses.add(_in_mlflow(label))
        labels[name] = label
    return labels


def _in_mlflow(label: str) -> str:
    """Return a source's name as the host writes names to MLflow: `a/b` -> `a_b`."""
    return label.replace("/", "_")


def _with_numbers(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name} {number}"
        number += 1


def tracker_values(losses: Sequence[SourceLoss], labels: Mapping[str, str]) -> dict[str, float]:
    """Return name -> loss for trackers, `lm loss/NAME` or `lm loss/NAME validation`; without what has no source."""
    sums: dict[str, tuple[float, int]] = {}
    suffix = " validation" if losses and losses[0].split == "validation" else ""
    for item in losses:
        if item.source is not None:
            name = f"lm loss/{labels[item.source]}{suffix}"
            loss_sum, num_tokens = sums.get(name, (0.0, 0))
            sums[name] = loss_sum + item.loss_sum, num_tokens + item.num_trained_tokens
    return {name: loss_sum / num_tokens for name, (loss_sum, num_tokens) in sums.items()}


def write_to_trackers(state: Any, values: Mapping[str, float], step: int) -> None:
    """Write values to the trackers of the host's state; only its last rank has any.

    Source: megatron/bridge/training/utils/train_utils.py (training_log) of 0.6.2 and 0.7.
    """
    if not values:
        return
    if state.tensorboard_logger is not None:
        for name, value in values.items():
            state.tensorboard_logger.add_scalar(name, value, step)
    if state.wandb_logger is not None:
        state.wandb_logger.log(dict(values), step)
    if state.mlflow_logger is not None:
        parts = {name.partition("/"): value for name, value in values.items()}
        metrics = {f"{first}/{_in_mlflow(label)}": value for (first, _, label), value in parts.items()}
        state.mlflow_logger.log_metrics(metrics, step=step)
    if state.comet_logger is not None:
        state.comet_logger.log_metrics(dict(values), step=step)
