"""One run at a time saves into a folder of checkpoints: a file in it names the run that does.

The folder of two runs at once would hold whichever wrote last, and both would end well. The file goes when training
ends. That of a killed run is taken over: by any run of the same machine, where its process is seen to be gone, and by
the same run on another one, as after a node failed.
"""

import atexit
import hashlib
import signal
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.write import recipe_to_yaml
from bridgepack.data.artifact.manifest import MANIFEST_FILE, read_manifest
from bridgepack.data.owners import Owner, claim, release
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.running.guard.ranks import gather

#: File beside the checkpoints.
OWNER_FILE = "bridgepack-owner.json"
#: What identifies the run of a script: its packs alone do.
_SCRIPT = "a script"
#: Digits of a fingerprint in a message.
_NUM_DIGITS = 12


def work_of(recipe: SFTRecipe) -> str:
    """Return what identifies the run of a recipe: its name, and a digest of all of its settings."""
    digest = hashlib.sha256(recipe_to_yaml(recipe).encode()).hexdigest()
    return f"{recipe.name}, settings {digest[:_NUM_DIGITS]}"


def fingerprint_of(artifact: Path | None) -> str:
    """Return the fingerprint of the packs in a folder; empty without them, or without a manifest.

    Raises:
        ArtifactError: the manifest cannot be read.
    """
    if artifact is None or not (artifact / MANIFEST_FILE).is_file():
        return ""
    return read_manifest(artifact).fingerprint


def claim_folder(checkpoints: Any, *, work: str, fingerprint: str, field: str = "checkpoint.folder") -> Path | None:
    """Make this process the one that saves into a folder, until `release_folder` or its end; return the file.

    None where nothing is saved, or not into a local folder. A process may claim its folder again.

    Args:
        checkpoints: the host's `checkpoint.save`.
        work: what identifies the run.
        fingerprint: of the packs that it reads; empty if unknown.
        field: where the user has set the folder.

    Raises:
        ConfigError: another run saves there, or the folder cannot be written.
    """
    if checkpoints is None or "://" in str(checkpoints):
        return None
    path = Path(checkpoints).absolute() / OWNER_FILE
    process = Owner.this_process(work=work, fingerprint=fingerprint)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        owner = claim(path, process)
    except OSError as error:
        raise ConfigError(
            f"{field} is {str(path.parent)!r}; nothing can be written there: {error}. Set one that can be written.",
            field=field,
        ) from None
    if owner is not None and not owner.is_process(process):
        packs = f" with the packs {owner.fingerprint[:_NUM_DIGITS]}" if owner.fingerprint else ""
        raise ConfigError(
            f"{field} is {str(path.parent)!r}, where another run saves{packs}: {owner.work or _SCRIPT}, "
            f"{owner.text}. Set another folder, or wait until that run ends. If that process has ended, remove {path} "
            "and start again.",
            field=field,
        )
    atexit.register(release, path)
    return path


def claim_for_ranks(checkpoints: Any, artifact: Path | None) -> None:
    """Claim the folder of a script's run, whose rank 0 saves for all; a collective that every rank must call.

    Raises:
        ConfigError: another run saves there, or the folder cannot be written; raised on every rank.
    """
    import torch.distributed as dist

    refusal = ""
    if dist.get_rank() == 0:
        try:
            claim_folder(checkpoints, work=_SCRIPT, fingerprint=fingerprint_of(artifact), field="checkpoint.save")
        except BridgepackError as error:
            refusal = str(error)
    refusals = gather(refusal)
    if refusals[0]:
        raise ConfigError(refusals[0], field="checkpoint.save")


def release_folder(path: Path | None) -> None:
    """Let other runs save into the folder of a file that `claim_folder` returned."""
    if path is not None:
        release(path)


def release_when_terminated(path: Path | None) -> None:
    """Release a folder, too, where a scheduler ends this process by SIGTERM and nothing else answers to that."""
    if path is None or threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:

        def end(number: int, _: FrameType | None) -> None:
            release(path)
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

        signal.signal(signal.SIGTERM, end)
