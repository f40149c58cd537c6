"""Options, plan and result of a build."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from bridgepack.data.artifact.artifact import changed_files, shard_problem
from bridgepack.data.output import remove_leftovers
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.remote import Readable
from bridgepack.data.shards.write import WrittenShard
from bridgepack.data.stages.finish import RangeResult
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.tasks import InThisProcess
from bridgepack.data.tokenizers.engines import EngineReport
from bridgepack.data.upload import Upload
from bridgepack.data.workers.memory import parse_memory
from bridgepack.data.workers.pool import WorkerPool
from bridgepack.data.workers.ray_runner import RaySettings, ray_settings
from bridgepack.errors import ArtifactError, ConfigError
from bridgepack.records import DropReason, Manifest
from bridgepack.records.results import Result, leaves
from bridgepack.records.words import count_text

#: Maximum changes that a message names.
_MAX_CHANGES = 3
#: Threads that hash shards.
_NUM_THREADS = 4
_REPLACING_ADVICE = (
    "Choose another output, or add --replace (replace=True in Python), which removes it once the new one is complete."
)


@dataclass(frozen=True, kw_only=True)
class ArtifactPlan(Result):
    """The artifact that a command would make."""

    output: Path  #: folder of the artifact
    spec: ArtifactSpec
    existing: Manifest | None  #: manifest of the artifact at `output`, even if incomplete; None if there is none
    copy: str | None = None  #: URL of the copy in an object store; None if no copy was requested

    @property
    def is_built(self) -> bool:
        """The output holds exactly this artifact, byte by byte."""
        return self._holds_this and not self.damage

    @property
    def _holds_this(self) -> bool:
        return self.existing is not None and self.existing.fingerprint == self.spec.fingerprint

    @cached_property
    def damage(self) -> Mapping[str, str]:
        """Files of this artifact at the output that changed since it was built -> what is wrong; reads all bytes."""
        if self.existing is None or not self._holds_this:
            return {}
        shards = [shard for split in self.existing.splits for shard in split.shards]
        damage_by_path = changed_files(self.output, self.existing)
        with ThreadPoolExecutor(_NUM_THREADS) as threads:
            problems = threads.map(partial(shard_problem, self.output), shards)
            damage_by_path |= {shard.path: problem for shard, problem in zip(shards, problems, strict=True) if problem}
        return damage_by_path

    def existing_result(self, options: "BuildOptions") -> "BuildResult | None":
        """Return the result if the output already holds this artifact; None if it has to be made.

        Raises:
            ArtifactError: the output holds another artifact, which may not be replaced; says what differs.
        """
        if self.is_built and self.existing is not None:
            remove_leftovers(self.output)
            return BuildResult(output=self.output, manifest=self.existing, was_built_before=True)
        if options.replaces or self.existing is None or self.existing.fingerprint == self.spec.fingerprint:
            return None
        raise ArtifactError(
            f"output is {str(self.output)!r}, which holds another artifact: its fingerprint is "
            f"{self.existing.fingerprint[:12]}; this recipe and its data give {self.spec.fingerprint[:12]} "
            f"({self._differences(self.existing)}). {options.replacing_advice or _REPLACING_ADVICE}"
        )

    def _differences(self, existing: Manifest) -> str:
        old, new = (
            {path: value for path, value in leaves(recipe) if path != "name"}
            for recipe in (existing.recipe, self.spec.resolved.recipe.model_dump(mode="json"))
        )
        changes = [path for path in new if old.get(path) != new[path]] + sorted(old.keys() - new.keys())
        hashes = {split.name: [record.sha256 for record in split.inputs] for split in existing.splits}
        inputs = {name: [record.sha256 for record in records] for name, records in self.spec.inputs.items()}
        changes += [f"the {name} files" for name, digests in inputs.items() if hashes.get(name) != digests]
        examples = [
            f"{path} {json.dumps(old.get(path))[:40]} -> {json.dumps(new.get(path))[:40]}" if path in new else path
            for path in changes[:_MAX_CHANGES]
        ]
        more = [f"{len(changes) - len(examples)} more"] if len(changes) > len(examples) else []
        return f"what differs: {', '.join([*examples, *more])}" if examples else "the tokenizer or versions differ"

    def headline(self) -> str:
        """Return what came out, in one line."""
        return f"{self.output}: {'it is built already' if self.is_built else 'to be built'}"

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as JSON values."""
        spec = self.spec
        return {
            "output": str(self.output),
            **({} if self.copy is None else {"copy": self.copy}),
            "fingerprint": spec.fingerprint,
            "is_built": self.is_built,
            "replaces": self.existing.fingerprint if self.existing is not None and not self.is_built else None,
            "inputs": {split: [asdict(record) for record in records] for split, records in spec.inputs.items()},
            "resolved": spec.resolved.explain(),
            "recipe": spec.resolved.recipe.model_dump(mode="json"),
        }

    def table(self) -> list[dict[str, Any]]:
        """Return the input files, with the split of each."""
        return [{"split": split, **asdict(file)} for split, inputs in self.spec.inputs.items() for file in inputs]


