"""The markers of turns that a recipe names, or those of the family of its chat template; what is known of that."""

from bridgepack.config.recipe.preprocessing import ChatPreprocessing
from bridgepack.data.answers.facts import TemplateFacts
from bridgepack.data.answers.regions import TurnTexts
from bridgepack.data.sequences.markers import TurnMarkers, infer_markers, markers_from_recipe
from bridgepack.data.sequences.marking.tokens import MarkerTokens, check_appended_turn, check_family
from bridgepack.data.sequences.marking.written import markers_written
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import TokenizerError


def markers_for(tokenizer: ChatTokenizer, settings: ChatPreprocessing) -> TurnMarkers | None:
    """Return the markers of the recipe or of the template's family; None if there are none and none are needed."""
    if tokenizer.chat_template is None:
        raise tokenizer.no_template_error
    if settings.assistant_markers is not None:
        turn_markers = markers_from_recipe(tokenizer, settings.assistant_markers)
        if settings.loss_mode != "full":
            check_appended_turn(tokenizer, turn_markers.start_texts)
        return turn_markers
    markers = infer_markers(tokenizer)
    if markers is not None and settings.loss_mode != "full":
        check_appended_turn(tokenizer, markers.start_texts)
        if not tokenizer.has_generation_blocks:
            check_family(tokenizer, MarkerTokens(tokenizer), markers.assistant_starts, markers.start_texts)
    if markers is None and settings.loss_mode != "full" and not tokenizer.has_generation_blocks:
        check_appended_turn(tokenizer, ())
        markers_there = markers_written(tokenizer)
        value = f" to {markers_there}, which it writes around an answer" if markers_there else ""
        raise TokenizerError(
            f"tokenizer.name_or_path is {tokenizer.config.name_or_path!r}; its chat template has no {{% generation %}} "
            "block and is of no known family, so it is unknown which tokens the assistant wrote (Megatron-Bridge "
            f"0.6 rejects it too). Set preprocessing.assistant_markers{value}, set tokenizer.chat_template to a "
            "template with generation blocks, or set preprocessing.loss_mode to full.",
            field="tokenizer.name_or_path",
        )
    return markers


def facts_for(tokenizer: ChatTokenizer, markers: TurnMarkers | None) -> TemplateFacts:
    """Return what the chat template writes around answers; `markers` are those of `markers_for`."""
    return TemplateFacts.of(tokenizer, TurnTexts() if markers is None else markers.around)
