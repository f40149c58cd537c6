"""What a build is asked for, what it would do, and what it did."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.contents import changed_files, shard_problem
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.remote import Readable
from bridgepack.data.stages.finish import RangeResult
from bridgepack.data.stages.shard_tasks import WrittenShard
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.tasks import InThisProcess
from bridgepack.data.tokenizers.engines import EngineReport
from bridgepack.data.upload import Upload
from bridgepack.data.workers.memory import parse_memory
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_cluster import RaySettings, ray_settings
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records import DropReason, Manifest
from bridgepack.records.results import Result, leaves

#: Changes that a message names.
_MAX_CHANGES = 3
_REPLACING_ADVICE = (
    "Choose another output, or add --replace (replace=True in Python), by which it goes once the new one is complete."
)


@dataclass(frozen=True, kw_only=True)
class ArtifactPlan:
    """What would be made."""

    output: Path  #: where the artifact goes
    spec: ArtifactSpec
    existing: Manifest | None  #: the manifest of the artifact at `output`, whole or not; None where there is none

    @property
    def is_built(self) -> bool:
        """The output holds this very artifact: shards of the right size, and the other files as they were built."""
        if self.existing is None or self.existing.fingerprint != self.spec.fingerprint:
            return False
        shards = [shard for split in self.existing.splits for shard in split.shards]
        return not changed_files(self.output, self.existing) and not any(
            shard_problem(self.output, shard, hashes=False) for shard in shards
        )

    def refuse_replacing(self, advice: str = "") -> None:
        """Accept an output that holds this very artifact, whole or not, or none.

        Args:
            advice: what to do instead; by default another output, or to replace it.

        Raises:
            ArtifactError: it holds another one, naming what differs.
        """
        if self.existing is None or self.existing.fingerprint == self.spec.fingerprint:
            return
        raise ArtifactError(
            f"output is {str(self.output)!r}, which holds another artifact: its fingerprint is "
            f"{self.existing.fingerprint[:12]}, and this recipe and its data give {self.spec.fingerprint[:12]} "
            f"({self._differences(self.existing)}). {advice or _REPLACING_ADVICE}"
        )

    def _differences(self, existing: Manifest) -> str:
        """Return what differs in recipe and inputs from an artifact that is there."""
        old, new = (
            {path: value for path, value in leaves(recipe) if path != "name"}
            for recipe in (existing.recipe, self.spec.resolved.recipe.model_dump(mode="json"))
        )
        changed = [path for path in new if old.get(path) != new[path]] + sorted(old.keys() - new.keys())
        hashes = {split.name: [record.sha256 for record in split.inputs] for split in existing.splits}
        inputs = {name: [record.sha256 for record in records] for name, records in self.spec.inputs.items()}
        changed += [f"the {name} files" for name, found in inputs.items() if hashes.get(name) != found]
        shown = [
            f"{path} {json.dumps(old.get(path))[:40]} -> {json.dumps(new.get(path))[:40]}" if path in new else path
            for path in changed[:_MAX_CHANGES]
        ]
        more = [f"{len(changed) - len(shown)} more"] if len(changed) > len(shown) else []
        return f"what differs: {', '.join([*shown, *more])}" if shown else "the tokenizer or versions differ"

    def summary(self) -> dict[str, Any]:
        """Return the plan as plain values, for JSON."""
        spec = self.spec
        return {
            "output": str(self.output),
            "fingerprint": spec.fingerprint,
            "is_built": self.is_built,
            "replaces": self.existing.fingerprint if self.existing is not None and not self.is_built else None,
            "inputs": {split: [asdict(record) for record in records] for split, records in spec.inputs.items()},
            "resolved": spec.resolved.explain(),
            "recipe": spec.resolved.recipe.model_dump(mode="json"),
        }


@dataclass(frozen=True, kw_only=True)
class BuildPlan(ArtifactPlan):
    """What a build would do."""

    files: Mapping[str, list[InputFile]]  #: split -> input files
    stamps: Mapping[Readable, tuple[int, int]]  #: input file -> its stamp before it was hashed
    workers: WorkerPool | InThisProcess  #: the processes of the build, or this one; the first loads what tokenises
    engine: Callable[[], EngineReport]  #: waits for what encodes texts and says which that is

    @property
    def is_built(self) -> bool:
        """The output holds this very artifact, and without bad rows where the recipe stops at them."""
        if self.existing is not None and self.spec.resolved.recipe.data.on_bad_row == "error":
            reasons = {reason for split in self.existing.splits for reason, number in split.drops.items() if number}
            return super().is_built and reasons <= {DropReason.DUPLICATE, DropReason.NOT_SAMPLED}
        return super().is_built


@dataclass(kw_only=True)
class Kept:
    """What a build has finished; all of it is on disk and is used when the same command is run again."""

    output: str = ""  #: folder of the artifact
    store: str = ""  #: folder of the token store
    num_ranges_tokenized: int = 0
    num_ranges_found: int = 0  #: ranges whose tokens were in the store
    num_shards_written: int = 0
    num_shards_found: int = 0  #: shards that an earlier build, which was ended, had written
    engine_message: str | None = None  #: what there is to say about the engine that encodes texts

    def add_range(self, result: RangeResult) -> None:
        """Count a range whose tokens are there."""
        self.num_ranges_tokenized += bool(result.parts) and result.was_tokenized
        self.num_ranges_found += bool(result.parts) and not result.was_tokenized

    def add_shard(self, shard: WrittenShard) -> None:
        """Count a shard."""
        self.num_shards_written += not shard.was_there
        self.num_shards_found += shard.was_there

    def __str__(self) -> str:
        """Say what is finished and what to do with it."""
        num_ranges = self.num_ranges_tokenized + self.num_ranges_found
        num_shards = self.num_shards_written + self.num_shards_found
        if not num_ranges:
            return "nothing was finished yet, and nothing is left behind"
        shards = f" and {_plural(num_shards, 'shard')} of {self.output!r} are written" if num_shards else ""
        return (
            f"the tokens of {_plural(num_ranges, 'input range')} are in {self.store!r}{shards}; the same command goes "
            "on from there"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult(Result):
    """What a build did.

    Attributes:
        output: folder of the artifact.
        was_built_before: the artifact was there already and nothing was done.
        replaced_fingerprint: of the artifact that was there before and is gone; None where there was none.
        kept: what of an earlier build or of the store was used, and what was made.
        upload: where in an object store a copy is, and what was sent; None where none was asked for.
    """

    output: Path
    manifest: Manifest
    was_built_before: bool
    replaced_fingerprint: str | None = None
    kept: Kept = field(default_factory=Kept)
    upload: Upload | None = None

    def table(self) -> list[dict[str, Any]]:
        """Return the statistics of each split."""
        return [{"split": split.name, **asdict(split.statistics)} for split in self.manifest.splits]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values, for JSON: the manifest, where it is, and what was done."""
        return {
            "output": str(self.output),
            "was_built_before": self.was_built_before,
            "replaced_fingerprint": self.replaced_fingerprint,
            **asdict(self.kept),
            **({"upload": asdict(self.upload)} if self.upload is not None else {}),
            **asdict(self.manifest),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """How a build works; the bytes are the same whatever it says.

    Attributes:
        store: folder of the token store; by default `.bridgepack/tokens` beside the artifact.
        num_workers: most processes; with 0 everything runs where it is called, and a tokenizer that ends its process
            ends that.
        memory_bytes: what the build may use; by default three quarters of what is free.
        ray: the Ray cluster that tasks run on; by default they run in processes of this machine.
        replaces: an artifact of another fingerprint at the output goes once the new one is complete; else it is an
            error.
        replacing_advice: what that error says to do, where the caller cannot replace it.
    """

    store: Path | None = None
    num_workers: int = 1
    memory_bytes: int | None = None
    ray: RaySettings | None = None
    replaces: bool = False
    replacing_advice: str = ""


def build_options(
    *,
    store: Path | None = None,
    num_workers: int | None = None,
    memory: str | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    replace: bool = False,
    default_workers: int = 1,
) -> BuildOptions:
    """Return options as a user states them.

    Args:
        store: folder of the token store.
        num_workers: most processes, or tasks at a time on Ray; by default `default_workers`, or all that Ray has.
        memory: a size, e.g. `8G`.
        engine: `local` or `ray`.
        ray_address: of a Ray cluster's head.
        replace: whether an artifact of another fingerprint goes.
        default_workers: processes of this machine.

    Raises:
        ConfigError: when one of them is impossible, or Ray is not installed.
    """
    if engine not in {"local", "ray"}:
        raise ConfigError(f"engine is {engine!r}; allowed: local, ray. Use one of these.")
    if engine != "ray" and ray_address is not None:
        raise ConfigError(f"--ray-address is {ray_address!r}, and the engine is {engine!r}. Add --engine ray.")
    return BuildOptions(
        store=store,
        num_workers=default_workers if num_workers is None else num_workers,
        memory_bytes=None if memory is None else parse_memory(memory),
        ray=ray_settings(ray_address, num_workers) if engine == "ray" else None,
        replaces=replace,
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" + ("s" if count != 1 else "")
