"""Projects whose builds keep two Ray nodes busy for seconds."""

from pathlib import Path

from tests.support import small_builds as small
from tests.support import thoughtful
from tests.support.thoughtful import said
from tests.zoo import exchanges
from tests.zoo.tokenizers import write_tokenizer


def chats(folder: Path, tokenizer: Path, num_rows: int) -> Path:
    """Write chats, the last of which is no conversation, and a recipe with a validation part."""
    asked = [f"question {index} " * (index % 7 + 1) for index in range(num_rows)]
    rows = [small.chat_row(question, f"answer {index} " * 20) for index, question in enumerate(asked)]
    small.write_json_lines(folder / "train.jsonl", [*rows, {"messages": "none"}])
    changes = {"preprocessing__kind": "chat", "packing__packed_sequence_size": 2048, "data__validation_fraction": 0.1}
    recipe = small.tokenized_recipe("train.jsonl", tokenizer, **changes)
    small.write_recipe(folder / "recipe.yaml", recipe)
    return folder


def kinds(folder: Path, tokenizer: Path) -> Path:
    """Write a recipe of chats and documents, some of which are longer than a pack."""
    chats = [small.chat_row(f"question {index}", f"answer {index} " * 20) for index in range(3000)]
    texts = [{"text": f"{index}: The wind rose in the night. " * (1 + index % 5 * 40)} for index in range(600)]
    small.write_json_lines(folder / "chats.jsonl", chats)
    small.write_json_lines(folder / "texts.jsonl", texts)
    recipe = small.small_recipe(
        "",
        tokenizer,
        data={
            "train": [
                {"path": "chats.jsonl", "weight": 1.0},
                {"path": "texts.jsonl", "layout": {"kind": "text"}, "weight": 1.0},
            ],
            "validation_fraction": 0.1,
        },
        preprocessing={"kind": "chat", "others": [{"kind": "text", "over_long": "split"}]},
        packing={"packed_sequence_size": 1024},
    )
    small.write_recipe(folder / "recipe.yaml", recipe)
    return folder


def split(folder: Path) -> Path:
    """Write conversations of one to four answers with thoughts, some of them twice, and a recipe that splits them."""
    rows = []
    for number in range(2000):
        turns = []
        for answer in range(1 + number % 4):
            turns.append(said("user", f"question {number % 1900} {answer}"))
            turns.append(said("assistant", f"answer {answer} " * (1 + number % 9), reasoning_content="think of it"))
        rows.append(turns)
    return _thoughtful(
        folder,
        rows,
        data={"train": "train.jsonl", "validation_fraction": 0.1, "deduplicate": "exact"},
        preprocessing={"kind": "chat", "split_conversations": "when_context_differs"},
        packing={"packed_sequence_size": 256, "max_sequence_length": 200},
    )


def cut(folder: Path) -> Path:
    """Write conversations of one to twelve exchanges, and a recipe that cuts the longer ones."""
    rows = []
    for number in range(700):
        turns = [said("system", "answer in one line")]
        for exchange in range(1 + number % 12):
            turns += [said("user", f"question {number} {exchange}"), said("assistant", "word " * (1 + number % 17))]
        rows.append(turns)
    return _thoughtful(
        folder,
        rows,
        data={"train": "train.jsonl", "validation_fraction": 0.1},
        preprocessing={"kind": "chat", "over_long": "split_exchanges"},
        packing={"packed_sequence_size": 256},
    )


def _thoughtful(folder: Path, rows: list[list[small.Row]], **sections: small.Row) -> Path:
    folder.mkdir(exist_ok=True)
    thoughtful.write_rows(folder / "train.jsonl", rows)
    tokenizer = write_tokenizer(folder / "tokenizer", exchanges.FAMILIES["exchanges"])
    small.write_recipe(folder / "recipe.yaml", small.small_recipe("train.jsonl", tokenizer, **sections))
    return folder
