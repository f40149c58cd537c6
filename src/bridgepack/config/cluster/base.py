"""What every executor section shares: launchers, packagers, fields of nemo-run's Executor, facts about each kind."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.values import (
    Arguments,
    EnvironmentVariables,
    Lines,
    MaybeArguments,
    MaybeWord,
    NotNegative,
    Port,
    Seconds,
    Switch,
    Text,
    Word,
    WordOnNode,
)
from bridgepack.config.section import Section


class LauncherSection(Section):
    """Fields that every launcher of nemo-run has: profiling with Nsight Systems."""

    nsys_profile: Switch = False
    """Run the task under `nsys profile`."""
    nsys_folder: WordOnNode = "nsys_profile"
    """Folder of the profiles, relative to the job's folder."""
    nsys_filename: WordOnNode = "profile_%p"
    """File name of a profile; `%p` is the process id."""
    nsys_trace: tuple[WordOnNode, ...] = ("nvtx", "cuda")
    """APIs to trace."""
    nsys_extra_args: tuple[WordOnNode, ...] = (
        "--force-overwrite=true",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--cuda-event-trace=false",
    )
    """Further arguments of nsys."""
    nsys_gpu_metrics: Switch = False
    """Collect GPU metrics. Only on Slurm."""


class NoLauncher(LauncherSection):
    """The executor starts the command itself: srun one process per Slurm task, the others one per node."""

    kind: Literal["none"]


class TorchrunLauncher(LauncherSection):
    """torchrun starts the processes of each node."""

    kind: Literal["torchrun"]
    rdzv_backend: Word = "c10d"
    """Rendezvous backend."""
    rdzv_port: Port = 29500
    """Rendezvous port on the first node; a single node uses any free port."""
    rdzv_id: Annotated[int, Field(strict=True)] | None = None
    """Rendezvous id; random by default."""


class FaultToleranceLauncher(LauncherSection):
    """ft_launcher of nvidia-resiliency-ext: a torchrun that monitors the ranks and restarts them."""

    kind: Literal["fault_tolerance"]
    rdzv_backend: Word = "c10d"
    """Rendezvous backend."""
    rdzv_port: Port = 29500
    """Rendezvous port on the first node."""
    rdzv_id: Annotated[int, Field(strict=True)] | None = None
    """Rendezvous id; random by default."""
    workload_check_interval: Seconds | None = None
    """Seconds between checks of the ranks."""
    initial_rank_heartbeat_timeout: Seconds | None = None
    """Timeout in seconds until a rank's first heartbeat."""
    rank_heartbeat_timeout: Seconds | None = None
    """Timeout in seconds between a rank's heartbeats."""
    rank_termination_signal: Word | None = None
    """Signal that ends a rank, e.g. `SIGKILL`."""
    log_level: Word | None = None
    """Log level of the launcher, e.g. `INFO`."""
    max_restarts: NotNegative | None = None
    """Maximum restarts of the ranks within one job."""


class SlurmTemplateLauncher(LauncherSection):
    """A Jinja template wraps the command. Only on Slurm."""

    kind: Literal["slurm_template"]
    template_path: Text | None = None
    """Template file: an absolute path, or the name of a template that comes with nemo-run."""
    template_inline: Lines | None = None
    """The template itself. nemo-run HTML-escapes inserted values: write `{{ command | safe }}`. The shell
    runs the result as it is."""
    template_vars: dict[str, Any] = Field(default_factory=dict)
    """Values of the template variables other than `command`; the shell runs what the template makes of them."""

    @model_validator(mode="after")
    def _check_one_template(self) -> Self:
        if (self.template_path is None) == (self.template_inline is None):
            reason = "neither is set" if self.template_path is None else "both are set"
            raise ValueError(f"template_path and template_inline: {reason}; allowed: exactly one of them. Set one.")
        return self


