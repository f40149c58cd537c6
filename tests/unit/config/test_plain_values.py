"""Booleans and numbers of recipes and cluster files: a text is neither, nor is a number a boolean."""

import types
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from bridgepack.config.cluster.cluster import ClusterConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.errors import ConfigError

#: What YAML 1.1 or 1.2 makes of `no`, `off`, `"0"`, `0`, `1e-5` and the like, of other types.
_WRONG: Mapping[type, tuple[Any, ...]] = {
    bool: ("no", "off", "true", "0", 0, 1, 1.0),
    int: ("8", "8.0", 8.0, True, "no"),
    float: ("0.5", "1e-5", True, "no"),
}


def _scalars(kind: Any) -> Iterator[type]:
    if kind in _WRONG:
        yield kind
    elif get_origin(kind) in (Union, types.UnionType):
        for one in get_args(kind):
            yield from _scalars(one)
    elif get_origin(kind) is Annotated:
        yield from _scalars(get_args(kind)[0])


def _takes_text(kind: Any) -> bool:
    return kind is str or kind is Any or any(_takes_text(one) for one in get_args(kind))


def _sections(kind: Any, known: set[type[BaseModel]]) -> None:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        if kind not in known:
            known.add(kind)
            for field in kind.model_fields.values():
                _sections(field.annotation, known)
        return
    for one in get_args(kind):
        _sections(one, known)


def _fields() -> list[tuple[str, FieldInfo]]:
    known: set[type[BaseModel]] = set()
    for root in (SFTRecipe, ClusterConfig):
        _sections(root, known)
    named = ((f"{one.__name__}.{name}", field) for one in known for name, field in one.model_fields.items())
    return sorted((item for item in named if any(_scalars(item[1].annotation))), key=lambda item: item[0])


@pytest.mark.parametrize(("name", "field"), _fields(), ids=lambda item: item if isinstance(item, str) else "")
def test_another_type_is_refused(name: str, field: FieldInfo) -> None:
    kinds = set(_scalars(field.annotation))
    adapter: TypeAdapter[Any] = TypeAdapter(Annotated[field.annotation, *field.metadata, None])
    num_checked = 0
    for value in {repr(one): one for kind in kinds for one in _WRONG[kind]}.values():
        is_meant = type(value) in kinds or (type(value) is int and float in kinds)
        if is_meant or (type(value) is str and _takes_text(field.annotation)):
            continue
        num_checked += 1
        with pytest.raises(ValidationError):
            adapter.validate_python(value)
    assert num_checked > 0


@pytest.mark.parametrize("value", ["no", "off", "false", 0])
def test_what_an_author_meant_is_asked(value: Any) -> None:
    values = {
        "name": "mine",
        "data": {"train": "rows.jsonl"},
        "tokenizer": {"name_or_path": "t"},
        "packing": {"packed_sequence_size": 64},
    }
    recipe = SFTRecipe.model_validate({**values, "preprocessing": {"kind": "chat"}})
    assert recipe.override({"preprocessing.mask_generation_prompt": True}).chat_preprocessing is not None
    with pytest.raises(ConfigError, match=r"preprocessing.mask_generation_prompt is .*; allowed: true or false, "):
        recipe.override({"preprocessing.mask_generation_prompt": value})
