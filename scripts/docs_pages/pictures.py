"""Pictures of the documentation, as SVG: from the same functions that pack and cut, light and dark, 400 units wide."""

from collections.abc import Callable, Iterable, Sequence
from html import escape

import numpy as np

from bridgepack.data.packing.balance import balanced_order, pack_costs, straggler_ratios
from bridgepack.data.packing.plan import plan_packs
from bridgepack.geometry import IntArray
from bridgepack.host import TARGET
from bridgepack.records import PackedRow
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.slicing import thd_positions

_WIDTH = 400
_STYLE = """\
text{font:12px system-ui,sans-serif;fill:#1f2933}.m{fill:#52606d;font-size:11px}.h{font-weight:600;font-size:13px}
.c{text-anchor:middle}.n{font-family:ui-monospace,monospace}rect{stroke:#9aa5b1;rx:3px}
.a{fill:#cfe3ff}.b{fill:#ffe0b8}.p{fill:#e4e7eb}.w{fill:#fff}.g{fill:#c9f0d3}.r{fill:#ffd3d3}
path{stroke:#52606d;fill:none}.e{fill:#52606d;stroke:none}.bg{fill:#fff;stroke:none}
@media (prefers-color-scheme:dark){text{fill:#e4e7eb}.m{fill:#b8c2cc}rect{stroke:#616e7c}
.a{fill:#1d4f8c}.b{fill:#7a4a0b}.p{fill:#3e4c59}.w{fill:#27323d}.g{fill:#1f5c33}.r{fill:#7d2626}
path{stroke:#b8c2cc}.e{fill:#b8c2cc}.bg{fill:#1f2933}}"""


class Drawing:
    """An SVG that grows downwards; `y` is where the next thing goes."""

    def __init__(self, title: str, description: str) -> None:
        self.title, self.description = title, description
        self.parts: list[str] = []
        self.y = 22

    def text(self, x: float, y: float, text: str, style: str = "") -> None:
        """Write at a place."""
        self.parts.append(f'<text x="{x:g}" y="{y:g}"{_class(style)}>{escape(text)}</text>')

    def box(self, x: float, y: float, width: float, height: float, style: str) -> None:
        """Draw a box at a place."""
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}"{_class(style)}/>')

    def arrow(self, x: float, y: float, to_x: float, to_y: float) -> None:
        """Draw an arrow that ends pointing down."""
        head = f"M{to_x:g} {to_y:g}l-4 -7h8z"
        self.parts.append(f'<path d="M{x:g} {y:g}L{to_x:g} {to_y - 6:g}"/><path class="e" d="{head}"/>')

    def heading(self, text: str, note: str = "") -> None:
        """Write a heading, and below it what it is about."""
        self.text(10, self.y, text, "h")
        if note:
            self.y += 16
            self.text(10, self.y, note, "m")
        self.y += 9

    def cells(self, label: str, values: Sequence[object], styles: Iterable[str], *, width: float = 38) -> None:
        """Draw a row of values in boxes behind a label."""
        self.text(10, self.y + 15, label, "m")
        for index, (value, style) in enumerate(zip(values, styles, strict=True)):
            x = 110 + index * width
            self.box(x, self.y, width - 3, 22, style)
            self.text(x + (width - 3) / 2, self.y + 15, str(value), "c n")
        self.y += 26

    def svg(self) -> str:
        """Return the picture as it is now."""
        height = self.y + 4
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:g}" width="{_WIDTH * 1.4:g}"'
            f' role="img" aria-labelledby="t d">\n<title id="t">{escape(self.title)}</title>\n'
            f'<desc id="d">{escape(self.description)}</desc>\n<style>\n{_STYLE}\n</style>\n'
            + "\n".join([f'<rect class="bg" width="{_WIDTH}" height="{height:g}"/>', *self.parts])
            + "\n</svg>\n"
        )


def _class(style: str) -> str:
    return f' class="{style}"' if style else ""


def _trained(mask: Sequence[int]) -> list[str]:
    return ["g" if value else "w" for value in mask]


