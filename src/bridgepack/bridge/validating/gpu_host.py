"""Makes Megatron-Bridge's checks of settings answer as on a host that has a GPU and TransformerEngine.

Only what the checks read is replaced, and only inside `pretend_gpu_host()`: nothing can be executed there.
`torch.cuda.is_available()` stays False. Upstream places: B/ is megatron-bridge 0.6.2, C/ is megatron-core 0.19.2.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType, SimpleNamespace
from typing import Any, NoReturn

from packaging.version import Version

from bridgepack.bridge.imports import import_host
from bridgepack.config.installed import top_packages

TRANSFORMER_ENGINE_VERSION = "2.20.2"
#: What `torch.cuda` tells of a device: (name, compute capability, memory in GiB).
GPUS = {"h100": ("NVIDIA H100 80GB HBM3", (9, 0), 80), "gb200": ("NVIDIA GB200", (10, 0), 186)}

_ROPE_KERNELS = ("fused_apply_rotary_pos_emb", "fused_apply_rotary_pos_emb_thd")
_PERMUTE_KERNELS = (
    *("fused_permute", "fused_permute_with_probs", "fused_unpermute"),
    *("fused_sort_chunks_by_index", "fused_sort_chunks_by_index_with_probs"),
)


@contextmanager
def pretend_gpu_host(gpu: str = "h100") -> Iterator[None]:
    """Let configurations be checked as where `gpu` and TransformerEngine are; restores everything on leaving.

    A module of megatron that is imported for the first time meanwhile is forgotten again: it would keep believing.
    """
    before = set(sys.modules)
    with ExitStack() as undone:
        for name, module in {**_transformer_engine(), **_loggers()}.items():
            _put_module(undone, name, module)
        for target, name, value in _answers(gpu):
            undone.callback(setattr, target, name, getattr(target, name))
            setattr(target, name, value)
        undone.callback(_forget_modules_since, before)
        yield


def _put_module(undone: ExitStack, name: str, module: ModuleType) -> None:
    previous = sys.modules.get(name)
    restore: Callable[[], Any] = (
        partial(sys.modules.pop, name, None) if previous is None else partial(sys.modules.__setitem__, name, previous)
    )
    undone.callback(restore)
    sys.modules[name] = module


def _answers(gpu: str) -> Iterator[tuple[Any, str, Any]]:
    """Yield (object, attribute, what it says of a GPU host)."""
    cuda = import_module("torch").cuda
    # C/utils.py:295 remembers the version it found; 0.0.0 stands for none.
    yield import_module("megatron.core.utils"), "_te_version", Version(TRANSFORMER_ENGINE_VERSION)
    # C/transformer/transformer_config.py:2184 and :2661 want these kernels; they are None without TransformerEngine.
    rope, moe = "megatron.core.models.common.embeddings.rope_utils", "megatron.core.transformer.moe.moe_utils"
    for module, kernels in ((rope, _ROPE_KERNELS), (moe, _PERMUTE_KERNELS)):
        for kernel in kernels:
            yield import_module(module), kernel, _refuse
    # C/utils.py:530 wants a CUDA device and the packages that hold the fused kernels of sparse attention.
    config = import_module("megatron.core.transformer.transformer_config")
    yield config, "_validate_dsa_kernel_backend_dependencies", lambda _: None
    # B/training/comm_overlap.py:449 switches the overlap off without TransformerEngine.
    yield import_host("training.comm_overlap"), "HAVE_TE", True
    # B/training/flex_dispatcher_backend.py:59 and :105.
    name, (major, minor), memory_gib = GPUS[gpu]
    properties = SimpleNamespace(name=name, major=major, minor=minor, total_memory=memory_gib << 30)
    yield cuda, "get_device_properties", lambda *_: properties
    yield cuda, "get_device_capability", lambda *_: (major, minor)


def _transformer_engine() -> dict[str, ModuleType]:
    """Return stand-ins for the modules that C/optimizer/optimizer_config.py:450 and C/utils.py:303 import."""
    names = ("transformer_engine", "transformer_engine.pytorch", "transformer_engine.pytorch.optimizers")
    modules = {name: ModuleType(name) for name in names}
    for name, module in modules.items():
        module.__spec__ = ModuleSpec(name, None, is_package=True)
        module.__path__ = []
    package, pytorch, optimizers = modules.values()
    package.__dict__.update(__version__=TRANSFORMER_ENGINE_VERSION, pytorch=pytorch)
    pytorch.__dict__.update(optimizers=optimizers)
    optimizers.__dict__.update(FusedAdam=_FusedAdam)
    return modules


def _loggers() -> dict[str, ModuleType]:
    """Return stand-ins for the loggers that B/training/config.py:700 imports, which may be installed where a run is."""
    return {name: ModuleType(name) for name in ("mlflow", "comet_ml") if find_spec(name) is None}


class _FusedAdam:
    """Has the arguments that C/optimizer/optimizer_config.py:452 looks for."""

    def __init__(
        self,
        params: Any,
        master_weight_dtype: Any = None,
        exp_avg_dtype: Any = None,
        exp_avg_sq_dtype: Any = None,
        use_decoupled_grad: bool = False,
    ) -> None:
        _refuse(params, master_weight_dtype, exp_avg_dtype, exp_avg_sq_dtype, use_decoupled_grad)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise RuntimeError("a kernel of TransformerEngine was called on a host that only pretends to have it")


def _forget_modules_since(before: set[str]) -> None:
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in top_packages():
            del sys.modules[name]
