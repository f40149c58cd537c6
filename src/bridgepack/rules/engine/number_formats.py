"""Widths of the matrix products, as the settings have them."""

from __future__ import annotations

from collections.abc import Mapping

from bridgepack.rules.engine.settings import Settings

_PRECISION, _FP8, _FP4 = "mixed_precision", "model.fp8", "model.fp4"
#: Part of a name -> kind; the first that fits counts.
_KINDS: Mapping[str, str] = {"nvfp4": "nvfp4", "mxfp8": "mxfp8", "fp8": "fp8", "e4m3": "fp8", "hybrid": "fp8"}


def number_format_of(settings: Settings) -> str:
    """Return `bf16`, `fp8`, `mxfp8` or `nvfp4`.

    Read from `model.fp8`, `model.fp8_recipe`, `model.fp4` and from `mixed_precision`, which is the name of a recipe
    before the host resolves it and a config afterwards.

    Raises:
        CannotJudgeError: none of them is stated.
    """
    known = [path for path in (_PRECISION, _FP8, _FP4) if settings.config.is_complete or settings.is_stated(path)]
    name = settings.value(_PRECISION) if _PRECISION in known or not known else None
    if isinstance(name, Mapping):
        parts = [name.get("fp8"), name.get("fp8_recipe") if name.get("fp8") else None]
        parts.append("nvfp4" if name.get("fp4") else None)
        name = " ".join(str(part) for part in parts if part)
    if _FP8 in known and settings.value(_FP8):
        recipe = settings.value("model.fp8_recipe") if settings.is_stated("model.fp8_recipe") else None
        name = f"{name} fp8 {recipe}"
    if _FP4 in known and settings.value(_FP4):
        name = f"{name} nvfp4"
    text = str(name or "").lower()
    return next((kind for word, kind in _KINDS.items() if word in text), "bf16")