def row_to_pack() -> str:
    """Return how two rows become one pack, and what Megatron-Bridge makes of it."""
    drawing = Drawing("How rows become a pack", "Two conversations become tokens and masks, a stored pack, a batch.")
    drawing.heading("1  Rows", "conversations, one a line")
    for index, (style, question, answer) in enumerate((("a", "user: 2 + 2?", "assistant: 4"), ("b", "Hi", "Hello"))):
        x = 10 + index * 195
        drawing.box(x, drawing.y, 185, 26, style)
        drawing.text(
            x + 8, drawing.y + 17, f"{question}   {answer}" if index == 0 else f"user: {question}   assistant: {answer}"
        )
    drawing.y += 48
    drawing.heading("2  Tokens and loss mask", "chat template and tokenizer; green tokens are trained")
    drawing.cells("tokens", [11, 12, 13, 2, 21, 22, 2], "aaaabbb")
    drawing.cells("mask", [0, 0, 1, 1, 0, 1, 1], _trained([0, 0, 1, 1, 0, 1, 1]))
    drawing.y += 22
    drawing.heading("3  Plan", "lengths only: 3 + 2 of packed_sequence_size 6")
    for x, width, style, text in ((110, 111, "a", "3"), (224, 73, "b", "2"), (300, 35, "p", "free")):
        drawing.box(x, drawing.y, width, 22, style)
        drawing.text(x + width / 2, drawing.y + 15, text, "c")
    drawing.y += 48
    ids, starts = [11, 12, 13, 2, 21, 22, 2], [0, 4]
    mask = [0, 1, 1, 0, 1, 1, 0]
    drawing.heading("4  Stored pack", "the mask moves one place left inside each sequence")
    drawing.cells("input_ids", ids, "aaaabbb")
    drawing.cells("loss_mask", mask, _trained(mask))
    drawing.cells("seq_start_id", starts, "ab")
    drawing.y += 22
    settings = CollateSettings(
        release=TARGET, packed_sequence_size=6, pad_seq_to_mult=1, eos_token_id=2, pad_to_max_length=True
    )
    row = PackedRow(
        input_ids=np.array(ids, np.int32), loss_mask=np.array(mask, np.int8), seq_start_id=np.array(starts, np.int32)
    )
    batch = predict_batch([row], settings)
    drawing.heading("5  What Megatron-Bridge trains on", "the grey tail fills the width; its mask is 0")
    drawing.cells("tokens", batch.tokens[0].tolist(), "aaabbp")
    drawing.cells("labels", batch.labels[0].tolist(), "aaabbp")
    drawing.cells("loss_mask", batch.loss_mask[0].tolist(), _trained(batch.loss_mask[0].tolist()))
    drawing.cells("cu_seqlens", batch.cu_seqlens[0].tolist(), "abpw")
    return drawing.svg()


def mask_shift() -> str:
    """Return how the mask of tokens becomes the mask of labels."""
    words = ["user", "Hi", "asst", "Hel", "lo", "END"]
    drawing = Drawing(
        "How the loss mask moves from token to label",
        "A token is trained where it is the label, so the stored mask lies one place to the left of the token.",
    )
    drawing.heading("Token-aligned", "1: the assistant wrote this token")
    drawing.cells("token", words, "wwwggg", width=46)
    drawing.cells("mask", [0, 0, 0, 1, 1, 1], _trained([0, 0, 0, 1, 1, 1]), width=46)
    for index in range(3, 6):
        drawing.arrow(131 + index * 46, drawing.y, 131 + (index - 1) * 46, drawing.y + 48)
    drawing.y += 26
    drawing.heading("Stored, label-aligned", "")
    drawing.y += 14
    drawing.cells("mask", [0, 0, 1, 1, 1, 0], _trained([0, 0, 1, 1, 1, 0]), width=46)
    drawing.y += 22
    drawing.heading("What the model sees", "reads the input, is trained to write the label below it")
    drawing.cells("input", words[:-1], "wwwww", width=46)
    drawing.cells("label", words[1:], "wwggg", width=46)
    drawing.cells("mask", [0, 0, 1, 1, 1], _trained([0, 0, 1, 1, 1]), width=46)
    drawing.text(110, drawing.y + 14, "END is trained, so the model learns to stop.", "m")
    drawing.y += 20
    return drawing.svg()


