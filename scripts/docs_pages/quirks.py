"""The page of quirky rows: the cells that a test compares with builds."""

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from .cell_files import read_cells

FILE = Path(__file__).parents[2] / "tests/golden/quirks.json"
#: What a cell begins with -> what it counts as.
_KINDS = {"✓": "right", "`": "fixed", "✗": "dropped", "!": "reported", "*": "silently wrong"}

_INTRODUCTION = """\
# Quirky rows

How unusual rows are handled, with chat templates of eleven families. Every cell is a build: what it trains is
decoded and compared with the row. Templates and tokenizers were made for this table, with each family's markers and
habits; none is a real model's.

| cell | means |
|---|---|
| ✓ | what is trained is what the row says, and nothing else; (! kind) is a finding beside it |
| `setting` (why) | right with this setting, which was tried; by default reported or dropped for the reason |
| ✗ reason | dropped; in the [ledger](artifact.md) with this reason |
| ! kind | trained as Megatron-Bridge would; a finding of `bridgepack check` names the row |
| ! kind ✗ | the same; `on_lost_content: drop` with `control_tokens: drop` drops it, which was tried |

`generation blocks` is `tokenizer.chat_template` with `{% generation %}` around what the assistant writes. Kinds are
those of [what a chat template loses](preprocessing.md#what-a-chat-template-loses). Mistral, DeepSeek-V3, gpt-oss
and the last three have `assistant_markers` in their recipe. GLM and Apertus do not end the last answer (`no_end`);
Llama 2 marks turns with plain text.

"""


def quirks_page() -> str:
    """Return the page."""
    return page_of_cells(read_cells(FILE))


def page_of_cells(cells: Mapping[str, Mapping[str, str]]) -> str:
    """Return the page of cells by kind of row and family."""
    families = list(next(iter(cells.values())))
    count = Counter(_KINDS[cell[0]] for by_family in cells.values() for cell in by_family.values())
    kinds = ", ".join(f"{count[kind]} {kind}" for kind in _KINDS.values())
    lines = [
        f"{len(cells)} kinds of rows and {len(families)} families: {kinds}.",
        "",
        f"| row | {' | '.join(families)} |",
        "|---" * (len(families) + 1) + "|",
    ]
    for what, by_family in cells.items():
        texts = list(by_family.values())
        if len(set(texts)) == 1 and texts[0] != "✓":
            texts = [f"all: {texts[0]}"] + [""] * (len(texts) - 1)
        lines.append(f"| {what} | {' | '.join(texts)} |")
    return _INTRODUCTION + "\n".join(lines) + "\n"
