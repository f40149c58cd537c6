"""What a recipe accepts, what it says about everything else, what it resolves to, and how it is overridden."""

import copy
import math
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridgepack.config.recipe.preprocessing import PromptCompletionPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError
from tests.support.catalogue import SMALL as VALUES

CHAT_FIELDS = (
    "assistant_markers, chat_template_kwargs_column, completion_column, content_parts, control_tokens, "
    "conversation_column, kind, loss_mode, masks_control_tokens, message_weights, null_content, on_lost_content, "
    "over_long, prompt_column, reasoning_loss, tool_arguments, tool_schemas, tools_column"
)
SOURCES = "a path, a section {path: PATH} or {dataset: ID}, or a list of these"


def _values(path: str, value: Any) -> dict[str, Any]:
    """Return valid values but for one; a path that ends in `!` is taken away."""
    values = copy.deepcopy(VALUES)
    node = values
    *sections, leaf = path.removesuffix("!").split(".")
    for section in sections:
        node = node.setdefault(section, {})
    if path.endswith("!"):
        del node[leaf]
    else:
        node[leaf] = value
    return values


def _message(path: str, value: Any) -> str:
    with pytest.raises(ConfigError) as raised:
        SFTRecipe.from_mapping(_values(path, value)).resolve()
    return str(raised.value)


@pytest.mark.parametrize(
    ("path", "field", "nearest"),
    [
        ("packng", "packng", "packing"),
        ("data.trian", "data.trian", "train"),
        ("batch.micro_batchsize", "batch.micro_batchsize", "micro_batch_size"),
    ],
)
def test_unknown_field_is_named_with_the_nearest_that_exists(path: str, field: str, nearest: str) -> None:
    message = _message(path, 1)

    assert message.startswith(f"{field} is not a field; allowed: ")
    assert message.endswith(f"Did you mean {nearest}?")