def context_parallel() -> str:
    """Return which tokens of a pack two context-parallel ranks get."""
    drawing = Drawing(
        "What context parallelism cuts",
        "Each sequence is cut into four chunks; rank 0 gets the first and the last, rank 1 the two in the middle.",
    )
    offsets = [0, 8, 12]
    width = 24
    sequence = ["a"] * 8 + ["b"] * 4
    drawing.heading("One pack, two sequences, CP 2", "every sequence is cut into 2 x CP = 4 chunks")
    drawing.cells("position", range(12), sequence, width=width)
    owners = {position: rank for rank, row in enumerate(thd_positions(offsets, 12, 2).tolist()) for position in row}
    drawing.cells(
        "rank",
        [owners[position] for position in range(12)],
        ["g" if owners[p] == 0 else "p" for p in range(12)],
        width=width,
    )
    drawing.y += 20
    for rank, positions in enumerate(thd_positions(offsets, 12, 2).tolist()):
        note = "front and back" if rank == 0 else "the middle"
        drawing.heading(f"Rank {rank}: {note} of each", "")
        drawing.cells("gets", positions, [sequence[position] for position in positions], width=width)
        drawing.y += 16
    drawing.heading("A sequence of 6 does not divide by 4", "unpadded, ranks read some tokens twice and others never")
    broken = thd_positions([0, 6, 12], 12, 2)
    seen = [int((broken == position).sum()) for position in range(12)]
    drawing.cells("position", range(12), "aaaaaabbbbbb", width=width)
    drawing.cells("read", [f"{count}x" for count in seen], ["w" if count == 1 else "r" for count in seen], width=width)
    drawing.text(110, drawing.y + 14, "pad_seq_to_mult 4 pads each to 8.", "m")
    drawing.y += 20
    return drawing.svg()


def _costs_of_a_step() -> IntArray:
    """Return the costs of 16 packs of 131,072 tokens with chats, long sequences and a few as long as a pack."""
    rng = np.random.default_rng(0)
    parts = [rng.integers(100, 2_000, 800), rng.integers(4_000, 16_000, 45), rng.integers(65_536, 131_072, 7)]
    lengths = np.concatenate(parts)
    plan = plan_packs(lengths, packed_sequence_size=131_072)
    ordered = lengths[plan.sequence_order]
    costs = pack_costs(ordered, plan.pack_offsets, token_cost=51_000, packed_sequence_size=131_072, has_tail=True)
    return costs[:16]


def balance() -> str:
    """Return how long ranks wait in one step before and after packs are exchanged within it."""
    drawing = Drawing("Balance before and after", "One step of 4 ranks with 4 packs each; a balanced step ends sooner.")
    drawing.heading("One step: 4 ranks, 4 packs each", "each box is a pack, as wide as its cost; grey: waiting")
    costs, slots = _costs_of_a_step(), np.arange(16).reshape(1, 4, 4)
    longest = int(costs[slots].sum(axis=2).max())
    for title, held in (("Unbalanced", costs), ("within_batch", costs[balanced_order(costs, slots)])):
        ratio = straggler_ratios(held, slots)[0]
        drawing.y += 22
        drawing.heading(f"{title}: {ratio:.3f} times an even step")
        slowest = int(held[slots].sum(axis=2).max())
        for rank, packs in enumerate(held[slots[0]].tolist()):
            drawing.text(10, drawing.y + 15, f"rank {rank}", "m")
            x = 60.0
            for cost in packs:
                drawing.box(x, drawing.y, 330 * cost / longest - 2, 22, "b" if cost > 2 * costs.min() else "a")
                x += 330 * cost / longest
            if 330 * (slowest - sum(packs)) / longest > 2:
                drawing.box(x, drawing.y, 330 * (slowest - sum(packs)) / longest, 22, "p")
            drawing.y += 26
    drawing.text(60, drawing.y + 14, "Orange costs over twice the cheapest: long sequences.", "m")
    drawing.y += 20
    return drawing.svg()


