"""What a recipe accepts, what it says about everything else, what it resolves to, and how it is overridden."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from bridgepack.config.recipe.preprocessing import PromptCompletionPreprocessing
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.config.recipe.training import GuardConfig
from bridgepack.errors import ConfigError
from tests.support.catalogue import SMALL as VALUES
from tests.support.messages import mentions

SOURCES = "a path, a section {path: PATH} or {dataset: ID}, or a list of these"
KINDS = "allowed: full, lora, dora."
JOINED = {"assistant_start": "a", "assistant_end": "b", "joins_starts": True}
RESERVED = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now")
NO_TEXTS = ("", "no", "{prompt", "{}", "{ }", "}")
NO_PROMPTS = [
    {"train": "a", "layout": {"kind": "prompt_completion", "prompt": text, "completion": "{a}"}} for text in NO_TEXTS
]


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


def _sized(**packing: int) -> dict[str, Any]:
    """Return values of a run on two context ranks, which share multiples of 4 tokens."""
    sizes = {"packed_sequence_size": 16, **packing}
    return {**VALUES, "packing": sizes, "parallelism": {"context_parallel_size": 2}}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("packng", 1, "Did you mean packing?"),
        ("data.trian", 1, "data.trian is not a field"),
        ("batch.micro_batchsize", 1, "Did you mean micro_batch_size?"),
        ("preprocessing", {"kind": "chat", "chat": 1}, "preprocessing.chat is not a field"),
        ("data.train", {"dataset": "a", "splt": "x"}, "allowed: dataset, epochs"),
        ("data.train", ["a", {"dataset": "a", "splt": "x"}], "Did you mean split?"),
        ("data.train", [{"path": name, "wieght": 1} for name in "abc"], "weight? Other entries with it: 2."),
        ("data.train", [{"sources": [{"path": "a", "wieght": 1}] * 2}], "data.train.0.sources.0.wieght is not a field"),
        ("logging", {"wandb_projekt": "x"}, "wandb_project. Did you mean wandb_project?"),
        ("preprocessing", {"kind": "chat", "separator": ""}, "prompt_completion has"),
        ("name!", None, "name is missing (Name of the recipe;"),
        ("data.train!", None, "data.train is missing (Training data:"),
        ("data.train", {}, "data.train has a section in"),
        ("preprocessing", {"loss_mode": "full"}, "preprocessing.kind is missing; allowed: chat, prompt_completion"),
        (
            "preprocessing",
            {"kind": "chat", "assistant_markers": {"assistant_start": "a"}},
            "assistant_markers.assistant_end is not set",
        ),
        ("name", 5, "name is 5; allowed: text. Put it in quotes."),
        ("name", "a b", "name is 'a b'; allowed: text matching ^[A-Za-z0-9][A-Za-z0-9._-]*$. Rename it."),
        ("name", "a" * 201, "text of at most 200 characters. Shorten it."),
        ("tokenizer", "path", "tokenizer is 'path'"),
        (
            "tokenizer.trust_remote_code",
            "maybe",
            "tokenizer.trust_remote_code is 'maybe'",
        ),
        *(("tokenizer.chat_template_kwargs", {name: 1}, f"has {name}; any other template var") for name in RESERVED),
        ("data.validation_fraction", math.nan, "data.validation_fraction is nan"),
        ("data.validation_fraction", "some", "data.validation_fraction is 'some'; allowed: a number"),
        ("optimizer.lr", True, "optimizer.lr is True"),
        ("batch.GLOBAL_BATCH_SIZE", 8, "Did you mean global_batch_size?"),
        ("data.on_bad_row", "skip", "data.on_bad_row is 'skip'; allowed: 'drop' or 'error'. Use one of these."),
        ("data.role_aliases", {"bard": "bot"}, "data.role_aliases.bard is 'bot'; allowed: 'system', 'developer',"),
        ("ignore", {"str": 5}, "ignore.str is 5; allowed: text."),
        ("packing.packed_sequence_size", 2**31, "allowed: less than 2147483648. Lower it."),
        ("packing.packed_sequence_size", 16.0, "packing.packed_sequence_size is 16.0; allowed: a whole number"),
        ("packing.packed_sequence_size", True, "packing.packed_sequence_size is True"),
        ("packing.pad_cu_seqlens", "true", "packing.pad_cu_seqlens is 'true'; allowed: true or false"),
        ("preprocessing", 5, "preprocessing is 5"),
        ("precision", {"recipe": "bf16"}, "'bf16_mixed', 'fp16_mixed', "),
        ("precision", {"recipe": "bf16"}, "Did you mean bf16_mixed?"),
        ("parallelism.cp_comm_type", "a2a_p2p", "'all_gather' or 'a2a+p2p'. Did you mean a2a+p2p?"),
        ("cuda_graphs", {"implementation": "transformer_engine", "modules": ["attn"]}, "modules.0 is 'attn';"),
        ("environment", {"NCCL_DEBUG": [1]}, "environment.NCCL_DEBUG is [1]; allowed: text"),
        ("schedule", {"num_epochs": 0}, "schedule.num_epochs is 0; allowed: more than 0.0. Raise it."),
        ("guard", {"first_steps": 0, "every_steps": None}, "no step is checked"),
        ("method", {"kind": "lroa"}, f"method.kind is 'lroa'; {KINDS} Did you mean lora?"),
        ("method", {"kind": "adapters"}, f"method.kind is 'adapters'; {KINDS} Use one of these."),
        ("method", {"dim": 8}, f"method.kind is missing; {KINDS} Use one of these."),
        ("method", "lora", "method is 'lora'"),
        ("method", {"kind": "full", "dim": 64}, "Set method.kind to"),
        ("method", {"kind": "lora", "dims": 64}, "method.dims is not a field"),
        ("method", {"kind": "dora", "dim": 0}, "method.dim is 0; allowed: at least 1. Raise it."),
        ("method", {"kind": "lora", "dropout": 1}, "method.dropout is 1; allowed: less than 1.0. Lower it."),
        ("method", {"kind": "lora", "target_modules": []}, "method.target_modules is []; allowed: a list of"),
        *(("data.train", value, f"is {value!r}; allowed: {SOURCES}.") for value in (5, None, {"a.jsonl"})),
        ("data.train", [], "data.train is []"),
        ("data.train", [5], f"data.train.0 is 5; allowed: {SOURCES}."),
        ("data.train", ["a", ["b"]], f"data.train.1 is ['b']; allowed: {SOURCES}."),
        ("data.train", [""], "data.train.0 is ''"),
        ("data.train", {"dataset": 5}, "data.train.dataset is 5; allowed: text. Put it in quotes."),
        ("data", {"train": "a", "validation": "b", "validation_fraction": 0.5}, "only one of them"),
        ("packing", {"packed_sequence_size": 16, "max_sequence_length": 17}, "1 to packed_sequence_size, 16."),
        ("batch", {"micro_batch_size": 3, "global_batch_size": 8}, "a multiple of micro_batch_size, 3."),
        ("preprocessing", {"kind": "chat", "assistant_markers": JOINED}, "is true and other_role_starts is empty"),
        ("preprocessing", {"kind": "chat", "message_weights": "mask", "loss_mode": "full"}, "which trains everything"),
        *(("data", values, "data.layout.prompt ") for values in NO_PROMPTS),
    ],
    ids=str,
)
def test_wrong_value_is_answered_in_one_line_with_what_is_allowed(path: str, value: Any, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        SFTRecipe.from_mapping(_values(path, value)).resolve()

    found = str(raised.value)
    assert found.startswith(path.removesuffix("!"))
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("values", "message"),
    [
        *((value, "^recipe is .*") for value in ([1], "text", None, 5)),
        ({**VALUES, 5: 1}, "5 is 5"),
        (
            {**_values("packing.packed_sequence_size", 0), "name": "a b", "datas": 1},
            "^3 fields are wrong:\n +name is .*\n +packing.packed_sequence_size is .*\n +datas is .*$",
        ),
        (_sized(packed_sequence_size=17), r"^packing.packed_sequence_size is 17; allowed: mult.* Set it to 16 or "),
        (_sized(packed_sequence_size=2), r"^packing.packed_sequence_size is 2; allowed: multiples .* Set it to 4\."),
        (_sized(pad_seq_to_mult=6), r"^packing.pad_seq_to_mult is 6; .* or set it to 8\."),
        (_sized(max_sequence_length=3), r"^packing.max_sequence_length is 3; .*, 4 \("),
    ],
)
def test_what_is_no_recipe_or_not_of_one_size_is_refused(values: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SFTRecipe.from_mapping(values).resolve()


def test_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        SFTRecipe.from_mapping(VALUES).packing.seed = 7  # type: ignore[misc]


def test_multiple_that_is_set_is_kept_when_the_topology_divides_it() -> None:
    values = _sized(packed_sequence_size=32, pad_seq_to_mult=16, max_sequence_length=31)
    rounded = "packing.max_sequence_length 31 rounded down to a multiple of 16"

    explained = SFTRecipe.from_mapping(values).resolve().explain()
    values_of_names = {name: derived["value"] for name, derived in explained.items()}
    assert values_of_names == {
        "pad_seq_to_mult": 16,
        "max_sequence_length": 16,
        "layout": "detected from the data",
    }
    assert mentions(explained["pad_seq_to_mult"]["because"], "packing.pad_seq_to_mult is set")
    assert explained["max_sequence_length"]["because"] == rounded
    assert mentions(explained["layout"]["because"], "data.layout is not set; ")


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
    parallelism = {
        **{"context_parallel_size": context, "eval_context_parallel_size": evaluation},
        **{"tensor_model_parallel_size": tensor, "sequence_parallel": is_sequence_parallel},
    }
    packing = {"packed_sequence_size": size, "max_sequence_length": longest}
    recipe = SFTRecipe.from_mapping({**VALUES, "packing": packing, "parallelism": parallelism})

    if longest is not None and longest < multiple:
        with pytest.raises(ConfigError, match=rf"packing\.max_sequence_length is {longest}; .*at least"):
            recipe.resolve()
    else:
        resolved = recipe.resolve()
        assert resolved.pad_seq_to_mult.value == multiple
        assert resolved.max_sequence_length.value == (longest or size) // multiple * multiple


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
    recipe, (first, second, third) = SFTRecipe.from_mapping(VALUES), SOURCES_OF_A_LIST
    listed = recipe.override({"data.train": SOURCES_OF_A_LIST})

    other = {"path": "e.jsonl", "weight": 5}
    changes = {"data.train.0.weight": 2, "data.train.1": other, "data.train.2.sources.1": "f.jsonl"}
    changed = [{**first, "weight": 2}, other, {**third, "sources": ["c.jsonl", "f.jsonl"]}]
    assert listed.override(changes) == recipe.override({"data.train": changed})
    together = recipe.override({"data.train.0.weight": 3, "data.train": SOURCES_OF_A_LIST})
    assert together == recipe.override({"data.train": [{**first, "weight": 3}, second, third]})
    assert listed == recipe.override({"data.train": SOURCES_OF_A_LIST})


def test_override_below_a_section_that_is_none() -> None:
    markers = "preprocessing.assistant_markers"
    recipe = SFTRecipe.from_mapping(VALUES).override(
        {f"{markers}.assistant_start": "A", f"{markers}.assistant_end": "B"}
    )

    assert recipe.preprocessing.model_dump()["assistant_markers"]["assistant_start"] == "A"
    assert recipe.override({markers: None}).preprocessing.model_dump()["assistant_markers"] is None


@pytest.mark.parametrize("order", [1, -1])
def test_another_kind_takes_its_fields_in_any_order(order: int) -> None:
    items = [("preprocessing.kind", "prompt_completion"), ("preprocessing.separator", "->")]
    recipe = SFTRecipe.from_mapping(_values("preprocessing", {"kind": "chat", "over_long": "error"}))

    expected = PromptCompletionPreprocessing(kind="prompt_completion", separator="->", over_long="error")
    assert recipe.override(dict(items[::order])).preprocessing == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pakcing.seed": 1}, ".* Did you mean packing\\?"),
        ({"packing.packed_sequence_size.x": 1}, "packing.packed_sequence_size is a plain value"),
        ({"packing.seed.x": 1}, "packing.seed is {'x': 1}; allowed: a whole number"),
        ({"data.train.0": "b"}, "data.train.0: data.train is a plain value"),
        ({"packing..seed": 1}, "'packing..seed' is not a field"),
        ({"preprocessing.kind": "chatt"}, "preprocessing.kind is 'chatt'; allowed: chat"),
        ({"preprocessing.assistant_markers.assistant_start": "a"}, "assistant_markers.assistant_end is not set"),
        ({"": 1}, "not a field path"),
        ({"data.train.3.weight": 2}, "data.train is a list of 3, so '3' must be an index"),
        ({"data.train.-1.weight": 2}, "so '-1' must be an index"),
        ({"data.train.weight": 2}, "so 'weight' must be an index"),
        ({"data.train.5": 2}, "so '5' must be an index"),
        ({"data.train.2.sources.1.weight": 2}, "data.train.2.sources.1 is a plain value"),
    ],
)
def test_override_that_leads_nowhere_or_is_impossible(changes: dict[str, Any], message: str) -> None:
    values = VALUES if "data.train.0" in changes else {**VALUES, "data": {"train": SOURCES_OF_A_LIST}}

    with pytest.raises(ConfigError, match=message):
        SFTRecipe.from_mapping(values).override(changes)


@pytest.mark.parametrize(
    ("settings", "first_step", "expected"),
    [
        ({"first_steps": 2, "every_steps": 10}, 1, [1, 2, 10, 20]),
        ({"first_steps": 2, "every_steps": 10}, 7, [7, 8, 10, 20]),
        ({"first_steps": 3, "every_steps": None}, 1, [1, 2, 3]),
        ({"first_steps": 0, "every_steps": 8}, 1, [8, 16]),
        ({"first_steps": 2, "every_steps": 1}, 18, [18, 19, 20]),
        ({"enabled": False}, 1, []),
    ],
)
def test_first_steps_of_a_job_and_every_so_many(settings: dict[str, Any], first_step: int, expected: list[int]) -> None:
    watches = GuardConfig(**settings).watches

    assert [step for step in range(first_step, 21) if watches(step, first_step=first_step)] == expected