def test_unknown_field_called_like_a_kind_keeps_its_name() -> None:
    message = _message("preprocessing", {"kind": "chat", "chat": 1})

    assert message == f"preprocessing.chat is not a field of chat; allowed: {CHAT_FIELDS}. Use one of these."


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name!", None, "name is missing (Name of the recipe;"),
        ("data.train!", None, "data.train is missing (Training data:"),
        ("data.train", {}, "data.train has a section in which none of path, dataset and sources is set; exactly one"),
        ("preprocessing", {"loss_mode": "full"}, "preprocessing.kind is missing; allowed: chat, prompt_completion"),
        (
            "preprocessing",
            {"kind": "chat", "assistant_markers": {"assistant_start": "a"}},
            "preprocessing.assistant_markers.assistant_end is missing (",
        ),
    ],
)
def test_missing_field_is_named(path: str, value: Any, message: str) -> None:
    assert _message(path, value).startswith(message)


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("name", 5, "name is 5; allowed: text. Put it in quotes."),
        ("name", "a b", "name is 'a b'; allowed: text matching ^[A-Za-z0-9][A-Za-z0-9._-]*$. Rename it."),
        ("name", "a" * 201, "allowed: text of at most 200 characters. Shorten it."),
        ("tokenizer", "path", "tokenizer is 'path'; allowed: a section with named fields."),
        ("tokenizer.trust_remote_code", "maybe", "tokenizer.trust_remote_code is 'maybe'; allowed: true or false."),
        ("data.validation_fraction", math.nan, "data.validation_fraction is nan; allowed: a finite number."),
        ("data.validation_fraction", "some", "data.validation_fraction is 'some'; allowed: a number."),
        ("data.on_bad_row", "skip", "data.on_bad_row is 'skip'; allowed: 'drop' or 'error'. Use one of these."),
        ("data.role_aliases", {"bard": "bot"}, "data.role_aliases.bard is 'bot'; allowed: 'system', 'developer',"),
        ("ignore", {"str": 5}, "ignore.str is 5; allowed: text."),
        ("packing.packed_sequence_size", 2**31, "allowed: less than 2147483648. Lower it."),
        ("packing.packed_sequence_size", 16.0, "packing.packed_sequence_size is 16.0; allowed: a whole number"),
        ("packing.packed_sequence_size", True, "packing.packed_sequence_size is True; allowed: a whole number"),
        ("packing.pad_cu_seqlens", "true", "packing.pad_cu_seqlens is 'true'; allowed: true or false, without quotes."),
        ("preprocessing", 5, "preprocessing is 5; allowed: a section with named fields."),
    ],
)
def test_impossible_value_is_answered_with_what_is_allowed(path: str, value: Any, message: str) -> None:
    assert message in _message(path, value)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (5, f"data.train is 5; allowed: {SOURCES}."),
        (None, f"data.train is None; allowed: {SOURCES}."),
        ({"a.jsonl"}, f"data.train is {{'a.jsonl'}}; allowed: {SOURCES}."),
        ([], "data.train is []; allowed: a list of at least 1 entry. Add one or remove the field."),
        ([5], f"data.train.0 is 5; allowed: {SOURCES}."),
        (["a", ["b"]], f"data.train.1 is ['b']; allowed: {SOURCES}."),
        ([""], "data.train.0 is ''; allowed: text of at least 1 character. Fill it in or remove the field."),
        ({"dataset": 5}, "data.train.dataset is 5; allowed: text. Put it in quotes."),
    ],
)
def test_source_of_another_shape_gives_one_line_about_that_shape(value: Any, message: str) -> None:
    assert _message("data.train", value) == message


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "data",
            {"train": "a", "validation": "b", "validation_fraction": 0.5},
            "data.validation_fraction is 0.5 and validation is 'b'; only one of them can be set. Remove",
        ),
        (
            "packing",
            {"packed_sequence_size": 16, "max_sequence_length": 17},
            "packing.max_sequence_length is 17; allowed: 1 to packed_sequence_size, 16. Lower it or raise",
        ),
        (
            "parallelism.sequence_parallel",
            True,
            "parallelism.sequence_parallel is true and tensor_model_parallel_size is 1; it needs at least 2. Set",
        ),
        (
            "batch",
            {"micro_batch_size": 3, "global_batch_size": 8},
            "batch.global_batch_size is 8; it must be a multiple of micro_batch_size, 3. Set micro_batch_size to 1.",
        ),
        (
            "preprocessing",
            {"kind": "prompt_completion", "prompt_column": "a", "completion_column": "a"},
            "preprocessing.prompt_column and completion_column are both 'a'; they must differ. Name",
        ),
        (
            "preprocessing",
            {"kind": "tokenized", "labels_column": "a", "loss_mask_column": "b"},
            "preprocessing.loss_mask_column is 'b' and labels_column is 'a'; only one of them can be set. Remove one.",
        ),
    ],
)
def test_contradiction_names_both_fields(path: str, value: Any, message: str) -> None:
    assert message in _message(path, value)


@pytest.mark.parametrize(
    "template", ["", "no", "{x}", "{prompt", "{prompt.upper}", "{prompt[0]}", "{prompt!r}", "{prompt:{prompt}}", "{}"]
)
def test_prompt_template_with_anything_but_prompt_is_refused(template: str) -> None:
    message = _message("preprocessing", {"kind": "prompt_completion", "prompt_template": template})

    assert message.startswith("preprocessing.prompt_template is ")


@pytest.mark.parametrize("value", [{"dataset": "a", "splt": "x"}, ["a", {"dataset": "a", "splt": "x"}]])
def test_unknown_field_of_a_data_set(value: Any) -> None:
    message = _message("data.train", value)

    assert "splt is not a field; allowed: columns, dataset," in message
    assert message.endswith("Did you mean split?")
    assert "\n" not in message


@pytest.mark.parametrize("is_nested", [False, True])
def test_unknown_field_of_several_sources_is_told_once(is_nested: bool) -> None:
    sources = [{"path": name, "wieght": 1} for name in "abc"]
    message = _message("data.train", [{"sources": sources}] if is_nested else sources)

    place = "data.train.0.sources.0" if is_nested else "data.train.0"
    assert message.startswith(f"{place}.wieght is not a field; allowed: columns, dataset, epochs,")
    assert message.endswith("weight. Did you mean weight? Other entries with it: 2.")
    assert "\n" not in message


def test_frozen() -> None:
    recipe = SFTRecipe.from_mapping(VALUES)

    with pytest.raises(ValidationError, match="frozen"):
        recipe.packing.seed = 7  # type: ignore[misc]


