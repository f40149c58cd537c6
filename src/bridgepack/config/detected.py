"""Sections of a new recipe for data as it was detected: its layouts, the kinds of its rows."""

from collections.abc import Mapping
from typing import Any

from bridgepack.config.document import stated_values
from bridgepack.config.layouts.detect import Detection


def data_for(
    data: str | tuple[str, ...], detection: Detection | None, parts: Mapping[str, Detection]
) -> dict[str, Any]:
    """Return fields of the section `data`: the training data, and its layout or those of its parts."""
    train = [{"path": path, "layout": _layout_values(part)} for path, part in parts.items()] or data
    layout = {"layout": _layout_values(detection)} if detection else {}
    return {"train": train, **layout}


def sets_for(sets: Mapping[str, tuple[str, Detection | None]]) -> list[dict[str, Any]]:
    """Return the field `data.validation`: named sets, those with another layout than the training data with it."""
    return [
        {"path": path, "name": name, **({"layout": _layout_values(layout)} if layout is not None else {})}
        for name, (path, layout) in sets.items()
    ]


def _layout_values(detection: Detection) -> Any:
    """Return a layout, or the list of several, as a recipe has it."""
    layouts = [stated_values(layout) for layout in detection.layouts]
    return layouts if detection.more else layouts[0]


def preprocessing_for(
    detection: Detection | None, parts: Mapping[str, Detection], usual: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the section `preprocessing`: of the data's kind, and obeying its flags about the loss.

    Of several kinds it is `usual`, if the data has it. Documents are split where they are too long, which loses no
    token.
    """
    detections = _all(detection, parts)
    kinds = [*dict.fromkeys(item.layout.kind for item in detections)]
    if kinds and usual["kind"] not in kinds:
        section = {"kind": kinds[0], "over_long": "split" if kinds[0] == "text" else usual.get("over_long", "drop")}
    else:
        obeys = {"message_weights": "mask"} if any(item.has_loss_flags for item in detections) else {}
        section = {**usual, **obeys}
    text_entry = (
        {"others": [{"kind": "text", "over_long": "split"}]} if "text" in kinds and section["kind"] != "text" else {}
    )
    return {**section, **text_entry}


def _all(detection: Detection | None, parts: Mapping[str, Detection]) -> list[Detection]:
    return [*([] if detection is None else [detection]), *parts.values()]
