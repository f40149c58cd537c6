"""`python -m bridgepack.examples DIRECTORY`: write data, a tokenizer and a model's config for the quickstart."""

import argparse
import sys
from pathlib import Path

from bridgepack.errors import BridgepackError, forget_interrupt
from bridgepack.examples import iter_texts, train_chatml_tokenizer, write_docstring_conversations, write_model


def main(arguments: list[str] | None = None) -> int:
    """Return the exit code, after writing the files that the arguments ask for."""
    parser = argparse.ArgumentParser(prog="python -m bridgepack.examples", description=__doc__)
    parser.add_argument(
        "directory", type=Path, help="output folder: training.jsonl, validation.jsonl, tokenizer/, model/"
    )
    parser.add_argument("--limit", type=int, default=None, help="maximum number of conversations (default: all)")
    parser.add_argument("--vocab-size", type=int, default=8192, help="vocabulary size of the tokenizer (default: 8192)")
    options = parser.parse_args(arguments)
    try:
        sys.stdout.write(write_examples(options.directory, limit=options.limit, vocab_size=options.vocab_size))
    except BridgepackError as error:
        sys.stderr.write(f"error: {error}\n")
        return 2
    except OSError as error:
        sys.stderr.write(f"error: cannot write {error.filename}: {error.strerror}. Choose another directory.\n")
        return 2
    except KeyboardInterrupt:
        sys.stderr.write("interrupted; the same command begins anew\n")
        return 130
    finally:
        forget_interrupt()
    return 0


def write_examples(directory: Path, *, limit: int | None, vocab_size: int) -> str:
    """Return one line per thing written, after writing data, tokenizer and model into the directory."""
    training, validation = directory / "training.jsonl", directory / "validation.jsonl"
    num_conversations = write_docstring_conversations(training, validation_path=validation, limit=limit)
    tokenizer = train_chatml_tokenizer(directory / "tokenizer", iter_texts(training), vocab_size=vocab_size)
    model = write_model(directory / "model", tokenizer)
    return (
        f"{training} and {validation.name}: {num_conversations} conversations from the docstrings of this Python's "
        f"standard library\n{tokenizer}: a byte-level BPE tokenizer trained on them\n"
        f"{model}: a model for it, of the sizes of Qwen3-8B and without weights\n"
    )


if __name__ == "__main__":
    sys.exit(main())
