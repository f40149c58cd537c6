"""Turns pydantic's errors into bridgepack's messages: field, value found, what is allowed, what to do."""

import difflib
import re
import types
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType, NoneType
from typing import Annotated, Any, Literal, TypeAliasType, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from bridgepack.config.section import meanings_of
from bridgepack.errors import ConfigError, Problem, text_of_mistakes
from bridgepack.records.words import kind_of

#: Prefix of location parts that select one type of a source; see `config.recipe.sources`.
SHAPE_PREFIX = "as "


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A field of a file."""

    path: str  #: dotted path, without union branches
    kind: str  #: kind of the section that contains it, if several kinds are possible; else ""
    #: kind -> its fields, for every possible kind
    fields_of_kinds: Mapping[str, Collection[str]]
    known: tuple[str, ...]  #: names of all fields in its section
    meaning: str  #: its docstring, or ""
    types: tuple[Any, ...]  #: allowed types


def walk(model: type[BaseModel], location: tuple[int | str, ...]) -> Place:
    """Return the field at a location, a path of fields, indices, keys, kinds and union branches."""
    parts: list[str] = []
    types: tuple[Any, ...] = (model,)
    field_names: tuple[str, ...] = ()
    meaning, kind, branch_kind = "", "", ""
    fields_of_kinds: dict[str, Collection[str]] = {}
    for part in location:
        sections = [candidate for candidate in types if _is_model(candidate) and isinstance(part, str)]
        branch = [candidate for candidate in sections if part in _kinds_of(candidate)]
        if branch and not branch_kind:
            fields_of_kinds = {kind: candidate.model_fields for candidate in sections for kind in _kinds_of(candidate)}
            branch_kind, types = str(part), tuple(branch)
            continue
        if _is_no_field(part, types):
            continue
        parts.append(str(part))
        kind, branch_kind = branch_kind, ""
        field_names = tuple(sorted({name for candidate in sections for name in candidate.model_fields}))
        owners = [candidate for candidate in sections if part in candidate.model_fields]
        meaning = meanings_of(owners[0]).get(str(part), "") if owners else ""
        field_types = [
            kind for candidate in owners for kind in alternatives(candidate.model_fields[str(part)].annotation)
        ]
        types = tuple(field_types) if sections else tuple(kind for candidate in types for kind in _inside(candidate))
    return Place(
        path=".".join(parts),
        kind=kind,
        fields_of_kinds=fields_of_kinds if kind else {},
        known=field_names,
        meaning=meaning,
        types=types,
    )


def _is_no_field(part: int | str, types: tuple[Any, ...]) -> bool:
    """Return whether a location part names a union branch or marks a mapping key."""
    if isinstance(part, int) or any(get_origin(candidate) is dict for candidate in types):
        return part == "[key]" or (isinstance(part, str) and part.startswith(SHAPE_PREFIX))
    return part.startswith(SHAPE_PREFIX) or not any(_is_model(candidate) for candidate in types)


def alternatives(annotation: Any) -> Iterator[Any]:
    """Yield the types that an annotation allows, without None and `Annotated` metadata."""
    if isinstance(annotation, TypeAliasType):
        yield from alternatives(annotation.__value__)
    elif get_origin(annotation) is Annotated:
        yield from alternatives(get_args(annotation)[0])
    elif get_origin(annotation) in {Union, types.UnionType}:
        for argument in get_args(annotation):
            yield from alternatives(argument)
    elif annotation is not types.NoneType:
        yield annotation


def _inside(annotation: Any) -> Iterator[Any]:
    arguments = get_args(annotation)
    if get_origin(annotation) in {dict, Mapping}:
        yield from alternatives(arguments[1])
    elif get_origin(annotation) in {tuple, list}:
        yield from alternatives(arguments[0])


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _kinds_of(model: type[BaseModel]) -> tuple[Any, ...]:
    annotation: Any = model.model_fields["kind"].annotation if "kind" in model.model_fields else None
    return get_args(annotation) if get_origin(annotation) is Literal else ()


_TAG_ERRORS = frozenset({"union_tag_invalid", "union_tag_not_found"})
_SECTION_ERRORS = frozenset({"model_type", "model_attributes_type", "dict_type"})
#: Branches of unions beside those of sources -> what is allowed there.
_SHAPES: Mapping[str, str] = MappingProxyType(
    {
        "as text": 'text with columns in braces, e.g. "{question}", or a list of such texts. Put it in quotes.',
        "as name": "a column's name. Put it in quotes.",
    }
)
#: Index of a list entry; an unknown field in several entries is reported once.
_INDEX = re.compile(r"\.\d+\.")
#: Dotted path of a field at the start of a line.
_FIELD_AT_START = re.compile(r"[a-z_]+(?:\.\w+)*(?= is )")
#: Name that other tools have for a field -> its own.
_OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "learning_rate": "lr",
        "max_lr": "lr",
        "peak_lr": "lr",
        "random_seed": "seed",
        **dict.fromkeys(("batch_size", "train_batch_size", "gbs"), "global_batch_size"),
        **dict.fromkeys(("mbs", "per_device_train_batch_size"), "micro_batch_size"),
        **dict.fromkeys(("max_steps", "num_steps", "steps", "num_iters", "iters"), "train_iters"),
        **dict.fromkeys(("epochs", "num_train_epochs", "max_epochs"), "num_epochs"),
        **dict.fromkeys(("warmup_ratio", "lr_warmup_fraction"), "warmup_fraction"),
        **dict.fromkeys(("lr_scheduler_type", "decay_style", "lr_scheduler"), "lr_decay_style"),
        **dict.fromkeys(("seq_length", "sequence_length", "max_seq_length", "max_length"), "packed_sequence_size"),
        **dict.fromkeys(("max_grad_norm", "gradient_clip", "grad_clip"), "clip_grad"),
        **dict.fromkeys(("lora_rank", "lora_r", "rank", "lora_dim"), "dim"),
        "lora_alpha": "alpha",
        "lora_dropout": "dropout",
        "tp": "tensor_model_parallel_size",
        "pp": "pipeline_model_parallel_size",
        "cp": "context_parallel_size",
        "ep": "expert_model_parallel_size",
        "tensor_parallel_size": "tensor_model_parallel_size",
        "pipeline_parallel_size": "pipeline_model_parallel_size",
        "pretrained_checkpoint": "pretrained",
    }
)
_SOURCE = "a path, a section {path: PATH} or {dataset: ID}, or a list of these"
_ROWS_CURE = (
    " Write rows to a file and name it; in Python, `build` and its like take a Dataset, a DataFrame or a list of dicts."
)
_BOUNDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "greater_than_equal": ("ge", "at least {}. Raise it."),
        "greater_than": ("gt", "more than {}. Raise it."),
        "less_than_equal": ("le", "at most {}. Lower it."),
        "less_than": ("lt", "less than {}. Lower it."),
        "string_pattern_mismatch": ("pattern", "text matching {}. Rename it."),
        "string_too_short": ("min_length", "text of at least {} character. Fill it in or remove the field."),
        "string_too_long": ("max_length", "text of at most {} characters. Shorten it."),
    }
)
_TYPES: Mapping[str, str] = MappingProxyType(
    {
        "int_type": "a whole number, without quotes. Write a number.",
        "int_parsing": "a whole number. Write a number.",
        "int_from_float": "a whole number. Remove the fraction.",
        "bool_type": "true or false, without quotes.",
        "bool_parsing": "true or false.",
        "string_type": "text. Put it in quotes.",
        **dict.fromkeys(_SECTION_ERRORS, "a section with named fields."),
        **dict.fromkeys(("tuple_type", "list_type"), "a list."),
        "float_parsing": "a number.",
        "float_type": "a number, without quotes.",
        "finite_number": "a finite number. Write a number.",
        "invalid_key": "text as a field's name. Rename it.",
    }
)


def config_error(
    error: ValidationError,
    model: type[BaseModel],
    *,
    content: str = "recipe",
    option: str = "--set",
    relocation: tuple[str, str] = ("", ""),
) -> ConfigError:
    """Return one ConfigError with a line for every wrong field of a model.

    `content` names what the file holds and `option` the option that sets a field, for messages; `relocation` is (dotted
    path of a section in the model, its path in the file).
    """
    problems: dict[str, tuple[Place, list[ErrorDetails]]] = {}
    for detail in error.errors(include_url=False):
        place = walk(model, detail["loc"])
        if place.path.startswith(relocation[0]):
            place = replace(place, path=relocation[1] + place.path.removeprefix(relocation[0]))
        is_unknown = detail["type"] == "extra_forbidden"
        key = _INDEX.sub(".", place.path) if is_unknown else place.path
        if not _is_echo(detail):
            problems.setdefault(key, (place, []))[1].append(detail)
    lines = {place.path: _line(place, details, content, option, model) for place, details in problems.values()}
    wrong = ConfigError(text_of_mistakes([*lines.values()]))
    wrong.problems = tuple(Problem(field=_field_of(path, line), message=line) for path, line in lines.items())
    return wrong


def nearest_name(name: str, names: Iterable[str]) -> str | None:
    """Return the known name closest to `name` in upper or lower case, or None if none is close."""
    by_lower = {known_name.lower(): known_name for known_name in names}
    matches = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[matches[0]] if matches else None


def quote(value: Any) -> str:
    """Return a value as an error message shows it: its repr, cut at 80 characters."""
    try:
        text = repr(value)
    except ValueError:  # Python writes no number of more than 4,300 digits
        text = f"a number of {value.bit_length():,} bits" if isinstance(value, int) else kind_of(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= 80 else f"{text[:77]}..."


def did_you_mean(name: str, names: Iterable[str], otherwise: str = "Use one of these.") -> str:
    """Return a hint with the known name closest to `name`, or `otherwise` if none is close."""
    nearest = nearest_name(name, names)
    return f"Did you mean {nearest}?" if nearest else otherwise


def known_names(name: str, names: Iterable[str]) -> str:
    """Return the message part for an unknown name: the known names and the closest one."""
    names = list(names)
    return f"allowed: {', '.join(names)}. {did_you_mean(name, names)}"


def _is_echo(detail: ErrorDetails) -> bool:
    """Return whether pydantic calls a list too short only because its entries are wrong."""
    return detail["type"] == "too_short" and len(detail["input"]) >= detail.get("ctx", {}).get("min_length", 0)


def _field_of(path: str, line: str) -> str:
    """Return the field that a line is about: of a section's, the one that it begins with."""
    first = _FIELD_AT_START.match(line)
    return first[0] if first is not None and first[0].startswith(path) else path


