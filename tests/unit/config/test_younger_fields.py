"""Younger fields say which of their values changes nothing, so that artifacts from before them keep their names."""

from typing import Annotated, Any

import pytest

from bridgepack.config.recipe.assistant_markers import AssistantMarkers
from bridgepack.config.recipe.data import DataConfig, DataSource, MixtureConfig
from bridgepack.config.recipe.fingerprint import fingerprint_of
from bridgepack.config.recipe.preprocessing import (
    PREPROCESSING_KINDS,
    ChatPreprocessing,
    PromptCompletionPreprocessing,
    TextPreprocessing,
    TokenizedPreprocessing,
)
from bridgepack.config.section import Before, Section, without_younger, younger_fields

#: Fields that are in every fingerprint or in none, because they are as old as fingerprints, or have no say in rows.
#: A new field does not belong here: it declares `Before(VALUE)`.
OLD = {
    ChatPreprocessing: """kind loss_mode over_long tool_schemas control_tokens on_lost_content null_content
        tool_arguments content_parts message_weights masks_control_tokens assistant_markers""",
    AssistantMarkers: "assistant_start assistant_end assistant_end_fallbacks other_role_starts joins_starts",
    PromptCompletionPreprocessing: """kind loss_mode over_long separator
        strip_whitespace add_bos add_sep add_eos ends_cut_completions truncation_method masks_control_tokens""",
    TextPreprocessing: "kind over_long add_bos add_eos",
    TokenizedPreprocessing: "kind over_long",
    DataConfig: "train validation mixture validation_fraction on_bad_row max_row_bytes role_aliases",
    MixtureConfig: "by total",
    DataSource: "path dataset sources name split revision max_rows weight epochs",
}


@pytest.mark.parametrize("section", OLD)
def test_a_field_is_old_or_says_what_equals_the_behaviour_before_it(section: type[Section]) -> None:
    old, younger = OLD[section].split(), younger_fields(section)

    undeclared = [name for name in section.model_fields if name not in old and name not in younger]
    assert undeclared == [], "write Annotated[KIND, Before(VALUE)], with the value that equals the behaviour before"
    assert not set(old) & set(younger)
    assert set(old) <= set(section.model_fields)


def test_kinds_are_all_known() -> None:
    assert set(PREPROCESSING_KINDS.values()) == {
        ChatPreprocessing,
        PromptCompletionPreprocessing,
        TextPreprocessing,
        TokenizedPreprocessing,
    }
    assert all(section.model_fields["kind"].annotation is not None for section in PREPROCESSING_KINDS.values())


class _Later(Section):
    """A section with a younger field whose default is not what was before it."""

    colour: str = "red"
    size: Annotated[str, Before("small")] = "large"


def test_only_the_value_of_before_is_left_out_whatever_the_default() -> None:
    assert without_younger(_Later, _Later().model_dump()) == {"colour": "red", "size": "large"}
    assert without_younger(_Later, _Later(size="small").model_dump()) == {"colour": "red"}
    assert without_younger(None, {"size": "small"}) == {"size": "small"}


def _digest(preprocessing: dict[str, Any], **data: Any) -> str:
    recipe = {"preprocessing": {"kind": "chat", **preprocessing}, "data": {"train": "a.jsonl", **data}}
    return fingerprint_of(format_version=1, versions={}, inputs={}, tokenizer={}, recipe=recipe, resolved_values={})


def test_fingerprints_leave_out_what_changes_nothing() -> None:
    without = _digest({})

    assert _digest({"reasoning_loss": "keep"}) == without
    assert _digest({}, deduplicate="none") == without
    different = [
        _digest({"reasoning_loss": "mask"}),
        _digest({}, deduplicate="exact"),
        *(_digest({name: value}) for name in ("null_content", "content_parts") for value in ("keep", "auto")),
    ]
    assert len({without, *different}) == 1 + len(different)
