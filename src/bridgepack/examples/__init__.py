"""Example conversations and a small tokenizer, made at run time from the Python installation itself."""

from bridgepack.examples.conversations import iter_texts, write_docstring_conversations
from bridgepack.examples.tokenizer import train_chatml_tokenizer

__all__ = ["iter_texts", "train_chatml_tokenizer", "write_docstring_conversations"]
