"""What a value of a row holds: text, a flag about the loss, or an identifier."""

from typing import Any, Literal

FLAGS = frozenset(
    {"weight", "train", "training", "loss", "loss_weight", "loss_mask", "loss_scale", "trainable", "mask"}
)


def holds(name: str, value: Any) -> Literal["text", "flag", "identifier"]:
    """Return what a value holds."""
    if name.rpartition(".")[2] in FLAGS:
        return "flag"
    if isinstance(value, str):
        return "text" if value.count(" ") >= 3 else "identifier"
    if isinstance(value, (list, tuple)):
        return "text" if any(holds("", item) == "text" for item in value[:50]) else "identifier"
    if isinstance(value, dict):
        return "text" if any(holds("", item) == "text" for item in value.values()) else "identifier"
    return "identifier"
