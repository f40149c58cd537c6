"""Environment variables that the host checks against its settings when a model is built: data, nothing is imported.

Source: megatron/core/models/common/language_module/language_module.py:108 and extensions/transformer_engine.py:1808,
1884 of 0.19.2; megatron/bridge/training/config.py:2053 of 0.6.2. Values of `env_vars` become text by `str`, and do not
replace those of the process: training/config.py:1845.
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
#: Beginning of the names of TransformerEngine's variables.
ENGINE_PREFIX = "NVTE_"


def backends_with(variables: Mapping[str, str]) -> list[str]:
    """Return the attention backends that agree with the variables that are set."""
    return [
        name for name, wanted in OF_BACKEND.items() if all(wanted[one] == value for one, value in variables.items())
    ]