class SlurmRayLauncher(LauncherSection):
    """A Ray cluster on the nodes of a Slurm job; the command runs only on the head. For `build`, not for training."""

    kind: Literal["slurm_ray"]
    gcs_server_port: Port = 6379
    """Port of the Ray head."""
    dashboard_port: Port = 8265
    """Port of the dashboard."""
    object_manager_port: Port = 8076
    """Port of the object manager."""
    node_manager_port: Port = 8077
    """Port of the node manager."""
    dashboard_agent_port: Port = 52365
    """Port of the dashboard agent."""
    dashboard_agent_grpc_port: Port = 52366
    """Port of the dashboard agent's gRPC server."""
    metrics_port: Port = 9002
    """Port of the metrics."""
    display_nvidia_smi_output: Switch = False
    """Print the output of nvidia-smi on each node at the start."""
    head_setup: Lines | None = None
    """Shell commands that the head runs as they are when all workers have joined."""
    head_init_wait_time: NotNegative = 10
    """Seconds between checks that all workers have joined."""
    worker_init_wait_time: NotNegative = 60
    """Seconds that a worker waits for the head."""
    env_vars: EnvironmentVariables | None = None
    """Environment variables of the Ray processes; the node expands `$NAME` and `${NAME}`, and runs no command in
    them."""


Launcher = Annotated[
    NoLauncher | TorchrunLauncher | FaultToleranceLauncher | SlurmTemplateLauncher | SlurmRayLauncher,
    Field(discriminator="kind"),
]
#: Launchers that start several processes per node themselves.
PROCESS_LAUNCHERS = frozenset({"torchrun", "fault_tolerance"})


class PackagerSection(Section):
    """Fields that every packager of nemo-run has."""

    debug: Switch = False
    """Set PyTorch's debugging flags: CUDA_LAUNCH_BLOCKING, TORCH_DISTRIBUTED_DEBUG and others. Slow. Only with the
    launchers torchrun and fault_tolerance."""
    symlink_from_remote_dir: Word | None = None
    """Folder on the cluster that already has the code; it is symlinked instead of packaging. Only on Slurm, and not
    with `none`."""


class NoPackager(PackagerSection):
    """No code is copied; the image or environment on the nodes already has it."""

    kind: Literal["none"]


class GitArchivePackager(PackagerSection):
    """The committed files of the git repository in the current folder; uncommitted changes are not included."""

    kind: Literal["git_archive"]
    basepath: MaybeWord = ""
    """Path of the repository; by default that of the current folder."""
    subpath: MaybeWord = ""
    """Subfolder of the repository to package; it becomes the task's working folder."""
    ref: Word = "HEAD"
    """Branch, tag or commit."""
    include_submodules: Switch = True
    """Also package submodules."""
    include_pattern: MaybeArguments | tuple[MaybeArguments, ...] = ""
    """Further files to package: arguments of `find`, or a list of these."""
    include_pattern_relative_path: MaybeWord | tuple[MaybeWord, ...] = ""
    """Folder that the paths of `include_pattern` are relative to; one per pattern."""
    check_uncommitted_changes: Switch = False
    """Refuse if the repository has uncommitted changes."""
    check_untracked_files: Switch = False
    """Refuse if the repository has untracked files."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        names = ("include_pattern", "include_pattern_relative_path")
        _check_same_length(names, self.include_pattern, self.include_pattern_relative_path)
        return self


class PatternPackager(PackagerSection):
    """Files that match patterns."""

    kind: Literal["pattern"]
    include_pattern: Arguments | Annotated[tuple[Arguments, ...], Field(min_length=1)]
    """Arguments of `find`, best an absolute path; or a list of these."""
    relative_path: Word | Annotated[tuple[Word, ...], Field(min_length=1)]
    """Folder that the paths in the package are relative to; one per pattern."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        _check_same_length(("include_pattern", "relative_path"), self.include_pattern, self.relative_path)
        return self


