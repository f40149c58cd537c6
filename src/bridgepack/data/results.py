"""What a build is asked for, what it would do, and what it did."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from bridgepack.data.build_errors import Kept
from bridgepack.data.built import is_built
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.remote import Readable
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.upload import Upload
from bridgepack.data.workers.memory import parse_memory
from bridgepack.data.workers.ray_cluster import RaySettings, ray_settings
from bridgepack.errors import ConfigError
from bridgepack.records import Manifest

ENGINES = ("local", "ray")


@dataclass(frozen=True, kw_only=True)
class ArtifactPlan:
    """What would be made.

    Attributes:
        output: where the artifact goes.
        spec: what it is to be.
        existing: the manifest of the artifact at `output`, whole or not; None where there is none.
    """

    output: Path
    spec: ArtifactSpec
    existing: Manifest | None

    @property
    def is_built(self) -> bool:
        """The output holds this very artifact, with every file of the right size."""
        return is_built(self.output, self.existing, self.spec.fingerprint)

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
    """What a build would do.

    Attributes:
        files: split -> input files.
        stamps: input file -> its stamp before it was hashed.
    """

    files: dict[str, list[InputFile]]
    stamps: dict[Readable, tuple[int, int]]


@dataclass(frozen=True, kw_only=True, slots=True)
class BuildResult:
    """What a build did.

    Attributes:
        output: folder of the artifact.
        manifest: its manifest.
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

    def summary(self) -> dict[str, Any]:
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
    """

    store: Path | None = None
    num_workers: int = 1
    memory_bytes: int | None = None
    ray: RaySettings | None = None


def build_options(
    *,
    store: Path | None = None,
    num_workers: int | None = None,
    memory: str | None = None,
    engine: str = "local",
    ray_address: str | None = None,
    default_workers: int = 1,
) -> BuildOptions:
    """Return options as a user states them.

    Args:
        store: folder of the token store.
        num_workers: most processes, or tasks at a time on Ray; by default `default_workers`, or all that Ray has.
        memory: a size, e.g. `8G`.
        engine: `local` or `ray`.
        ray_address: of a Ray cluster's head.
        default_workers: processes of this machine.

    Raises:
        ConfigError: when one of them is impossible, or Ray is not installed.
    """
    if engine not in ENGINES:
        raise ConfigError(f"engine is {engine!r}; allowed: {', '.join(ENGINES)}. Use one of these.")
    if engine != "ray" and ray_address is not None:
        raise ConfigError(f"--ray-address is {ray_address!r}, and the engine is {engine!r}. Add --engine ray.")
    memory_bytes = None if memory is None else parse_memory(memory)
    return BuildOptions(
        store=store,
        num_workers=default_workers if num_workers is None else num_workers,
        memory_bytes=memory_bytes,
        ray=ray_settings(ray_address, num_workers) if engine == "ray" else None,
    )