def _line(place: Place, details: list[ErrorDetails], content: str, option: str, model: type[BaseModel]) -> str:
    """Return the message line of one field; several errors of one field are its alternative types."""
    detail, path = details[0], place.path
    kinds = tuple(kind for item in place.types if _is_model(item) for kind in _kinds_of(item))
    value, kind, context = detail["input"], detail["type"], detail.get("ctx", {})
    if kind == "extra_forbidden":
        more = f" Other entries with it: {len(details) - 1}." if len(details) > 1 else ""
        return _unknown_field(place, str(detail["loc"][-1]), model) + more
    if kind == "missing":
        return _missing(place, content, option)
    if kind == "value_error":
        reason = str(context.get("error", detail["msg"]))
        return f"{path}{reason}" if reason.startswith(" ") or not path else f"{path}.{reason}"
    if kind in _TAG_ERRORS | _SECTION_ERRORS and kinds:
        return _wrong_kind(path, value, kinds)
    if kind == "literal_error":
        return f"{path} is {quote(value)}; {_wrong_literal(value, str(context.get('expected', '')))}"
    shapes = list(dict.fromkeys(_shape(item) for item in details))
    if len(shapes) > 1:
        return f"{path} is {quote(value)}; allowed: {', '.join(shapes[:-1])} or {shapes[-1]}. Write one of these."
    return f"{path or content} is {quote(value)}; allowed: {_allowed_text(detail)}"


