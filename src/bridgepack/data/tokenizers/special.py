"""Special tokens that a recipe adds to texts."""

from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError


def special_ids(tokenizer: ChatTokenizer, name: str, is_wanted: bool) -> list[int]:
    """Return the id of `bos`, `eos` or `sep` in a list, which is empty if it is not wanted.

    Raises:
        TokenizerError: the tokenizer has none.
    """
    if not is_wanted:
        return []
    index = tokenizer.special_token_id(name)
    if index is None:
        raise TokenizerError(
            f"preprocessing.add_{name} is true; the tokenizer {tokenizer.config.name_or_path!r} has no "
            f"{name.upper()} token. Set the field to false or use another tokenizer.",
            field=f"preprocessing.add_{name}",
        )
    return [index]
