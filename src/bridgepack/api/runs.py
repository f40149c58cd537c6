"""API function that shows the losses of a run by source and by row."""

from pathlib import Path

from bridgepack.api.files import check_place
from bridgepack.config.arguments import check_arguments, local_path
from bridgepack.errors import ConfigError
from bridgepack.proof.losses.losses import LossOptions, report_losses
from bridgepack.proof.losses.records import LossReport
from bridgepack.records import SPLITS, TRAIN
from bridgepack.running.assignment import RUN_FILE, RunFolder


@check_arguments
def losses(
    run: str | Path,
    *,
    artifact: str | Path | None = None,
    step: int | None = None,
    split: str = TRAIN,
    num_rows: int | None = None,
    output: str | Path | None = None,
) -> LossReport:
    """Return the losses of a run: of each source over its steps, and with losses.by_row those of rows.

    Example: `bridgepack.losses("runs/mine", num_rows=20).rows`.

    Args:
        run: folder of the run, with `losses/`.
        artifact: folder of its packs (default: the one that the run's folder names).
        step: show the rows of this step, as Megatron-Bridge logs it.
        split: of the rows, `training` or `validation`.
        num_rows: maximum rows to show (default: none; 20 of a step); without a step, those furthest above their source.
        output: also write the losses of all rows to this file, as Parquet.

    Raises:
        ConfigError: the run has no losses, or none of the rows or the step; or the file cannot be written.
        DataError: a file of the run cannot be read, or is of another artifact.
        ArtifactError: the artifact cannot be read.
    """
    if split not in SPLITS:
        raise ConfigError(f"split is {split!r}; allowed: {' or '.join(SPLITS)}. Use one of these.")
    folder = local_path(run, "run")
    if not folder.is_dir():
        raise ConfigError(f"run is {str(run)!r}; there is no such folder. Give the folder of a run, e.g. runs/mine.")
    place = local_path(artifact, "artifact") if artifact is not None else _artifact_of(folder)
    file = None if output is None else local_path(output, "output")
    if file is not None:
        check_place("--output", file, folder, suffix=".parquet")
    shown_rows = (0 if step is None else 20) if num_rows is None else num_rows
    return report_losses(folder, place, LossOptions(split=split, step=step, num_rows=shown_rows, output=file))


def _artifact_of(folder: Path) -> Path | None:
    """Return the folder of the packs that a run read; None if its folder does not say."""
    path = (RunFolder(folder).read(RUN_FILE) or {}).get("artifact")
    return Path(path) if isinstance(path, str) else None