def _shape(detail: ErrorDetails) -> str:
    return _allowed_text(detail).partition(". ")[0].partition(", without")[0].removesuffix(".")


def _unknown_field(place: Place, name: str, model: type[BaseModel]) -> str:
    kind, names = place.kind, place.known
    kinds = [owner for owner, fields in place.fields_of_kinds.items() if name in fields]
    text = f"{place.path} is not a field{f' of {kind}' if kind else ''}"
    if not kinds and (place_elsewhere := _field_elsewhere(model, name)) is not None:
        return f"{text}; allowed: {', '.join(names)}. Did you mean {place_elsewhere}?"
    if not kinds:
        return f"{text}; {known_names(name, names)}"
    section = place.path.rpartition(".")[0]
    hint = did_you_mean(name, names, f"Set {section}.kind to {' or '.join(kinds)}, or remove it.")
    have = f"{', '.join(kinds[:-1])} and {kinds[-1]} have" if len(kinds) > 1 else f"{kinds[0]} has"
    return f"{text}; {have} it. {hint} {kind} has: {', '.join(names)}."


def _field_elsewhere(model: type[BaseModel], name: str) -> str | None:
    """Return the path of the field that a name has in another section, or that is meant by it; the shortest path."""
    names = (name, _OTHER_NAMES.get(name.lower(), name))
    sections: list[tuple[str, type[BaseModel]]] = [("", model)]
    for prefix, section in sections:
        for field, info in section.model_fields.items():
            if field in names:
                return f"{prefix}{field}"
            kinds = list(alternatives(info.annotation))
            sections += [(f"{prefix}{field}.", kind) for kind in kinds if all(map(_is_model, kinds))]
    return None


