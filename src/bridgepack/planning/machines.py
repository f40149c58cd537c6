"""GPUs that plans support: memory, speed and bandwidth."""

from dataclasses import dataclass

from bridgepack.config.errors import known_names, shown
from bridgepack.errors import ConfigError

#: Share of the memory that an estimate may fill; the rest is for kernels, NCCL and allocator overhead.
_USABLE = 0.875


@dataclass(frozen=True, kw_only=True, slots=True)
class Gpu:
    """A kind of GPU in its usual node."""

    name: str
    memory_gb: float  #: 10^9 bytes
    teraflops: float  #: dense bf16
    link_gb_s: float  #: to the others of its node, in one direction
    network_gb_s: float = 50.0  #: to other nodes, its share
    per_node: int = 8  #: GPUs that `link_gb_s` reaches

    @property
    def budget_gb(self) -> float:
        """Memory that an estimate may fill, in 10^9 bytes."""
        return self.memory_gb * _USABLE


#: Sources: data sheets of NVIDIA for A100 (SXM), H100 (SXM), H200, HGX B200 and B300, GB200 NVL72 and GB300 NVL72.
#: They give bf16 of Hopper and later with sparsity, halved here: H100 1,979, HGX B200 and B300 36,000 for 8 GPUs, GB200
#: and GB300 NVL72 360,000 for 72. NVLink of both directions is halved too: 600, 900, 1,800 GB/s. Each GPU has a network
#: card of its own: 200 Gb/s in a DGX A100, 400 with Hopper, B200 and GB200 (ConnectX-7), 800 with B300 and GB300
#: (ConnectX-8).
_GPUS = (
    Gpu(name="a100-40gb", memory_gb=40, teraflops=312, link_gb_s=300, network_gb_s=25),
    Gpu(name="a100-80gb", memory_gb=80, teraflops=312, link_gb_s=300, network_gb_s=25),
    Gpu(name="h100-80gb", memory_gb=80, teraflops=989, link_gb_s=450),
    Gpu(name="h200-141gb", memory_gb=141, teraflops=989, link_gb_s=450),
    Gpu(name="b200-180gb", memory_gb=180, teraflops=2250, link_gb_s=900),
    Gpu(name="gb200-186gb", memory_gb=186, teraflops=2500, link_gb_s=900, per_node=72),
    Gpu(name="b300-288gb", memory_gb=288, teraflops=2250, link_gb_s=900, network_gb_s=100),
    Gpu(name="gb300-279gb", memory_gb=279, teraflops=2500, link_gb_s=900, network_gb_s=100, per_node=72),
)
DEFAULT_GPU = "h100-80gb"


def gpu_named(name: str) -> Gpu:
    """Return a GPU by its name, or by the part of the name before the memory if it is unique.

    Raises:
        ConfigError: there is no such GPU.
    """
    known = {gpu.name: gpu for gpu in _GPUS}
    beginning = [gpu for gpu in _GPUS if gpu.name.partition("-")[0] == name.lower()]
    if len(beginning) == 1:
        return beginning[0]
    if name.lower() not in known:
        raise ConfigError(f"--gpu is {shown(name)}; {known_names(name.lower(), known)}")
    return known[name.lower()]