@dataclass(frozen=True, kw_only=True)
class BuildPlan(ArtifactPlan):
    """Plan of a build."""

    files: Mapping[str, list[InputFile]]  #: split -> input files
    stamps: Mapping[Readable, tuple[int, int]]  #: input file -> its stamp before it was hashed
    workers: WorkerPool | InThisProcess  #: the build's processes, or this one; the first loads the tokenizer
    engine: Callable[[], EngineReport]  #: waits until the engine is loaded and returns which one it is

    @property
    def is_built(self) -> bool:
        """The output holds exactly this artifact, without bad rows if the recipe stops at them, for the same server."""
        if self.existing is not None and self.existing.served is not None and self._serves_otherwise(self.existing):
            return False
        if self.existing is not None and self.spec.resolved.recipe.data.on_bad_row == "error":
            reasons = {reason for split in self.existing.splits for reason, number in split.drops.items() if number}
            return super().is_built and reasons <= {DropReason.DUPLICATE, DropReason.NOT_SAMPLED}
        return super().is_built

    def _serves_otherwise(self, existing: Manifest) -> bool:
        """Return whether the existing sample of answers was compared with another server's settings."""
        return existing.recipe.get("serving") != self.spec.resolved.recipe.serving.model_dump(mode="json")


@dataclass(kw_only=True)
class Kept:
    """Finished work of a build; it is on disk, and the same command reuses it."""

    output: str = ""  #: folder of the artifact
    store: str = ""  #: folder of the token store
    num_ranges_tokenized: int = 0
    num_ranges_found: int = 0  #: ranges whose tokens were already in the store
    num_rows_copied: int = 0  #: rows of tokenised ranges whose tokens for another maximum length were used again
    num_shards_written: int = 0
    num_shards_found: int = 0  #: shards that an interrupted build had written
    engine_message: str | None = None  #: message for the user about the tokenisation engine
    served_message: str | None = None  #: why there is no sample of answers as served; None if there is one

    def add_range(self, result: RangeResult) -> None:
        """Count a finished range."""
        self.num_ranges_tokenized += bool(result.parts) and result.was_tokenized
        self.num_ranges_found += bool(result.parts) and not result.was_tokenized
        self.num_rows_copied += result.num_rows_copied

    def add_shard(self, shard: WrittenShard) -> None:
        """Count a shard."""
        self.num_shards_written += not shard.was_there
        self.num_shards_found += shard.was_there

    def __str__(self) -> str:
        num_ranges = self.num_ranges_tokenized + self.num_ranges_found
        num_shards = self.num_shards_written + self.num_shards_found
        if not num_ranges:
            return "nothing was finished yet, and no partial files remain"
        shards = f" and {count_text(num_shards, 'shard')} of {self.output!r} are written" if num_shards else ""
        return (
            f"the tokens of {count_text(num_ranges, 'input range')} are in {self.store!r}{shards}; the same command "
            "resumes there"
        )


def no_sample(why: str) -> str:
    """Return the message that a build or a re-pack has no sample of answers as served."""
    return f"the sample of answers as served is left out, because {why}; `bridgepack prove served` compares the answers"


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult(Result):
    """Result of a build.

    Attributes:
        output: folder of the artifact.
        was_built_before: the artifact already existed and nothing was done.
        replaced_fingerprint: fingerprint of the artifact that was replaced; None if none was.
        damage: file of the replaced artifact -> how it had changed, if it had this fingerprint.
        kept: work that was reused from the store or an earlier build, and work that was done.
        upload: where in an object store the copy is, and what was sent; None if no copy was requested.
    """

    output: Path
    manifest: Manifest
    was_built_before: bool
    replaced_fingerprint: str | None = None
    damage: Mapping[str, str] = field(default_factory=dict)
    kept: Kept = field(default_factory=Kept)
    upload: Upload | None = None

    def headline(self) -> str:
        """Return what came out, in one line."""
        return f"{self.output}: {self.manifest.headline()}"

    def table(self) -> list[dict[str, Any]]:
        """Return the statistics of each split."""
        return [{"split": split.name, **asdict(split.statistics)} for split in self.manifest.splits]

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON values: the manifest, its folder, and what was done."""
        return {
            "output": str(self.output),
            "was_built_before": self.was_built_before,
            "replaced_fingerprint": self.replaced_fingerprint,
            "damage": dict(self.damage),
            **asdict(self.kept),
            **({"upload": asdict(self.upload)} if self.upload is not None else {}),
            **asdict(self.manifest),
        }


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildOptions:
    """How a build works; no effect on the bytes."""

    store: Path | None = None  #: folder of the token store; by default `.bridgepack/tokens` beside the artifact
    num_workers: int = 1  #: maximum processes; 0 runs all in the calling process, which a crashing tokenizer then ends
    memory_bytes: int | None = None  #: memory that the build may use; by default 3/4 of the free memory
    ray: RaySettings | None = None  #: the Ray cluster that runs the tasks; by default processes on this machine do
    #: an artifact with another fingerprint at the output is removed once the new one is complete; else it is an error
    replaces: bool = False
    replacing_advice: str = ""  #: what that error tells the user to do, if the caller cannot replace it


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
    """Return the options that a user gives.

    `num_workers` are processes, by default `default_workers`, or on Ray concurrent tasks, by default all CPUs;
    `memory` is a size, e.g. `8G`; `engine` is `local` or `ray`.

    Raises:
        ConfigError: an option is invalid, or Ray is not installed.
    """
    if engine not in {"local", "ray"}:
        raise ConfigError(f"engine is {engine!r}; allowed: local, ray. Use one of these.")
    if engine != "ray" and ray_address is not None:
        raise ConfigError(f"--ray-address is {ray_address!r}, but the engine is {engine!r}. Add --engine ray.")
    return BuildOptions(
        store=store,
        num_workers=default_workers if num_workers is None else num_workers,
        memory_bytes=None if memory is None else parse_memory(memory),
        ray=ray_settings(ray_address, num_workers) if engine == "ray" else None,
        replaces=replace,
    )
