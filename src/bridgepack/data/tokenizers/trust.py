"""Says whether Python code that comes with a tokenizer or a model may run in a call."""

from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

_WHERE = (
    "it runs in `build` and `launch` of your recipe, elsewhere only if the call says so. If you have read that code: "
    "--trust-remote-code (in Python trust_remote_code=True)"
)


def refuse_tokenizer_code(recipe: SFTRecipe, *, is_trusted: bool) -> None:
    """Refuse a recipe whose tokenizer brings code, unless the user's call allows it; a manifest's word is no leave.

    Raises:
        ConfigError: tokenizer.trust_remote_code is true, and the call does not say the same.
    """
    if recipe.tokenizer.trust_remote_code and recipe.tokenizer.loader != "tokenizer_json" and not is_trusted:
        raise ConfigError(
            f"tokenizer.trust_remote_code is true, so {recipe.tokenizer.name_or_path!r} brings Python code; {_WHERE}.",
            field="tokenizer.trust_remote_code",
        )


def refuse_model_code(recipe: SFTRecipe, *, is_trusted: bool) -> None:
    """Refuse a recipe whose model brings code, as `refuse_tokenizer_code` does for tokenizers.

    Raises:
        ConfigError: model.trust_remote_code is true, and the call does not say the same.
    """
    if recipe.model is not None and recipe.model.trust_remote_code and not is_trusted:
        raise ConfigError(
            f"model.trust_remote_code is true, so {recipe.model.name!r} brings Python code; {_WHERE}.",
            field="model.trust_remote_code",
        )
