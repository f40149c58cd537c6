"""A small byte-level BPE tokenizer with our own ChatML template, saved as a Hugging Face directory."""

import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import Any

from bridgepack.errors import TokenizerError
from bridgepack.examples.conversations import open_replacing

END_OF_TEXT = "<|endoftext|>"
TURN_START = "<|im_start|>"
TURN_END = "<|im_end|>"
SPECIAL_TOKENS = (END_OF_TEXT, TURN_START, TURN_END)
#: 256 bytes and the special tokens; with fewer ids, BPE cannot learn merges.
MIN_VOCAB_SIZE = 256 + len(SPECIAL_TOKENS)


def train_chatml_tokenizer(
    directory: Path, texts: Iterable[str], *, vocab_size: int = 8192, with_generation_blocks: bool = False
) -> Path:
    """Return the folder of a tokenizer trained on texts, which `AutoTokenizer.from_pretrained` loads.

    The same texts give the same bytes. The end-of-sequence token is `<|im_end|>`, padding is `<|endoftext|>`.

    Args:
        directory: folder for `tokenizer.json`, `tokenizer_config.json` and `chat_template.jinja`.
        texts: texts to learn merges from.
        vocab_size: maximum number of ids, with special tokens; few texts give fewer.
        with_generation_blocks: mark the assistant's tokens in the template with `{% generation %}`.

    Raises:
        TokenizerError: `vocab_size` is too small to hold every byte and the special tokens.
    """
    if vocab_size < MIN_VOCAB_SIZE:
        raise TokenizerError(
            f"vocab_size is {vocab_size}; a byte-level tokenizer with {len(SPECIAL_TOKENS)} special tokens needs "
            f"{MIN_VOCAB_SIZE} or more. Use 8192."
        )
    files = {
        "tokenizer.json": _train_bpe(texts, vocab_size),
        "chat_template.jinja": chatml_template(with_generation_blocks=with_generation_blocks),
        "tokenizer_config.json": json.dumps(_tokenizer_config(), indent=2) + "\n",
    }
    for name, text in files.items():
        with open_replacing(directory / name) as file:
            file.write(text)
    return directory


def chatml_template(*, with_generation_blocks: bool = False) -> str:
    """Return the chat template: system, developer, user, assistant and tool messages, `tools`, `tool_calls`."""
    template = resources.files("bridgepack.examples").joinpath("chatml.jinja").read_text(encoding="utf-8")
    if with_generation_blocks:
        return template
    lines = template.splitlines(keepends=True)
    return "".join(line for line in lines if "generation -%}" not in line)


def _train_bpe(texts: Iterable[str], vocab_size: int) -> str:
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    # A newline is always a separate token, so `<|im_start|>assistant\n` has the same ids whatever follows.
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex("\n"), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return str(tokenizer.to_str(pretty=True)) + "\n"


def _tokenizer_config() -> dict[str, Any]:
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": None,
        "eos_token": TURN_END,
        "pad_token": END_OF_TEXT,
        "additional_special_tokens": [TURN_START],
        "clean_up_tokenization_spaces": False,
    }
