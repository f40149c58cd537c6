"""One reading or one check of an artifact. usage: read|check FOLDER PACKED_SEQUENCE_SIZE NUM_WORKERS RESULT."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from benchlib.packs import EOS_TOKEN_ID, VOCAB_SIZE
from bridgepack.data.artifact.checking import ArtifactInParts
from bridgepack.data.workers.pool import PlainRunner, plain_runner
from bridgepack.rules import CheckContext, check_artifact
from bridgepack.rules.engine import Execution, report_of_scan, scan_artifact
from bridgepack.rules.scanning import PartScan, PartTask, batches_of
from bridgepack.rules.tasks import Task, TaskResult, run_task

READ, CHECK = "read", "check"


def read_only(task: Task) -> TaskResult:
    """Do what a task of a check does but for judging: decode the part's rows, or hash the file."""
    if not isinstance(task, PartTask):
        return run_task(task)
    scan = PartScan(part=task.part)
    for batch in batches_of(task):
        scan.num_rows += batch.num_rows
        scan.num_tokens += len(batch.input_ids)
    return scan


def run(side: str, artifact: ArtifactInParts, tasks: PlainRunner, context: CheckContext) -> dict[str, Any]:
    """Return how much was read and what was found."""
    if side == CHECK:
        execution = Execution(reader=artifact.parts, run_tasks=tasks.run)
        report = check_artifact(artifact, context=context, execution=execution)
    else:
        execution = Execution(reader=artifact.parts, run_tasks=lambda _, items: tasks.run(read_only, items))
        report = report_of_scan(scan_artifact(artifact, execution=execution), rules=())
    counts = {"num_rows": report.num_rows, "num_tokens": report.num_tokens}
    return {**counts, "codes": [finding.code for finding in report.findings]}


def main() -> None:
    side, folder, size, num_workers, result = sys.argv[1:]
    known = {"eos_token_id": EOS_TOKEN_ID, "vocab_size": VOCAB_SIZE, "pad_seq_to_mult": 8, "loss_mode": "assistant"}
    context = CheckContext(packed_sequence_size=int(size), **known)
    artifact = ArtifactInParts(Path(folder))
    begin = time.perf_counter()
    with plain_runner(int(num_workers)) as artifact.tasks:
        found = run(side, artifact, artifact.tasks, context)
    Path(result).write_text(json.dumps({**found, "seconds": time.perf_counter() - begin}), encoding="utf-8")


if __name__ == "__main__":
    main()
