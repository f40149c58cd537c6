"""Stop tokens of recipes, for templates that write no end of their own behind an answer."""

from bridgepack.config.recipe.assistant_markers import AssistantMarkers
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError


def check_stop_tokens(tokenizer: ChatTokenizer, settings: AssistantMarkers) -> None:
    """Check that each stop token is one token, and that a turn of `other_role_starts` begins with it.

    Raises:
        TokenizerError: it is not, so that no server can stop at it; or no turn that follows an answer begins so.
    """
    if settings.stop_token is None:
        return
    role_starts = settings.other_role_starts.values()
    for text in settings.ends:
        subject = f"preprocessing.assistant_markers.stop_token is {text!r}"
        ids = tokenizer.encode(text)
        if len(ids) != 1 or text not in tokenizer.added_tokens:
            token_texts = [tokenizer.decode([token]) for token in ids]
            raise TokenizerError(
                f"{subject}, which this tokenizer has as {token_texts}; it must be one control token, because a server "
                "stops at a token. Name the first token of the turns that follow an answer."
            )
        if not any(start.startswith(text) for start in role_starts):
            raise TokenizerError(
                f"{subject}, with which no text of other_role_starts begins: {', '.join(map(repr, role_starts))}. Name "
                "the token with which the turn after an answer begins, or add that turn to other_role_starts."
            )
