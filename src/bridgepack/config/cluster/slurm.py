"""The Slurm executor, and how Slurm's commands are reached."""

import re
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bridgepack.config.cluster.base import ExecutorSection, Facts
from bridgepack.config.cluster.values import (
    AbsolutePath,
    Count,
    MaybeAbsolutePath,
    Mount,
    NotNegative,
    Port,
    SlurmArray,
    SlurmJob,
    SlurmTime,
    Switch,
    Text,
    TextOrNumber,
)
from bridgepack.config.section import Section

_GRES_GPUS = re.compile(r"(?:^|,)\s*gpu(?::[^:,]+)??(?::(\d+))?(?:\([^)]*\))?\s*(?=,|$)")


class LocalTunnel(Section):
    """The launching machine is a login node: sbatch is called on it."""

    kind: Literal["local"]
    job_dir: MaybeAbsolutePath = ""
    """Folder of the jobs that all nodes see, absolute; by default `$NEMORUN_HOME/experiments`."""


class SSHTunnel(Section):
    """Slurm's commands are called over SSH on another machine."""

    kind: Literal["ssh"]
    host: Text
    """Login node."""
    user: Text
    """User on it."""
    job_dir: AbsolutePath
    """Folder of the jobs on the cluster, absolute, that all nodes see."""
    port: Port | None = None
    """Port of SSH; by default 22."""
    identity: Text | None = None
    """File of the private key; without it, and where no agent has a key, nemo-run asks for a password."""
    shell: Text | None = None
    """Shell on the login node."""
    pre_command: Text | None = None
    """Command before each of nemo-run's, e.g. `source /etc/profile`."""


Tunnel = Annotated[LocalTunnel | SSHTunnel, Field(discriminator="kind")]


class SlurmJobDetails(Section):
    """Name of a Slurm job and where its output goes."""

    job_name: Text | None = None
    """Name of the job; by default `ACCOUNT-ACCOUNT.TASK`, or with `job_name_prefix`."""
    folder: Text | None = None
    """Folder of the output on the cluster; by default the job's."""
    ray_log_prefix: Text = "ray-"
    """Start of the names of Ray's logs."""


