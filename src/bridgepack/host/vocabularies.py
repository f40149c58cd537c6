"""Vocabularies of models whose recipes take their size from the tokenizer.

Source: config.json of nvidia/Nemotron-H-8B-Base-8K and nvidia/NVIDIA-Nemotron-Nano-9B-v2-Base on the hub; those of each
family have the same tokenizer.
"""

from collections.abc import Mapping

#: Beginning of a tokenizer's name -> entries of the model's vocabulary.
_VOCABULARIES: Mapping[str, int] = {"nvidia/Nemotron-H-": 131072, "nvidia/NVIDIA-Nemotron-Nano-": 131072}


def vocabulary_of(tokenizer: str | None) -> int | None:
    """Return the entries of the vocabulary of a model with a tokenizer, or None if they are not known."""
    return next((size for start, size in _VOCABULARIES.items() if (tokenizer or "").startswith(start)), None)
