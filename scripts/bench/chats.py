"""Writes real chats as JSON Lines: half GSM8K, half slices of the installed packages' documentation and code.

usage: chats.py OUTPUT --rows N [--gsm8k gsm8k_train.jsonl] [--texts FOLDER] [--seed 0]
"""

from __future__ import annotations

import argparse
import json
import sysconfig
from pathlib import Path

from benchlib.real_chats import iter_chats


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--gsm8k", type=Path)
    parser.add_argument("--texts", type=Path, default=Path(sysconfig.get_paths()["purelib"]))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with options.output.open("w", encoding="utf-8") as stream:
        for messages in iter_chats(options.rows, options.gsm8k, options.texts, options.seed):
            stream.write(json.dumps({"messages": messages}, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