class SlurmExecutor(ExecutorSection):
    """Jobs on a Slurm cluster, one for each task; with a container through pyxis."""

    FACTS: ClassVar[Facts] = Facts(
        class_name="SlurmExecutor",
        title="jobs on a Slurm cluster",
        launchers=("none", "torchrun", "fault_tolerance", "slurm_template", "slurm_ray"),
        nodes="nodes",
        processes="ntasks_per_node",
        gpus="gpus_per_node",
        gpu_only=(
            *("torchrun_nproc_per_node", "gpus_per_task", "cpus_per_gpu", "mem_per_gpu", "gres", "segment", "array"),
        ),
        exports_env_vars=True,
    )

    kind: Literal["slurm"]
    account: Text
    """Account that the jobs are charged to."""
    partition: Text | None = None
    """Partition, or several with commas."""
    job_name_prefix: Text | None = None
    """Start of the names of the jobs."""
    time: SlurmTime = "00:10:00"
    """Longest time of a job, as sbatch takes it. nemo-run's default is ten minutes."""
    nodes: Count | None = None
    """Nodes of the training job; by default as many as the recipe's GPUs fill. `build` and `check` take one."""
    ntasks_per_node: Count | None = None
    """Processes on a node: ranks with srun; with torchrun the processes that it starts. By default one for each
    GPU."""
    cpus_per_task: Count | None = None
    """Cores of a process; srun is told too, which since Slurm 22.05 takes one core otherwise."""
    cpus_per_gpu: Count | None = None
    """Cores for each GPU; Slurm wants `gpus_per_task` with it."""
    gpus_per_node: Count | None = None
    """GPUs of a node. Where the cluster has no GPUs as a resource to ask for, set `ntasks_per_node` instead."""
    gpus_per_task: Count | None = None
    """GPUs of a process."""
    qos: Text | None = None
    """Quality of service."""
    mem: TextOrNumber | None = None
    """Memory of a node, e.g. `0` for all or `64G`."""
    mem_per_gpu: TextOrNumber | None = None
    """Memory for each GPU."""
    mem_per_cpu: TextOrNumber | None = None
    """Memory for each core."""
    comment: Text | None = None
    """Comment on the job."""
    constraint: Text | None = None
    """Features that a node must have."""
    exclude: Text | None = None
    """Nodes not to use."""
    gres: Text | None = None
    """Generic resources of a node, e.g. `gpu:h100:8`."""
    signal: Text | None = None
    """Signal before the time is over, e.g. `TERM@60`."""
    exclusive: Switch | Text | None = None
    """`true` for whole nodes, or the way of sharing: `user`, `mcs`, `topo`."""
    array: SlurmArray | None = None
    """Job array of the training job. `0-9%1` is ten jobs one after the other, each resumes from the last checkpoint;
    several at once would write the same files."""
    open_mode: Literal["append", "truncate"] = "append"
    """What happens to the output of a job that starts again."""
    container_image: Text | None = None
    """Image for pyxis: a registry path or a .sqsh file; without it the job runs in the environment of the nodes."""
    container_mounts: tuple[Mount, ...] = ()
    """Folders in the container: `SOURCE:TARGET[:FLAGS]`. A source `/$nemo_run/...` is in the job's folder."""
    container_env: tuple[Text, ...] | None = None
    """Variables of the node that win over those of the image."""
    additional_parameters: dict[str, Any] | None = None
    """More parameters of sbatch, with `_` for `-`, e.g. `{mail_type: END}`."""
    srun_args: tuple[Text, ...] | None = None
    """More arguments of srun, e.g. `[--mpi=pmix]`."""
    heterogeneous: Switch = False
    """Heterogeneous job. nemo-run makes one of a group of tasks; a launch has none, and refuses it."""
    memory_measure: Switch = False
    """Run nvidia-smi beside the job."""
    job_details: SlurmJobDetails = SlurmJobDetails()
    """Name and output of the jobs."""
    tunnel: Tunnel = LocalTunnel(kind="local")
    """How Slurm's commands are reached."""
    dependencies: tuple[SlurmJob, ...] = ()
    """Slurm jobs that the first task waits for; the tasks wait for one another in any case."""
    dependency_type: Literal["after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer"] = "afterok"
    """What the first task waits for in `dependencies`. The tasks themselves always wait for the success of the one
    before."""
    torchrun_nproc_per_node: Count | None = None
    """Processes that torchrun starts on a node; by default `ntasks_per_node`, else one for each GPU."""
    wait_time_for_group_job: NotNegative = 30
    """Seconds between the parts of a group of tasks."""
    monitor_group_job: Switch = True
    """End a group of tasks when one of them ends."""
    monitor_group_job_wait_time: NotNegative = 60
    """Seconds between looks at a group of tasks."""
    setup_lines: Text | None = None
    """Shell lines of the job before the task, e.g. `module load cuda`."""
    het_group_indices: tuple[NotNegative, ...] | None = None
    """Groups of the parts of a heterogeneous job."""
    segment: Count | None = None
    """Nodes that must be in one block of the topology."""
    network: Text | None = None
    """Network option of sbatch, e.g. `sharp`."""
    ray_template: Text = "ray.sub.j2"
    """Template of nemo-run for Ray jobs."""
    poll_estimated_start_time: Switch = True
    """Print when Slurm expects a waiting job to start."""

    def gpus_in_gres(self) -> int | None:
        """Return the GPUs of a node that `gres` asks for, or None when it asks for none."""
        found = _GRES_GPUS.search(self.gres or "")
        return int(found.group(1) or 1) if found else None

    def paths_on_nodes(self) -> tuple[str, ...] | None:
        """Return the targets of the mounts, or None without a container."""
        if self.container_image is None:
            return None
        return tuple(mount.split(":")[1] for mount in self.container_mounts)