class HybridPackager(PackagerSection):
    """Several packagers in one package."""

    kind: Literal["hybrid"]
    sub_packagers: Annotated[dict[Word, SubPackager], Field(min_length=1)]
    """Folder in the package -> the packager that fills it."""
    extract_at_root: Switch = False
    """Extract the files of every packager at the package root instead of its folder."""


SubPackager = Annotated[GitArchivePackager | PatternPackager | HybridPackager, Field(discriminator="kind")]
Packager = Annotated[NoPackager | GitArchivePackager | PatternPackager | HybridPackager, Field(discriminator="kind")]
HybridPackager.model_rebuild()


def _check_same_length(names: tuple[str, str], *values: str | tuple[str, ...]) -> None:
    numbers = [1 if isinstance(value, str) else len(value) for value in values]
    if numbers[0] != numbers[1]:
        raise ValueError(
            f"{names[0]} has {numbers[0]} and {names[1]} has {numbers[1]}; allowed: equal numbers. "
            f"Give one folder per pattern."
        )


Task = Literal["build", "check", "train"]
TASKS: tuple[Task, ...] = ("build", "check", "train")


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What launches need to know about an executor class of nemo-run."""

    class_name: str  #: its name in nemo_run, or its dotted path
    title: str  #: short description for messages
    extra: str | None = None  #: extra of nemo-run that the class needs, or None
    #: launcher kinds that have an effect; nemo-run silently ignores the others, or fails
    launchers: tuple[str, ...] = ("none", "torchrun", "fault_tolerance")
    packagers: tuple[str, ...] = ("none", "git_archive", "pattern", "hybrid")  #: kinds that nemo-run accepts
    nodes: str = ""  #: field with the number of nodes; "" for none
    processes: str = ""  #: field with the processes per node
    gpus: str = ""  #: field with the GPUs per node
    gpu_only: tuple[str, ...] = ()  #: further fields to omit for a task without GPUs
    needs: tuple[str, ...] = ()  #: fields that a launch requires, besides those that the class itself requires
    job_folder: str = ""  #: field with the folder of the jobs, which must be on a volume; "" for none
    shell_paths: tuple[str, ...] = ()  #: fields that nemo-run writes unquoted into a shell script
    exports_env_vars: bool = False  #: nemo-run writes env_vars unquoted into a shell script

    @property
    def counts(self) -> frozenset[str]:
        """The fields with the numbers of nodes, processes and GPUs."""
        return frozenset({self.nodes, self.processes, self.gpus}) - {""}


class ExecutorSection(Section):
    """Fields that every executor of nemo-run has."""

    #: Facts about the nemo-run class that the section becomes.
    FACTS: ClassVar[Facts]

    packager: Packager = NoPackager(kind="none")
    """How the code in this folder reaches the nodes; `none` if the image or environment there already has it."""
    launcher: Launcher = NoLauncher(kind="none")
    """What starts the processes of the training task on a node. `build` and `check` are one process each and run
    without torchrun and fault_tolerance unless `tasks` sets a launcher."""
    env_vars: EnvironmentVariables = Field(default_factory=dict)
    """Environment variables of the tasks. `${env:NAME}` is replaced by that variable of the launching shell; use it for
    secrets. On Slurm, Kubeflow and DGX Cloud the node expands `$NAME` and `${NAME}`, and runs no command in them."""
    retries: NotNegative = 0
    """Maximum number of restarts of a failed task."""

    @property
    def facts(self) -> Facts:
        """Facts about the nemo-run class."""
        return self.FACTS

    @property
    def title(self) -> str:
        """The kind as messages name it; for other nemo-run classes the class name."""
        kind: str = self.value("kind")
        return self.facts.class_name.rpartition(".")[2] if kind == "nemo_run" else kind

    def value(self, name: str) -> Any:
        """Return the value of a field; None if it is not set or does not exist."""
        return getattr(self, name, None) if name else None
