"""A completion that does not fit: whether it still ends with EOS is the recipe's choice."""

from typing import Any

import pytest

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.config.recipe.preprocessing import PromptCompletionPreprocessing
from bridgepack.data.sequences.encoder import PromptCompletionEncoder
from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.examples import train_chatml_tokenizer
from tests.support.cutting import cut, policy_for


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> ChatTokenizer:
    """Return a tokenizer in which each of the letters used below is a token."""
    folder = train_chatml_tokenizer(tmp_path_factory.mktemp("tokenizer"), ["a b c"], vocab_size=260)
    return load_tokenizer(TokenizerConfig(name_or_path=str(folder)))


def _encode(tokenizer: ChatTokenizer, prompt: str, completion: str, **settings: Any) -> Encoded:
    settings = {"kind": "prompt_completion", "over_long": "truncate", **settings}
    encoder = PromptCompletionEncoder(tokenizer, PromptCompletionPreprocessing(**settings))
    columns = {"prompt": prompt, "completion": completion}
    whole = encode_examples(encoder, [columns])
    (encoded,) = cut(policy_for(settings, 4, tokenizer.eos_token_id), whole)
    assert isinstance(encoded, Encoded)
    return encoded


@pytest.mark.parametrize(
    ("prompt", "completion", "settings", "text"),
    [
        ("ab", "xyz", {}, "axyz<|im_end|>"),
        ("ab", "uvwxyz", {}, "uvwx<|im_end|>"),
        ("ab", "uvwxyz", {"ends_cut_completions": False}, "uvwx"),
        ("ab", "uvwxyz", {"ends_cut_completions": False, "truncation_method": "left"}, "wxyz<|im_end|>"),
        ("ab", "xyz", {"ends_cut_completions": False, "truncation_method": "left"}, "bxyz<|im_end|>"),
        ("a", "x", {"ends_cut_completions": False}, "ax<|im_end|>"),
    ],
)
def test_cut_completion(
    tokenizer: ChatTokenizer, prompt: str, completion: str, settings: dict[str, Any], text: str
) -> None:
    encoded = _encode(tokenizer, prompt, completion, **settings)

    assert tokenizer.decode(encoded.ids) == text
