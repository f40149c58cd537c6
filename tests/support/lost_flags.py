"""Tokenizers whose added tokens have flags, and the cure of lost ones, followed to the letter."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from bridgepack.records.flags import LostFlags


def with_flags(folder: Path, flags: Mapping[str, Iterable[str]]) -> Path:
    """Set flags of added tokens in a tokenizer's folder; return it."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    for token in content["added_tokens"]:
        token.update(dict.fromkeys(flags.get(token["content"], ()), True))
    path.write_text(json.dumps(content))
    return folder


def cured(folder: Path, lost_flags: Iterable[LostFlags]) -> Path:
    """Do to a tokenizer's folder what the cures say, as they are printed; return it."""
    path = folder / "tokenizer_config.json"
    config = json.loads(path.read_text())
    for item in lost_flags:
        fields = re.search(r'add ("\S+": .+) to the tokenizer\'s tokenizer_config\.json', item.cure)
        assert fields is not None
        config |= json.loads(f"{{{fields[1]}}}")
    path.write_text(json.dumps(config))
    return folder
