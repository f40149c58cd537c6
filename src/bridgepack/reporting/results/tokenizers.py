"""What is wrong with a tokenizer itself, whatever the rows."""

from collections.abc import Iterable, Iterator

from bridgepack.records.flags import LostFlags
from bridgepack.reporting.blocks import Line

_LOSES_TEXT = (
    "this version of transformers loads the tokenizer as one that loses text (spaces, line ends), although its "
    "tokenizer.json does not; Megatron-Bridge would do the same here. Set tokenizer.loader to tokenizer_json, or use "
    "another version of transformers."
)


def tokenizer_warnings(lost_flags: Iterable[LostFlags], *, loses_text: bool | None) -> Iterator[Line]:
    """Yield what is wrong with a tokenizer itself."""
    if loses_text:
        yield Line(f"warning: {_LOSES_TEXT}")
    yield from (Line(f"warning: {token.loss}. {token.cure[0].upper()}{token.cure[1:]}.") for token in lost_flags)
