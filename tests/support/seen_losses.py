"""What a run computes, written down beside its own reports: the losses, labels and masks of each micro batch.

It looks at the host's own functions and knows nothing of packs. `by_source` then sums losses by the label's id: the
rows of each source have ids of their own.
"""

import json
import os
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

#: Variable with the folder that `write_down` writes to.
FOLDER = "BRIDGEPACK_TEST_SEEN_LOSSES"


def write_down() -> None:
    """Write a line for each micro batch until this process ends."""
    import torch
    from megatron.bridge.training import gpt_step, losses, train

    folder = Path(os.environ[FOLDER])
    folder.mkdir(parents=True, exist_ok=True)
    get_batch, loss, step, log = gpt_step.get_batch, losses.masked_next_token_loss, train.train_step, train.training_log
    seen: dict[str, Any] = {"step": 1}

    def get_batch_and_keep(*arguments: Any, **options: Any) -> Any:
        batch = get_batch(*arguments, **options)
        seen["labels"] = batch[1]
        return batch

    def loss_and_keep(mask: Any, output: Any, **options: Any) -> Any:
        result = loss(mask, output, **options)
        line = {
            "step": seen["step"],
            "trains": torch.is_grad_enabled(),
            "labels": seen["labels"].reshape(-1).tolist(),
            "mask": mask.reshape(-1).tolist(),
            "losses": output.detach().double().reshape(-1).tolist(),
        }
        with (folder / f"rank{os.environ['RANK']}.jsonl").open("a") as stream:
            stream.write(json.dumps(line) + "\n")
        return result

    def step_and_count(*arguments: Any, **options: Any) -> Any:
        seen["step"] = arguments[5].train_state.step + 1
        return step(*arguments, **options)

    def log_and_keep(*arguments: Any, **options: Any) -> Any:
        found = {name: value.item() for name, value in arguments[0].items()}
        with (folder / f"log{os.environ['RANK']}.jsonl").open("a") as stream:
            stream.write(json.dumps({**found, "step": seen["step"], "grad_norm": float(arguments[7])}) + "\n")
        return log(*arguments, **options)

    gpt_step.get_batch = get_batch_and_keep
    losses.masked_next_token_loss = gpt_step.masked_next_token_loss = loss_and_keep
    train.train_step, train.training_log = step_and_count, log_and_keep


def micro_batches(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in sorted(folder.glob("rank*.jsonl")) for line in path.read_text().splitlines()]


def by_source(
    lines: Sequence[Mapping[str, Any]], first_ids: Mapping[str, int], *, steps: Sequence[int], trains: bool
) -> dict[str, tuple[float, int]]:
    """Return source -> (sum of losses, number of trained tokens); its ids are those up to the next first."""
    names, starts = list(first_ids), np.array(list(first_ids.values()))
    sums: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])
    for line in lines:
        if line["step"] in steps and line["trains"] == trains:
            labels, mask, losses = (np.array(line[name], dtype=np.float64) for name in ("labels", "mask", "losses"))
            for index in np.unique(np.searchsorted(starts, labels[mask != 0], side="right") - 1).tolist():
                is_in_source = (np.searchsorted(starts, labels, side="right") - 1 == index) & (mask != 0)
                sums[names[index]][0] += float((losses * mask)[is_in_source].sum())
                sums[names[index]][1] += int(mask[is_in_source].sum())
    return {name: (total, int(num_tokens)) for name, (total, num_tokens) in sums.items()}


def by_label(lines: Sequence[Mapping[str, Any]], *, trains: bool) -> dict[tuple[int, int], tuple[float, int]]:
    """Return (step, label) -> (sum of losses, number of trained tokens)."""
    sums: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0])
    for line in lines:
        if line["trains"] == trains:
            for label, mask, loss in zip(line["labels"], line["mask"], line["losses"], strict=True):
                if mask:
                    sums[line["step"], label][0] += loss * mask
                    sums[line["step"], label][1] += int(mask)
    return {key: (total, int(num_tokens)) for key, (total, num_tokens) in sums.items()}
