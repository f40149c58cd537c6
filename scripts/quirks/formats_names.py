"""The formats by name: of each public layout a row, and what a build trains of it with Qwen3's template."""

import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bridgepack.config.document import stated_values
from bridgepack.config.layouts.detect import Detection, detect
from bridgepack.config.layouts.preferences import PREFERENCE_CHOSEN
from bridgepack.config.layouts.public import PUBLIC_LAYOUTS
from tests.zoo.families import FAMILIES

from .builds import CUT, Builder
from .formats_rows import FORMATS
from .formats_texts import Format, Texts

_DOCUMENT = {"text": "The lake of Uri is 200 m deep.", "url": "https://example.org"}
_ANSWER = "It is deep.<|im_end|>"
_QWEN3 = next(family for family in FAMILIES if family.name == "Qwen3")


class Example(NamedTuple):
    """A row of a layout, and the runs of text that are trained of it."""

    row: Mapping[str, Any]
    trained: tuple[str, ...]


def examples() -> dict[str, Example]:
    """Return an example of each layout that is read, by its name and what the row has beside others."""
    with tempfile.TemporaryDirectory() as scratch:
        builder = Builder(Path(scratch), _QWEN3)
        chats = {name_of(one): one.row(Texts(is_carried=False)) for one in FORMATS}
        found = _built(builder, chats, {"kind": "chat", "message_weights": "mask"})
        found |= _built(builder, {"text": _DOCUMENT}, {"kind": "text"})
        return found | _built(builder, {"tokenized": _tokens(builder)}, {"kind": "tokenized"})


def name_of(one: Format) -> str:
    """Return the heading of a format: `messages, a call and tools`."""
    return ", ".join(filter(None, (one.name, one.more.replace("`", ""))))


def detection_of(name: str, row: Mapping[str, Any]) -> Detection:
    """Return the layout of a row; one that rows do not tell is chosen by its name."""
    return detect([row], name=name if name == PREFERENCE_CHOSEN else None)


def _tokens(builder: Builder) -> dict[str, Any]:
    question, answer = (builder.encode(text) for text in ("Which lake? ", _ANSWER))
    return {"input_ids": [*question, *answer], "labels": [-100] * len(question) + answer}


def _built(
    builder: Builder, rows: Mapping[str, Mapping[str, Any]], preprocessing: Mapping[str, Any]
) -> dict[str, Example]:
    detections = {name: detection_of(name.partition(",")[0], row) for name, row in rows.items()}
    sources = [([row], stated_values(detections[name].layout)) for name, row in rows.items()]
    outcomes = builder.build_sources(sources, preprocessing, {})
    trained = [tuple(text for text in one.trained.split(CUT) if text) for (one,) in outcomes]
    return {name: Example(rows[name], texts) for name, texts in zip(rows, trained, strict=True)}


def lines_by_name(found: Mapping[str, Example]) -> Iterator[str]:
    """Yield the lines of the section that has a row of every layout."""
    entries = {entry.name: entry for entry in PUBLIC_LAYOUTS}
    yield "## By name"
    for name, example in sorted(found.items()):
        entry = entries[name.partition(",")[0]]
        row = json.dumps(example.row, ensure_ascii=False)
        trained = "\n".join(f"⟦{text}⟧" for text in example.trained)
        title = entry.title if entry.title[1].isupper() else entry.title[0].upper() + entry.title[1:]
        of_sets = ", ".join(f"[`{one.name}`]({one.url}) ({one.title})" for one in entry.data_sets)
        others = f" Other names: {of_sets}." if of_sets and name == entry.name else ""
        yield f"\n### {name}\n\n{title} ([source]({entry.url})).{others}\n"
        yield f"```json\n{row}\n```\n\nTrained:\n\n```text\n{trained}\n```"
