"""Screenshots of the documentation: of commands as SVG, of the report's page as PNG, all of one small build."""

import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

from bridgepack.examples import train_chatml_tokenizer

#: Picture -> the command that it shows.
COMMANDS = {
    "images/inspect.svg": "bridgepack inspect packed/mine --pack 0 --limit 2",
    "images/check.svg": "bridgepack check mine.yaml --artifact packed/mine",
}
#: Pictures without their last paragraph: the summary of a check counts the rules, and changes with every new one.
_WITHOUT_SUMMARY = frozenset({"images/check.svg"})
#: Picture -> the section of the page that it begins with, by default its head, and the window in pixels.
#: Each picture is taken for light and for dark pages.
PAGES = {"images/report": ("", "1000,920"), "images/report-lengths": ("sequence-lengths", "1000,760")}
SCHEMES = {"light": "", "dark": "-dark"}
_DARK = "screen and (prefers-color-scheme: dark)"
_WIDTH = 108
_COLOURS = [(30, 34, 40), (255, 128, 122), (152, 205, 96), (229, 192, 123), (125, 185, 255), (222, 155, 240)]
_COLOURS += [(110, 210, 220), (228, 231, 235)]
_THEME = TerminalTheme(_COLOURS[0], _COLOURS[-1], _COLOURS, _COLOURS)
_QUESTIONS = {
    "What is a pack?": "One row with several sequences, laid one after the other.",
    "Why are sequences packed?": "Short sequences padded to one length waste most of a step.",
    "What is a loss mask?": "One number for each token: 1 where the model is trained on it.",
    "What is cu_seqlens?": "Where each sequence of a pack begins, so that attention stays within it.",
}
_RECIPE = """\
name: mine
data:
  train: chats.jsonl
tokenizer:
  name_or_path: tokenizer
preprocessing:
  kind: chat
packing:
  packed_sequence_size: 512
parallelism:
  num_gpus: 8
  context_parallel_size: 2
batch:
  global_batch_size: 128
"""
#: As rich draws a terminal, but without its fonts from the network; described for those who do not see it.
_SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<title>TITLE</title>
<style>.{unique_id}-matrix{{font-family:ui-monospace,monospace;font-size:{char_height}px;line-height:{line_height}px}}
.{unique_id}-title{{font-size:18px;font-family:ui-monospace,monospace}}{styles}</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def built(folder: Path) -> Path:
    """Return a folder with chats, a tokenizer, `mine.yaml` and its artifact `packed/mine`."""
    rng, rows = np.random.default_rng(7), []
    for question, answer in list(_QUESTIONS.items()) * 90:
        text = " ".join([answer, *rng.choice(list(_QUESTIONS.values()), int(rng.geometric(0.3)))])
        rows.append({"messages": [{"role": "user", "content": question}, {"role": "assistant", "content": text}]})
    rows += [{"messages": []}, {"messages": [{"role": "user", "content": "What is a pack?"}]}]  # are dropped
    (folder / "chats.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (folder / "mine.yaml").write_text(_RECIPE)
    train_chatml_tokenizer(folder / "tokenizer", [*_QUESTIONS, *_QUESTIONS.values()], vocab_size=400)
    ran(folder, "bridgepack build mine.yaml --output packed/mine --set batch.global_batch_size=16")
    return folder


def ran(folder: Path, command: str) -> str:
    """Return what a command prints on a terminal in a folder; exit code 1, findings, is no failure."""
    variables = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "BRIDGEPACK_STORE")}
    words = [sys.executable, "-m", "bridgepack", *command.split()[1:]]
    done = subprocess.run(
        words, cwd=folder, env={**variables, "FORCE_COLOR": "1"}, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{command}: {done.stderr}")
    return done.stdout


def screens(folder: Path) -> dict[str, str]:
    """Return the pictures of commands that run in a folder made by `built`, name -> SVG."""
    drawn = {}
    for name, command in COMMANDS.items():
        output = ran(folder, command)
        drawn[name] = _terminal(command, output.rstrip().rpartition("\n\n")[0] if name in _WITHOUT_SUMMARY else output)
    return drawn


def _terminal(command: str, output: str) -> str:
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {command}"), Text.from_ansi(output.replace("\x1b[2m", "")), sep="\n")  # dim is hard to read
    return console.export_svg(title="", theme=_THEME, code_format=_SVG.replace("TITLE", command))


def photograph(folder: Path, docs: Path) -> None:
    """Write the pictures of the report of `packed/mine` to a folder of pages; Chromium takes them."""
    browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if browser is None:
        raise RuntimeError("no Chromium on PATH. Install it, e.g. Debian's package chromium.")
    ran(folder, "bridgepack report packed/mine --output page.html")
    page, shown = (folder / "page.html").read_text(encoding="utf-8"), folder / "shown.html"
    for name, (part, size) in PAGES.items():
        if part:
            begins = page.index(f'<section aria-labelledby="{part}"')
            page = f'{page[: page.index("<header")]}<main id="main">{page[begins:]}'
        for scheme, ending in SCHEMES.items():
            shown.write_text(page.replace(_DARK, "screen" if scheme == "dark" else "not all"), encoding="utf-8")
            options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
            options += [f"--user-data-dir={folder / 'profile'}", f"--screenshot={docs / f'{name}{ending}.png'}"]
            subprocess.run([browser, *options, shown.as_uri()], check=True, capture_output=True, timeout=120)