_LAYERS = (
    (("cli", "parses, prints"), ("nemo_cli", "nemo-run's")),
    (("api", "one function a command"),),
    (("launching", "nemo-run"),),
    (("running", "jobs, the guard"),),
    (("reporting", "text, pages"),),
    (("checking", "a target judged"), ("canaries", "packed, unpacked")),
    (("planning", "costs, topology, balance"),),
    (("proof", "sources, masks, served, trace, diff"),),
    (("bridge", "Megatron-Bridge's settings"),),
    (("data", ""), ("rules", ""), ("examples", "")),
    (("config", "what users write"), ("replay", "what loaders read")),
    (("records", "values between rooms"),),
    (("host", "releases and models of Megatron-Bridge, as data"),),
    (("geometry", "formulas"), ("user_files", "opens files")),
    (("errors", "what users see"),),
)


def layers() -> str:
    """Return the layers of the package."""
    drawing = Drawing("Layers and rooms", "The rooms of the package from cli to errors; imports point down only.")
    drawing.heading("Imports point down only", "what stands beside each other does not import each other")
    for rooms in _LAYERS:
        width = 380 / len(rooms)
        for index, (name, does) in enumerate(rooms):
            x = 10 + index * width
            drawing.box(x, drawing.y, width - 4, 26, "a" if name in {"data", "rules", "replay"} else "w")
            if does:
                drawing.text(x + 10, drawing.y + 17, name, "n")
                drawing.text(x + 80, drawing.y + 17, does, "m")
            else:
                drawing.text(x + width / 2 - 2, drawing.y + 17, name, "c n")
        drawing.y += 31
    return drawing.svg()


#: (stage, command, style, groups of rules)
_LIFE = (
    (
        "Recipe and config",
        "bridgepack check mine.yaml",
        "w",
        ("BP0 switches of packing", "BP1 multiples and sizes", "BP9 families, graphs, FP8, versions"),
    ),
    (
        "Packs",
        "check packed/mine",
        "a",
        ("BP3 rows, shards, manifest", "BP4 Megatron-Bridge's metadata file", "BP5 tokens, templates, masks"),
    ),
    (
        "Run = config + packs",
        "check mine.yaml --artifact packed/mine",
        "b",
        ("BP2 paths and caches", "BP6 batches, steps, epochs"),
    ),
    (
        "First step",
        "check --world-size N, prove training",
        "r",
        (
            "BP7 attention and rotary embeddings",
            "BP8 pipeline, expert, tensor parallelism",
            "BP95 kinds of context parallelism",
        ),
    ),
    ("Training", "the guard, on every rank", "g", ("BP890-894 boundaries, tokens, loss",)),
    (
        "Evaluation, saving, resuming",
        "check, and the guard at the start",
        "p",
        ("BP96 what happens around training", "BP895-896 same packs, same order"),
    ),
)


def rules() -> str:
    """Return where in the life of a run each group of rules bites."""
    drawing = Drawing(
        "Where each group of rules bites", "The life of a run from recipe to resuming, with the rules for each stage."
    )
    drawing.heading("The life of a run", "what can be wrong there, and the command that says so before")
    drawing.y += 4
    for index, (stage, command, style, groups) in enumerate(_LIFE):
        height = 44 + 16 * len(groups)
        drawing.box(10, drawing.y, 380, height, style)
        drawing.text(20, drawing.y + 18, stage, "h")
        drawing.text(20, drawing.y + 34, command, "n m")
        for line, group in enumerate(groups):
            drawing.text(36, drawing.y + 52 + 16 * line, group)
        drawing.y += height
        if index + 1 < len(_LIFE):
            drawing.arrow(200, drawing.y, 200, drawing.y + 16)
            drawing.y += 17
    drawing.y += 4
    return drawing.svg()


#: File name below docs/ -> what draws it.
PICTURES: dict[str, Callable[[], str]] = {
    "images/row-to-pack.svg": row_to_pack,
    "images/mask-shift.svg": mask_shift,
    "images/context-parallel.svg": context_parallel,
    "images/balance.svg": balance,
    "images/layers.svg": layers,
    "images/rules.svg": rules,
}
