"""Asks the host's own validation about a target, in a process of its own."""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from packaging.version import Version

from bridgepack.bridge.environment import environment_here
from bridgepack.bridge.targets import Target
from bridgepack.bridge.validating.verdict import Question
from bridgepack.data.tokenizers.trust import refuse_model_code
from bridgepack.errors import ConfigError
from bridgepack.host import BRIDGE
from bridgepack.records import HostVerdict

#: Most seconds of a question; imports take 18 s of processor time, more on a busy machine or a network disk.
LIMIT_S = 300.0
#: What the process may not see or use, so that nothing of this machine is changed by it.
_HIDDEN = {
    "CUDA_VISIBLE_DEVICES": "",
    "HF_HUB_OFFLINE": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "TOKENIZERS_PARALLELISM": "false",
}
#: Folders that the host or its libraries would write to.
_FOLDERS = ("MEGATRON_CONFIG_LOCK_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_MODULES_CACHE")
_GPUS_BY_NAME = ("gb200", "h100")


def host_verdict(
    target: Target,
    *,
    version: Version,
    world_size: int | None,
    artifact: Path | None,
    trusted_modules: Sequence[str] = (),
    runs_code: bool = False,
) -> HostVerdict:
    """Return what the installed host says of a target, or why it is not asked.

    The process ends with this call, also when it is interrupted.

    Args:
        target: the run.
        version: of megatron-bridge, which the check is for.
        world_size: number of GPUs; None if unknown.
        artifact: folder of the packs that the run reads, if it is none of the target's.
        trusted_modules: modules of which a saved config may name classes and functions, besides what the host writes.
        runs_code: whether code that comes with a recipe's model may run.
    """
    installed_version = environment_here().versions.get(BRIDGE)
    if installed_version is None:
        return HostVerdict(state="absent", reason="megatron-bridge is not installed here")
    if Version(installed_version).base_version != version.base_version:
        reason = f"the check is for megatron-bridge {version}, and {installed_version} is installed here"
        return HostVerdict(state="other version", reason=reason, version=installed_version)
    if target.recipe is not None and target.recipe.model is None:
        return HostVerdict(
            state="not judged", reason="model is missing, so there is nothing to train", version=installed_version
        )
    try:
        if target.recipe is not None:
            refuse_model_code(target.recipe, is_trusted=runs_code)
    except ConfigError as error:
        return HostVerdict(state="not judged", reason=str(error), version=installed_version)
    try:
        question = question_of(target, world_size, artifact, tuple(trusted_modules))
    # Every object in a live config may refuse to be pickled in its own way.
    except Exception as error:
        reason = f"the ConfigContainer cannot be handed to another process: {type(error).__name__}: {error}"
        return HostVerdict(state="not judged", reason=reason, version=installed_version)
    started_s = time.monotonic()
    verdict = _answer(question)
    if verdict.state == "not importable":
        reason = f"megatron-bridge {installed_version} is installed, but {verdict.reason}"
        verdict = replace(verdict, reason=reason)
    return replace(verdict, version=installed_version, seconds=time.monotonic() - started_s)


def question_of(
    target: Target, world_size: int | None, artifact: Path | None, trusted_modules: tuple[str, ...] = ()
) -> Question:
    """Return what to ask of a target; raises whatever an object in a live config raises if it cannot be pickled."""
    facts: dict[str, Any] = {"world_size": world_size, "gpu": _gpu_of(target)}
    if target.recipe is not None:
        packs = artifact or target.artifact
        return Question(
            recipe=target.recipe.model_dump(mode="json", exclude_unset=True),
            artifact=None if packs is None else str(packs),
            **facts,
        )
    if target.kind == "saved":
        return Question(saved=str(target.file), trusted=trusted_modules, overrides=target.overrides, **facts)
    return Question(pickled=pickle.dumps(target.source), overrides=target.overrides, **facts)


def _gpu_of(target: Target) -> str:
    """Return the GPU that the name of the target or of its base recipe says."""
    model = target.recipe.model if target.recipe is not None else None
    name = f"{target.place} {model.name if model else ''}".lower()
    return next((gpu for gpu in _GPUS_BY_NAME if gpu in name), "h100")


def _answer(question: Question) -> HostVerdict:
    with tempfile.TemporaryDirectory(prefix="bridgepack-validate-") as scratch:
        variables = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **dict.fromkeys(_FOLDERS, scratch)}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "bridgepack.bridge.validating.child", scratch],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **_HIDDEN, **variables},
        )
        try:
            answer, errors = process.communicate(pickle.dumps(question), timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            reason = f"it did not answer within {LIMIT_S:.0f} s; check again on a machine with less to do"
            return HostVerdict(state="not judged", reason=reason)
        finally:
            process.kill()
            process.wait()
    if process.returncode or not answer:
        last = errors.decode(errors="replace").strip().rpartition("\n")[2]
        end_text = f"signal {-process.returncode}" if process.returncode < 0 else f"code {process.returncode}"
        return HostVerdict(state="not judged", reason=f"its process ended with {end_text}: {last or 'no message'}")
    values = json.loads(answer)
    return HostVerdict(**{**values, "where": tuple(values["where"])})
