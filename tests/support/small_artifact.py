"""Small chats and a packed artifact made of them, for a training run on two CPU cores."""

import json
from pathlib import Path

import bridgepack
from bridgepack.examples import train_chatml_tokenizer


def write_counting_chats(path: Path, *, num_chats: int) -> Path:
    """Write chats that ask to count: short, of different lengths, and easy to learn."""
    with path.open("w", encoding="utf-8") as stream:
        for index in range(num_chats):
            numbers = [(index + step) % 10 for step in range(3 + index * 7 % 11)]
            turns = [("user", f"Count from {numbers[0]}."), ("assistant", " ".join(map(str, numbers)))]
            messages = [{"role": role, "content": content} for role, content in turns]
            stream.write(json.dumps({"messages": messages}) + "\n")
    return path


def write_counting_tokenizer(folder: Path, chats: Path) -> Path:
    texts = [turn["content"] for line in chats.read_text().splitlines() for turn in json.loads(line)["messages"]]
    return train_chatml_tokenizer(folder, texts, vocab_size=320)


def build_counting_artifact(folder: Path, tokenizer: Path, *, packed_sequence_size: int, pad_seq_to_mult: int) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    recipe = bridgepack.SFTRecipe.from_mapping(
        {
            "name": "counting",
            "data": {
                "train": str(write_counting_chats(folder / "training.jsonl", num_chats=240)),
                "validation": str(write_counting_chats(folder / "validation.jsonl", num_chats=80)),
            },
            "tokenizer": {"name_or_path": str(tokenizer)},
            "packing": {"packed_sequence_size": packed_sequence_size, "pad_seq_to_mult": pad_seq_to_mult},
        }
    )
    return bridgepack.build(recipe, output=folder / "artifact").output
