"""What a tool returned, in a part of content, as text or parts of text."""

import json
from collections.abc import Mapping
from typing import Any

from bridgepack.config.layouts.contents import media_in


def text_of_result(content: Any) -> Any:
    """Return what a tool returned as text or parts of text: of objects, the text that JSON writes.

    [{"json": {"m": 200}}] -> '{"m": 200}'; {"type": "json", "value": {"m": 200}} -> '{"m": 200}'

    Parts that are seen or heard stay, as no text says what they do.
    """
    if isinstance(content, Mapping) and {*content} == {"type", "value"}:
        content = content["value"]
    if (
        isinstance(content, list)
        and len(content) == 1
        and isinstance(content[0], Mapping)
        and {*content[0]} == {"json"}
    ):
        content = content[0]["json"]
    if isinstance(content, list) and any(map(media_in, content)):
        return content
    if isinstance(content, str) or (isinstance(content, list) and content and all(map(_is_text, content))):
        return content
    return "" if content is None or content == [] else json.dumps(content, ensure_ascii=False)


def _is_text(part: Any) -> bool:
    return isinstance(part, Mapping) and part.get("type", "text") == "text" and isinstance(part.get("text"), str)


def text_of_documents(part: Mapping[str, Any]) -> str | None:
    """Return the text of a part that is a document of a tool's result, as Cohere's; None for other parts."""
    document = part.get("document") if part.get("type") == "document" else None
    if not isinstance(document, Mapping) or document.get("data") is None or not {*document} <= {"data", "id"}:
        return None
    data = document["data"]
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False)
