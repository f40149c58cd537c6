"""nemo-run's launchers, which start the processes of a task on a node."""

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from bridgepack.config.cluster.values import NotNegative, Port, Seconds, Switch, Text
from bridgepack.config.section import Section


class LauncherSection(Section):
    """Fields that every launcher of nemo-run has: profiling with Nsight Systems."""

    nsys_profile: Switch = False
    """Run the task under `nsys profile`."""
    nsys_folder: Text = "nsys_profile"
    """Folder of the profiles, relative to the job's folder."""
    nsys_filename: Text = "profile_%p"
    """File name of a profile; `%p` is the process id."""
    nsys_trace: tuple[Text, ...] = ("nvtx", "cuda")
    """APIs to trace."""
    nsys_extra_args: tuple[Text, ...] = (
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
    rdzv_backend: Text = "c10d"
    """Rendezvous backend."""
    rdzv_port: Port = 29500
    """Rendezvous port on the first node; a single node uses any free port."""
    rdzv_id: int | None = None
    """Rendezvous id; random by default."""


class FaultToleranceLauncher(LauncherSection):
    """ft_launcher of nvidia-resiliency-ext: a torchrun that monitors the ranks and restarts them."""

    kind: Literal["fault_tolerance"]
    rdzv_backend: Text = "c10d"
    """Rendezvous backend."""
    rdzv_port: Port = 29500
    """Rendezvous port on the first node."""
    rdzv_id: int | None = None
    """Rendezvous id; random by default."""
    workload_check_interval: Seconds | None = None
    """Seconds between checks of the ranks."""
    initial_rank_heartbeat_timeout: Seconds | None = None
    """Timeout in seconds until a rank's first heartbeat."""
    rank_heartbeat_timeout: Seconds | None = None
    """Timeout in seconds between a rank's heartbeats."""
    rank_termination_signal: Text | None = None
    """Signal that ends a rank, e.g. `SIGKILL`."""
    log_level: Text | None = None
    """Log level of the launcher, e.g. `INFO`."""
    max_restarts: NotNegative | None = None
    """Maximum restarts of the ranks within one job."""


class SlurmTemplateLauncher(LauncherSection):
    """A Jinja template wraps the command. Only on Slurm."""

    kind: Literal["slurm_template"]
    template_path: Text | None = None
    """Template file: an absolute path, or the name of a template that comes with nemo-run."""
    template_inline: Text | None = None
    """The template itself. nemo-run HTML-escapes inserted values: write `{{ command | safe }}`."""
    template_vars: dict[str, Any] = Field(default_factory=dict)
    """Values of the template variables other than `command`."""

    @model_validator(mode="after")
    def _check_one_template(self) -> Self:
        if (self.template_path is None) == (self.template_inline is None):
            found = "neither is set" if self.template_path is None else "both are set"
            raise ValueError(f"template_path and template_inline: {found}; allowed: exactly one of them. Set one.")
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
    head_setup: Text | None = None
    """Shell commands to run on the head when all workers have joined."""
    head_init_wait_time: NotNegative = 10
    """Seconds between checks that all workers have joined."""
    worker_init_wait_time: NotNegative = 60
    """Seconds that a worker waits for the head."""
    env_vars: dict[str, str] | None = None
    """Environment variables of the Ray processes."""


Launcher = Annotated[
    NoLauncher | TorchrunLauncher | FaultToleranceLauncher | SlurmTemplateLauncher | SlurmRayLauncher,
    Field(discriminator="kind"),
]
#: Launchers that start several processes per node themselves.
PROCESS_LAUNCHERS = frozenset({"torchrun", "fault_tolerance"})
