"""Whether an artifact's files are still those that were checked, once the host has opened them."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bridgepack.config.recipe.training import GuardConfig
from bridgepack.data.artifact.artifact import shard_problem
from bridgepack.data.artifact.bridge_metadata import BRIDGE_METADATA_FILE
from bridgepack.data.artifact.manifest import read_manifest
from bridgepack.errors import ArtifactError
from bridgepack.records import FileRecord, ShardRecord
from bridgepack.running.guard.watch import step_number

#: What changes when a file is written or replaced: device, inode, bytes, and the times of its content and its entry.
_State = tuple[int, int, int, int, int]


class FilesChangedError(ArtifactError):
    """A file of the artifact changed after the check."""


class CheckedFiles:
    """An artifact's shards as they were before the check: the manifest's records, and the state of each file."""

    def __init__(self, artifact: Path) -> None:
        """Read the manifest and look at each file; create this before the check, which hashes the files.

        Raises:
            ArtifactError: the folder has no readable manifest.
        """
        self._folder = artifact
        manifest = read_manifest(artifact)
        records: list[ShardRecord | FileRecord] = [shard for split in manifest.splits for shard in split.shards]
        # The host appends entries to its metadata.
        records += [record for record in manifest.files if record.path != BRIDGE_METADATA_FILE]
        self._records = {record.path: record for record in records}
        self._states = {path: self._state(path) for path in self._records}

    def problems(self) -> Iterator[str]:
        """Yield `FILE: PROBLEM` for each file that is no longer the manifest's; hashes only files that changed."""
        for path, record in self._records.items():
            state = self._state(path)
            if state is not None and state == self._states[path]:
                continue
            problem = shard_problem(self._folder, record)
            if problem:
                yield f"{path}: {problem}"
            else:
                self._states[path] = state

    def refuse_changed(self) -> None:
        """Check that every file is still the manifest's.

        Raises:
            FilesChangedError: names the first file that is not.
        """
        problems = list(self.problems())
        if problems:
            more = f"; {len(problems) - 1} more" if len(problems) > 1 else ""
            raise FilesChangedError(
                f"{str(self._folder)!r} changed after it was checked: {problems[0]}{more}. Build it again or copy it "
                "again, and start the run again."
            )

    def _state(self, path: str) -> _State | None:
        try:
            status = (self._folder / path).stat()
        except OSError:
            return None
        return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


class FilesCallback:
    """A callback of Megatron-Bridge's training loop that compares the files in the steps that the guard checks.

    The host opens a shard when it needs it, so the files are compared after its data sets are built and again after
    steps that have read from them.
    """

    def __init__(
        self, files: CheckedFiles, settings: GuardConfig, *, on_change: Callable[[FilesChangedError], None]
    ) -> None:
        """Create a callback; `on_change` is called before the error is raised."""
        self._files, self._settings, self._on_change = files, settings, on_change
        self._first_step: int | None = None
        self._is_due = False

    def on_train_start(self, context: Any) -> None:
        """Compare the files after the host has built its data sets; called by the host.

        Raises:
            FilesChangedError: a file changed.
        """
        self._first_step = step_number(context.state)
        self._compare()

    def on_train_step_start(self, context: Any) -> None:
        """Note whether this step is one to compare; called by the host."""
        number = step_number(context.state)
        first = number if self._first_step is None else self._first_step
        self._is_due = number == first or self._settings.watches(number, first_step=first)

    def on_train_step_end(self, context: Any) -> None:  # noqa: ARG002 (the host gives it)
        """Compare the files again after a step; called by the host.

        Raises:
            FilesChangedError: a file changed.
        """
        if self._is_due:
            self._compare()

    def _compare(self) -> None:
        try:
            self._files.refuse_changed()
        except FilesChangedError as error:
            self._on_change(error)
            raise