def test_every_wrong_field_has_its_line() -> None:
    values = {**_values("packing.packed_sequence_size", 0), "name": "a b", "datas": 1}

    with pytest.raises(ConfigError) as raised:
        SFTRecipe.from_mapping(values)

    first, *lines = str(raised.value).splitlines()
    assert first == "3 fields are wrong:"
    assert [line.split()[0] for line in lines] == ["name", "packing.packed_sequence_size", "datas"]


@pytest.mark.parametrize("value", [[1], "text", None, 5])
def test_recipe_that_is_no_mapping(value: Any) -> None:
    with pytest.raises(ConfigError, match=r"^recipe is .*; allowed: a section with named fields"):
        SFTRecipe.from_mapping(value)


def test_field_name_that_is_no_text() -> None:
    with pytest.raises(ConfigError, match="5 is 5; allowed: text as a field's name"):
        SFTRecipe.from_mapping({**VALUES, 5: 1})


@given(
    context=st.integers(1, 12),
    evaluation=st.none() | st.integers(1, 12),
    tensor=st.integers(1, 12),
    is_sequence_parallel=st.booleans(),
    num_multiples=st.integers(1, 9),
    longest=st.none() | st.integers(1, 10**6),
)
def test_multiple_is_the_least_that_divides_evenly(
    context: int, evaluation: int | None, tensor: int, is_sequence_parallel: bool, num_multiples: int, longest: int
) -> None:
    is_sequence_parallel = is_sequence_parallel and tensor > 1
    sizes = [context, evaluation or context]
    needs = [2 * size for size in sizes if size > 1] + [size * tensor for size in sizes if is_sequence_parallel]
    multiple = math.lcm(*needs)
    size = multiple * num_multiples
    longest = min(longest, size) if longest else None
    values = {
        **VALUES,
        "packing": {"packed_sequence_size": size, "max_sequence_length": longest},
        "parallelism": {
            "context_parallel_size": context,
            "eval_context_parallel_size": evaluation,
            "tensor_model_parallel_size": tensor,
            "sequence_parallel": is_sequence_parallel,
        },
    }
    recipe = SFTRecipe.from_mapping(values)

    if longest is not None and longest < multiple:
        with pytest.raises(ConfigError, match=f"packing.max_sequence_length is {longest}; allowed: at least"):
            recipe.resolve()
    else:
        resolved = recipe.resolve()
        assert resolved.pad_seq_to_mult.value == multiple
        assert resolved.max_sequence_length.value == (longest or size) // multiple * multiple


def test_multiple_that_is_set_is_kept_when_the_topology_divides_it() -> None:
    values = {
        **VALUES,
        "packing": {"packed_sequence_size": 32, "pad_seq_to_mult": 16, "max_sequence_length": 31},
        "parallelism": {"context_parallel_size": 2},
    }
    resolved = SFTRecipe.from_mapping(values).resolve()

    assert resolved.explain() == {
        "pad_seq_to_mult": {"value": 16, "because": "packing.pad_seq_to_mult is set in the recipe"},
        "max_sequence_length": {
            "value": 16,
            "because": "packing.max_sequence_length 31 rounded down to a multiple of 16",
        },
    }


@pytest.mark.parametrize(
    ("packing", "message"),
    [
        ({"packed_sequence_size": 17}, "packing.packed_sequence_size is 17; allowed: multiples of .* Set it to 16 or "),
        ({"packed_sequence_size": 2}, "packing.packed_sequence_size is 2; allowed: multiples of .* Set it to 4\\."),
        ({"packed_sequence_size": 16, "pad_seq_to_mult": 6}, "packing.pad_seq_to_mult is 6; .* or set it to 8\\."),
        ({"packed_sequence_size": 16, "max_sequence_length": 3}, "packing.max_sequence_length is 3; .*, 4 \\("),
    ],
)
def test_size_that_is_no_multiple_is_answered_with_the_nearest(packing: dict[str, int], message: str) -> None:
    values = {**VALUES, "packing": packing, "parallelism": {"context_parallel_size": 2}}

    with pytest.raises(ConfigError, match=message):
        SFTRecipe.from_mapping(values).resolve()


def test_override_changes_a_copy() -> None:
    recipe, aliases = SFTRecipe.from_mapping(VALUES), {"bard": "assistant"}
    before = recipe.model_dump()

    changed = recipe.override({"packing.packed_sequence_size": 32, "data.role_aliases": aliases})
    aliases["bard"] = "user"

    assert changed.packing.packed_sequence_size == 32
    assert changed.data.role_aliases == {"bard": "assistant"}
    assert recipe.model_dump() == before
    assert recipe.override({}) == recipe