def _missing(place: Place, content: str, option: str) -> str:
    section = place.path.split(".")[-2:][0]
    needs = f"a {place.kind} {section} needs it" if place.kind else "it has no default"
    meaning = f" ({_first_sentence(place.meaning)})" if place.meaning else ""
    return f"{place.path} is missing{meaning}; {needs}. Set it in the {content} or with {option} {place.path}=VALUE."


def _first_sentence(text: str) -> str:
    """Return the first sentence without its full stop; `e.g.` ends none."""
    return re.split(r"\.\s+(?=[A-Z])", " ".join(text.split()), maxsplit=1)[0].rstrip(".")


def _wrong_kind(path: str, value: Any, kinds: tuple[str, ...]) -> str:
    if not isinstance(value, Mapping):
        example = (nearest_name(value, kinds) if isinstance(value, str) else None) or kinds[0]
        return f"{path} is {quote(value)}; allowed: a section with named fields. Write {path}: {{kind: {example}}}."
    tag = value.get("kind")
    state = "is missing" if tag is None else f"is {quote(tag)}"
    return f"{path}.kind {state}; {known_names(str(tag or ''), kinds)}"


def _wrong_literal(value: Any, choices: str) -> str:
    names = re.findall(r"'([^']*)'", choices)
    nearest = None
    if isinstance(value, str) and value:
        nearest = nearest_name(value, names) or next((name for name in names if name.startswith(value)), None)
    return f"allowed: {choices}. {f'Did you mean {nearest}?' if nearest else 'Use one of these.'}"


def _allowed_text(detail: ErrorDetails) -> str:
    kind, context, location = detail["type"], detail.get("ctx", {}), detail["loc"]
    if kind == "string_type" and str(location[-1]) in _SHAPES:
        return _SHAPES[str(location[-1])]
    if kind == "union_tag_invalid" or (kind == "string_type" and str(location[-1]).startswith(SHAPE_PREFIX)):
        is_plain = isinstance(detail["input"], int | float | list | set | NoneType)
        return f"{_SOURCE}.{'' if is_plain else _ROWS_CURE}"
    if kind == "too_short":
        least = context["min_length"]
        return f"a list of at least {least} {'entry' if least == 1 else 'entries'}. Add one or remove the field."
    if kind == "too_long":
        return f"at most {context['max_length']:,} entries. Remove some."
    if kind in _BOUNDS:
        name, text = _BOUNDS[kind]
        return text.format(context.get(name))
    return _TYPES.get(kind, f"{detail['msg']}.")
