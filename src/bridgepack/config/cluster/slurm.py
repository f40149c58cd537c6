"""The Slurm executor, and the tunnels to Slurm's commands."""

import re
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from bridgepack.config.cluster.base import ExecutorSection, Facts
from bridgepack.config.cluster.values import (
    AbsolutePath,
    Count,
    Lines,
    MaybeAbsolutePath,
    Mount,
    NotNegative,
    ParameterName,
    ParameterValue,
    Port,
    SlurmArray,
    SlurmJob,
    SlurmTime,
    SrunArguments,
    Switch,
    Text,
    TextOrNumber,
    Word,
)
from bridgepack.config.section import Section

_GRES_GPUS = re.compile(r"(?:^|,)\s*gpu(?::[^:,]+)??(?::(\d+))?(?:\([^)]*\))?\s*(?=,|$)", re.ASCII)


class LocalTunnel(Section):
    """The launching machine is a login node and calls sbatch itself."""

    kind: Literal["local"]
    job_dir: MaybeAbsolutePath = ""
    """Absolute path of the job folder, visible to all nodes; by default `$NEMORUN_HOME/experiments`."""


class SSHTunnel(Section):
    """Slurm's commands run over SSH on another machine."""

    kind: Literal["ssh"]
    host: Word
    """Host name of the login node."""
    user: Word
    """User name on the login node."""
    job_dir: AbsolutePath
    """Absolute path of the job folder on the cluster, visible to all nodes."""
    port: Port | None = None
    """SSH port; by default 22."""
    identity: Word | None = None
    """Private key file; without it and without a key in an SSH agent, nemo-run asks for a password."""
    shell: Word | None = None
    """Shell on the login node."""
    pre_command: Lines | None = None
    """Command to run before each of nemo-run's commands, e.g. `source /etc/profile`; the login node's shell runs it as
    it is."""


Tunnel = Annotated[LocalTunnel | SSHTunnel, Field(discriminator="kind")]


class SlurmJobDetails(Section):
    """Name of a Slurm job and where its output goes."""

    job_name: Word | None = None
    """Name of the job; by default `RUN.TASK`, or with `job_name_prefix`."""
    folder: Word | None = None
    """Folder of the output on the cluster; by default the job's folder."""
    ray_log_prefix: Word = "ray-"
    """Prefix of Ray's log names."""


class SlurmExecutor(ExecutorSection):
    """Slurm jobs, one per task; containers through pyxis."""

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
    account: Word
    """Account that the jobs are charged to."""
    partition: Text | None = None
    """Partition, or several separated by commas."""
    job_name_prefix: Word | None = None
    """Prefix of the job names; by default `RUN.`, the name of the run."""
    time: SlurmTime = "00:10:00"
    """Time limit of a job, in sbatch's format. nemo-run's default is 10 minutes."""
    nodes: Count | None = None
    """Nodes of the training job; by default as many as the recipe's GPUs fill. `build` and `check` use one."""
    ntasks_per_node: Count | None = None
    """Processes per node: ranks with srun, or the processes that torchrun starts. By default one per GPU."""
    cpus_per_task: Count | None = None
    """CPU cores per process. It is also passed to srun, which since Slurm 22.05 uses one core otherwise."""
    cpus_per_gpu: Count | None = None
    """CPU cores per GPU; Slurm needs `gpus_per_task` with it."""
    gpus_per_node: Count | None = None
    """GPUs per node. If GPUs are not a requestable resource of the cluster, set `ntasks_per_node` instead."""
    gpus_per_task: Count | None = None
    """GPUs per process."""
    qos: Text | None = None
    """Quality of service."""
    mem: TextOrNumber | None = None
    """Memory per node, e.g. `64G`, or `0` for all."""
    mem_per_gpu: TextOrNumber | None = None
    """Memory per GPU."""
    mem_per_cpu: TextOrNumber | None = None
    """Memory per CPU core."""
    comment: Text | None = None
    """Comment on the job."""
    constraint: Text | None = None
    """Required node features."""
    exclude: Text | None = None
    """Nodes to exclude."""
    gres: Text | None = None
    """Generic resources per node, e.g. `gpu:h100:8`."""
    signal: Text | None = None
    """Signal to send before the time limit, e.g. `TERM@60`."""
    exclusive: Switch | Text | None = None
    """`true` for whole nodes, or the sharing mode: `user`, `mcs`, `topo`."""
    array: SlurmArray | None = None
    """Job array of the training job. `0-9%1` runs ten jobs one after another, each resuming from the last checkpoint;
    concurrent jobs would write the same files."""
    open_mode: Literal["append", "truncate"] = "append"
    """What a restarted job does with its output file."""
    container_image: Word | None = None
    """Image for pyxis: a registry path or a .sqsh file; without it, the job runs directly on the nodes."""
    container_mounts: tuple[Mount, ...] = ()
    """Folders mounted into the container: `SOURCE:TARGET[:FLAGS]`. A source `/$nemo_run/...` is in the job's folder;
    the node expands `$NAME`."""
    container_env: tuple[Word, ...] | None = None
    """Variables of the node that override those of the image."""
    additional_parameters: dict[ParameterName, ParameterValue] | None = None
    """Further sbatch parameters, with `_` for `-`, e.g. `{mail_type: END}`."""
    srun_args: tuple[SrunArguments, ...] | None = None
    """Further srun arguments, e.g. `[--mpi=pmix]`; the node expands `$NAME`."""
    heterogeneous: Switch = False
    """Heterogeneous job. nemo-run needs a task group for it; a launch has none and refuses `true`."""
    memory_measure: Switch = False
    """Log nvidia-smi while the job runs."""
    job_details: SlurmJobDetails = SlurmJobDetails()
    """Name and output of the jobs."""
    tunnel: Tunnel = LocalTunnel(kind="local")
    """How to reach Slurm's commands."""
    dependencies: tuple[SlurmJob, ...] = ()
    """Slurm jobs that the first task waits for; the tasks always wait for one another."""
    dependency_type: Literal["after", "afterany", "afterok", "afternotok", "aftercorr", "afterburstbuffer"] = "afterok"
    """Condition on `dependencies` for the first task. Each further task always waits for the success of the previous
    one."""
    torchrun_nproc_per_node: Count | None = None
    """Processes that torchrun starts per node; by default `ntasks_per_node`, else one per GPU."""
    wait_time_for_group_job: NotNegative = 30
    """Seconds between the starts of the tasks in a group."""
    monitor_group_job: Switch = True
    """End a task group when one of its tasks ends."""
    monitor_group_job_wait_time: NotNegative = 60
    """Seconds between checks of a task group."""
    setup_lines: Lines | None = None
    """Shell lines that each node runs as they are before the task, e.g. `module load cuda`."""
    het_group_indices: tuple[NotNegative, ...] | None = None
    """Group indices of a heterogeneous job."""
    segment: Count | None = None
    """Number of nodes that must be in one block of the network topology."""
    network: Text | None = None
    """Network option of sbatch, e.g. `sharp`."""
    ray_template: Text = "ray.sub.j2"
    """nemo-run's template for Ray jobs."""
    poll_estimated_start_time: Switch = True
    """Print the start time that Slurm estimates for a pending job."""

    def gpus_in_gres(self) -> int | None:
        """Return the GPUs per node that `gres` requests, or None."""
        match = _GRES_GPUS.search(self.gres or "")
        return int(match.group(1) or 1) if match else None
