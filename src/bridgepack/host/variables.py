"""Environment variables that the host checks against its settings: data, nothing is imported.

Source: megatron/core/models/common/language_module/language_module.py:108 and extensions/transformer_engine.py:1808,
1884 of 0.19.2; megatron/bridge/training/config.py:1057,2053 of 0.6.2. Values of `env_vars` become text by `str`, and do
not replace those of the process: training/config.py:1845.
"""

from collections.abc import Mapping

ATTENTION_VARIABLES = ("NVTE_FLASH_ATTN", "NVTE_FUSED_ATTN", "NVTE_UNFUSED_ATTN")
#: Attention backend -> value that each of the variables has if it is set.
OF_BACKEND: Mapping[str, Mapping[str, str]] = {
    "flash": dict(zip(ATTENTION_VARIABLES, "100", strict=True)),
    "fused": dict(zip(ATTENTION_VARIABLES, "010", strict=True)),
    "unfused": dict(zip(ATTENTION_VARIABLES, "001", strict=True)),
    "local": dict(zip(ATTENTION_VARIABLES, "000", strict=True)),
    "auto": dict(zip(ATTENTION_VARIABLES, "111", strict=True)),
}
#: Generations of FlashAttention; with `flash_attention_version`, the variables of the others are 0 if they are set.
FLASH_VERSIONS: Mapping[int, str] = {version: f"NVTE_FLASH_ATTN_V{version}" for version in (2, 3, 4)}
#: Whether TransformerEngine scales queries by the number of their layer: 0 or 1, as the setting of the model says.
QUERY_SCALING = "NVTE_APPLY_QK_LAYER_SCALING"
#: Whether TransformerEngine may take algorithms that are not deterministic: 0 with `model.deterministic_mode`.
ENGINE_DETERMINISM = "NVTE_ALLOW_NONDETERMINISTIC_ALGO"
#: Values of NCCL_ALGO with `model.deterministic_mode`.
DETERMINISTIC_ALGORITHMS = ("Tree", "Ring", "CollnetDirect", "CollnetChain", "^NVLS")
#: Variable -> value that the host asks for with `model.deterministic_mode`.
DETERMINISTIC_VARIABLES: Mapping[str, str] = {"NCCL_ALGO": "Ring", ENGINE_DETERMINISM: "0"}
#: The same with `model.fine_grained_activation_offloading`.
OFFLOADING_VARIABLES: Mapping[str, str] = {"NVTE_CPU_OFFLOAD_V1": "1"}
#: Beginning of the names of TransformerEngine's variables.
ENGINE_PREFIX = "NVTE_"
#: Beginnings of variables that only the environment of a run decides, not that of a machine where it is checked.
RUN_VARIABLES = ("NCCL_", ENGINE_PREFIX, "CUDA_DEVICE_MAX_CONNECTIONS")


def backends_with(variables: Mapping[str, str]) -> list[str]:
    """Return the attention backends that agree with the variables that are set."""
    return [
        name
        for name, values in OF_BACKEND.items()
        if all(values[variable] == value for variable, value in variables.items())
    ]
