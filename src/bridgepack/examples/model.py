"""A model for the example tokenizer, as a folder of Hugging Face without weights."""

import json
from pathlib import Path

from bridgepack.examples.conversations import open_replacing

#: Sizes of Qwen3-8B, for contexts of 131,072 tokens, in the names of its `config.json`.
_CONFIG = {
    "architectures": ["Qwen3ForCausalLM"],
    "model_type": "qwen3",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 131072,
    "tie_word_embeddings": False,
}


def write_model(directory: Path, tokenizer: Path) -> Path:
    """Return the folder of a model of 8 billion weights, described but not there, whose vocabulary is a tokenizer's.

    Args:
        directory: folder for config.json, generation_config.json and a copy of the tokenizer's files.
        tokenizer: folder that `train_chatml_tokenizer` wrote.
    """
    files = {path.name: path.read_text(encoding="utf-8") for path in sorted(tokenizer.iterdir())}
    ids = json.loads(files["tokenizer.json"])["model"]["vocab"]
    settings = json.loads(files["tokenizer_config.json"])
    special = {f"{name}_token_id": ids[settings[f"{name}_token"]] for name in ("eos", "pad")}
    for name, content in (("config", {**_CONFIG, "vocab_size": len(ids), **special}), ("generation_config", special)):
        files[f"{name}.json"] = json.dumps(content, indent=2) + "\n"
    for name, text in files.items():
        with open_replacing(directory / name) as file:
            file.write(text)
    return directory
