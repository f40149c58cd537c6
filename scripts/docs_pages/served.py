"""The page of served answers by family: the cells that a test compares with what is encoded."""

from pathlib import Path

from .cell_files import read_cells

FILE = Path(__file__).parents[2] / "tests/golden/served_families.json"

_INTRODUCTION = """\
# Served answers by family

How many trained answers are what a server shows, as `bridgepack prove served --all` counts them, and the tokens that
the cure costs. Templates and tokenizers were made for this table, with each family's markers and habits; none is a real
model's. Seven conversations a set: *plain* has two answers, *thoughts* two with a thought each, *agents* a
call with a thought, its result, the answer, and a follow-up.

| column | setting |
|---|---|
| default | as Megatron-Bridge trains |
| boundary | `mask_generation_prompt: true`, `masks_control_tokens: false` |
| switch | the same, and the template's own switches in training and serving |
| split | as boundary, `split_conversations: when_context_differs`, and a switch if rows are dropped without |

A cell is the share of answers that are equal, and the tokens packed, in multiples of the default. (n dropped) are
conversations that the template or the setting refuses, each with its reason in the ledger.

*thinking* behind a name: `enable_thinking: true` in training and serving, and `skip_think: false`, without which
EXAONE-4 shows no thought. Llama 3.3 has Llama 3.1's habits, Qwen3-Next Thinking those of Step-3.5.

Nothing cures the lines without 100%. Gemma 3 and Llama 2 refuse calls. DeepSeek-R1 opens a thought and never shows one.
MiniMax-M2 and Step-3.5 open a thought that rows without thoughts lack, and no variable leaves it out. EXAONE-4 writes
an empty thought before a call, of which a token lies across the end of what the server writes.

"""


def served_page() -> str:
    """Return the page."""
    lines = ["| family | set | default | boundary | switch | split |", "|---|---|---|---|---|---|"]
    for row, cells in read_cells(FILE).items():
        family, _, name = row.rpartition(": ")
        lines.append(f"| {family} | {name} | {' | '.join(cells.values())} |")
    return _INTRODUCTION + "\n".join(lines) + "\n"