SOURCES_OF_A_LIST = [
    {"path": "a.jsonl", "weight": 1},
    {"path": "b.jsonl", "epochs": 1},
    {"sources": ["c.jsonl", "d.jsonl"], "name": "rest", "weight": 1},
]


def test_override_of_an_entry_of_a_list() -> None:
    recipe = SFTRecipe.from_mapping(VALUES).override({"data.train": SOURCES_OF_A_LIST})

    other = {"path": "e.jsonl", "weight": 5}
    changes = {"data.train.0.weight": 2, "data.train.1": other, "data.train.2.sources.1": "f.jsonl"}
    first, second, third = recipe.override(changes).data.train
    assert (first.path, first.weight) == ("a.jsonl", 2)  # type: ignore[union-attr]
    assert (second.path, second.weight) == ("e.jsonl", 5)  # type: ignore[union-attr]
    assert third.sources == ("c.jsonl", "f.jsonl")  # type: ignore[union-attr]
    assert recipe.data.train[0].weight == 1  # type: ignore[union-attr]
    together = {"data.train.0.weight": 3, "data.train": SOURCES_OF_A_LIST}
    assert SFTRecipe.from_mapping(VALUES).override(together).data.train[0].weight == 3  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("data.train.3.weight", "data.train is a list of 3, so '3' must be an index; allowed: 0 to 2"),
        ("data.train.-1.weight", "so '-1' must be an index; allowed: 0 to 2"),
        ("data.train.weight", "so 'weight' must be an index"),
        ("data.train.5", "so '5' must be an index"),
        ("data.train.2.sources.1.weight", "data.train.2.sources.1 is a plain value without fields"),
    ],
)
def test_override_of_no_entry_of_a_list(path: str, message: str) -> None:
    recipe = SFTRecipe.from_mapping(VALUES).override({"data.train": SOURCES_OF_A_LIST})

    with pytest.raises(ConfigError, match=re.escape(message)):
        recipe.override({path: 2})


def test_override_below_a_section_that_is_none() -> None:
    markers = "preprocessing.assistant_markers"
    recipe = SFTRecipe.from_mapping(VALUES).override(
        {f"{markers}.assistant_start": "A", f"{markers}.assistant_end": "B"}
    )

    assert recipe.preprocessing.model_dump()["assistant_markers"]["assistant_start"] == "A"
    assert recipe.override({markers: None}).preprocessing.model_dump()["assistant_markers"] is None


@pytest.mark.parametrize("is_kind_first", [True, False])
def test_another_kind_takes_its_fields_in_any_order(is_kind_first: bool) -> None:
    items = [("preprocessing.kind", "prompt_completion"), ("preprocessing.prompt_column", "question")]
    changes = dict(items if is_kind_first else reversed(items))
    recipe = SFTRecipe.from_mapping(_values("preprocessing", {"kind": "chat", "over_long": "error"}))

    preprocessing = recipe.override(changes).preprocessing

    assert isinstance(preprocessing, PromptCompletionPreprocessing)
    assert preprocessing.prompt_column == "question"
    assert preprocessing.loss_mode == "completion"
    assert preprocessing.over_long == "error"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pakcing.seed": 1}, "pakcing is not a field; .* Did you mean packing\\?"),
        ({"packing.packed_sequence_size.x": 1}, "packing.packed_sequence_size is a plain value without .* as a whole."),
        ({"packing.seed.x": 1}, "packing.seed is {'x': 1}; allowed: a whole number"),
        ({"data.train.0": "b"}, "data.train.0: data.train is a plain value without .* as a whole."),
        ({"packing..seed": 1}, "'packing..seed' is not a field path"),
        ({"preprocessing.kind": "chatt"}, "preprocessing.kind is 'chatt'; allowed: chat"),
        ({"preprocessing.assistant_markers.assistant_start": "a"}, "assistant_markers.assistant_end is missing"),
        ({"": 1}, "is not a field path"),
    ],
)
def test_override_that_leads_nowhere_or_is_impossible(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SFTRecipe.from_mapping(VALUES).override(changes)
