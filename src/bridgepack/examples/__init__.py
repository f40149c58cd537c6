"""Example conversations, a small tokenizer and a model's config, made from the Python installation itself."""

from bridgepack.examples.conversations import iter_texts, write_docstring_conversations
from bridgepack.examples.model import write_model
from bridgepack.examples.tokenizer import train_chatml_tokenizer

__all__ = ["iter_texts", "train_chatml_tokenizer", "write_docstring_conversations", "write_model"]
