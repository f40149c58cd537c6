"""What starts the processes of a task on a node: nemo-run's launchers."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.values import NotNegative, Port, Seconds, Switch, Text
from bridgepack.config.section import Section


class LauncherSection(Section):
    """Fields that every launcher of nemo-run has: profiling with Nsight Systems."""

    nsys_profile: Switch = False
    """Run the task under `nsys profile`."""
    nsys_folder: Text = "nsys_profile"
    """Folder of the profiles, in the job's folder."""
    nsys_filename: Text = "profile_%p"
    """Name of a profile; `%p` is the process id."""
    nsys_trace: tuple[Text, ...] = ("nvtx", "cuda")
    """What is traced."""
    nsys_extra_args: tuple[Text, ...] = (
        "--force-overwrite=true",
        "--capture-range=cudaProfilerApi",
        "--capture-range-end=stop",
        "--cuda-graph-trace=node",
        "--cuda-event-trace=false",
    )
    """More arguments of nsys."""
    nsys_gpu_metrics: Switch = False
    """Collect metrics of the GPUs. Only on Slurm."""


class NoLauncher(LauncherSection):
    """The executor starts the command itself: srun one process for each task, the others one on each node."""

    kind: Literal["none"]


class TorchrunLauncher(LauncherSection):
    """torchrun starts the processes of a node."""

    kind: Literal["torchrun"]
    rdzv_backend: Text = "c10d"
    """How the nodes find each other."""
    rdzv_port: Port = 29500
    """Port on the first node; a single node takes any free one."""
    rdzv_id: int | None = None
    """Number of the meeting of the nodes; by default a random one."""


class FaultToleranceLauncher(LauncherSection):
    """ft_launcher of nvidia-resiliency-ext: torchrun that watches the ranks and starts them again."""

    kind: Literal["fault_tolerance"]
    rdzv_backend: Text = "c10d"
    """How the nodes find each other."""
    rdzv_port: Port = 29500
    """Port on the first node."""
    rdzv_id: int | None = None
    """Number of the meeting of the nodes; by default a random one."""
    workload_check_interval: Seconds | None = None
    """Seconds between looks at the ranks."""
    initial_rank_heartbeat_timeout: Seconds | None = None
    """Seconds until the first sign of life of a rank."""
    rank_heartbeat_timeout: Seconds | None = None
    """Seconds between signs of life of a rank."""
    rank_termination_signal: Text | None = None
    """Signal that ends a rank, e.g. `SIGKILL`."""
    log_level: Text | None = None
    """Level of the launcher's log, e.g. `INFO`."""
    max_restarts: NotNegative | None = None
    """Times that the ranks are started again inside one job."""


class SlurmTemplateLauncher(LauncherSection):
    """A Jinja template wraps the command. Only on Slurm."""

    kind: Literal["slurm_template"]
    template_path: Text | None = None
    """File with the template: an absolute path, or the name of one that nemo-run brings."""
    template_inline: Text | None = None
    """The template itself. nemo-run escapes what it fills in as if for HTML: write `{{ command | safe }}`."""
    template_vars: dict[str, Any] = Field(default_factory=dict)
    """Values of the template's variables besides `command`."""

    @model_validator(mode="after")
    def _check_one_template(self) -> Self:
        if (self.template_path is None) == (self.template_inline is None):
            found = "neither is set" if self.template_path is None else "both are set"
            raise ValueError(f"template_path and template_inline: {found}; allowed: exactly one of them. Set one.")
        return self


class SlurmRayLauncher(LauncherSection):
    """A Ray cluster on the nodes of a Slurm job; the command runs on its head alone. For `build`, not for training."""

    kind: Literal["slurm_ray"]
    gcs_server_port: Port = 6379
    """Port of Ray's head."""
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
    """Print what nvidia-smi says on each node first."""
    head_setup: Text | None = None
    """Shell commands on the head once all workers are there."""
    head_init_wait_time: NotNegative = 10
    """Seconds between looks whether all workers are there."""
    worker_init_wait_time: NotNegative = 60
    """Seconds that a worker waits for the head to start."""
    env_vars: dict[str, str] | None = None
    """Environment variables of the Ray processes."""


Launcher = Annotated[
    NoLauncher | TorchrunLauncher | FaultToleranceLauncher | SlurmTemplateLauncher | SlurmRayLauncher,
    Field(discriminator="kind"),
]
#: Launchers that start several processes on a node themselves.
PROCESS_LAUNCHERS = frozenset({"torchrun", "fault_tolerance"})
