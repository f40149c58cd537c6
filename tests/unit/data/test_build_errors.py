"""What a build says when it cannot write: which place is full, and what is kept."""

import errno
import re
from multiprocessing import reduction
from pathlib import Path

import pytest

from bridgepack.data.files import replaced_when_whole
from bridgepack.data.results import Kept
from bridgepack.data.workplace import kept_on_errors
from bridgepack.errors import ArtifactError


@pytest.mark.parametrize("full", ["store", "out"])
def test_place_that_is_full_is_named(tmp_path: Path, full: str) -> None:
    """A worker that fails to write to an open file sends an error that must know the file."""
    kept = Kept(output=str(tmp_path / "out"), store=str(tmp_path / "store"))
    folder = tmp_path / full
    folder.mkdir()

    with pytest.raises(OSError, match="No space") as caught, replaced_when_whole(folder / "a.tokens"):
        raise OSError(errno.ENOSPC, "No space left on device")
    sent = reduction.ForkingPickler.loads(reduction.ForkingPickler.dumps(caught.value))
    with (
        pytest.raises(ArtifactError, match=f"^{re.escape(repr(str(folder)))} cannot be written: No space.*a.tokens"),
        kept_on_errors(kept),
    ):
        raise sent

    assert list(folder.iterdir()) == []
