"""Reference pages of the documentation, as Markdown: recipe fields, cluster fields, commands."""

import inspect
import json
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import click

from bridgepack.config.write import cluster_schema, recipe_schema

from .rules import literal, page_of

_REFERENCE_PREFIX = "#/$defs/"
#: Names of JSON types, as a recipe's author says them.
_TYPE_NAMES = {"integer": "integer", "number": "number", "string": "text", "boolean": "boolean", "null": "`null`"}

_RECIPE_INTRODUCTION = """\
# Recipe reference

Every field of a recipe. A recipe is a YAML or TOML file, or a Python function that returns an `SFTRecipe`; the names
are the same in all three. A field is optional, text or a section, and a boolean `false`, unless it says otherwise.
`--set packing.seed=7` changes one for one build. An unknown field or an impossible value is an error that says what is
allowed.
"""
_CLUSTER_INTRODUCTION = """\
# Cluster reference

Every field of a cluster file, which is YAML or TOML; [Clusters](launch.md#clusters) has one of each kind. A field is
optional, text or a section, and a boolean `false`, unless it says otherwise. `--cluster-set executor.nodes=4` changes
one for one launch.
"""
_COMMANDS_INTRODUCTION = """\
# Commands

Exit codes: 0 clean, 1 findings, 2 could not run, 130 interrupted (143 by SIGTERM, 129 by SIGHUP). With `--json`, which
all but `new` and `recipes schema` have, a command prints one JSON document to standard output, errors as
`{"error": ...}`. Messages about what went wrong go to standard error. Every command has `-h, --help`.

Shells complete commands, recipes, rules and the fields of `--set` after
`eval "$(_BRIDGEPACK_COMPLETE=bash_source bridgepack)"`; `zsh_source` and `fish_source` are for zsh and fish.
"""


def recipe_page() -> str:
    """Return the page of every recipe field: type, bounds, default, meaning."""
    return _schema_page(_RECIPE_INTRODUCTION, recipe_schema())


def cluster_page() -> str:
    """Return the page of every field of a cluster file."""
    return _schema_page(_CLUSTER_INTRODUCTION, cluster_schema())


def _schema_page(introduction: str, schema: Mapping[str, Any]) -> str:
    blocks = [introduction, _field_list(schema, "", {})]
    told: dict[tuple[str, str, str], str] = {}
    for path, definition in _sections(schema):
        blocks += [f"## {path}", _prose(definition["description"]), _field_list(definition, path, told)]
    return page_of(blocks)


#: What click adds of a number that has a least value.
_BOUND = re.compile(r"  \[x>=\d\]$")


#: The option of almost every command, of which the introduction tells.
_JSON = "`--json`: Print JSON."


def commands_page(command: click.Group) -> str:
    """Return the page of every command: usage, what it does, arguments and options."""
    context = click.Context(command, info_name=command.name, **command.context_settings)
    sections = list(_command_sections(command, context))
    told = Counter(option for _, options in sections for option in options)
    most = {option.partition(": ")[0]: option for option, _ in reversed(told.most_common())}
    shared = [option for option, number in told.items() if number > 1 and option in most.values()]
    listed = "\n".join(f"- {option}" for option in shared if option != _JSON)
    return page_of(
        [_COMMANDS_INTRODUCTION, f"## Options of several commands\n\n{listed}"]
        + [f"{head}\n\n{_options_of(options, shared)}".rstrip() for head, options in sections]
    )


def _options_of(options: Sequence[str], shared: Collection[str]) -> str:
    """Return the options of a command; of those of several commands the names alone, without that of almost all."""
    shared_here = [option for option in options if option in shared and option != _JSON]
    names = [option.partition(": ")[0].strip("`").partition(" ")[0].strip(",") for option in shared_here]
    lines = [f"- {option}" for option in options if option not in shared]
    return "\n".join([*lines, f"- Also `{'`, `'.join(names)}`."] if names else lines)


def _prose(text: str) -> str:
    """Return a docstring's paragraphs, each on one line."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(text).split("\n\n"))


def _sections(schema: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (heading, definition) of every section, in the order of the fields that lead to it."""
    definitions = schema["$defs"]
    pending = list(schema["properties"].items())
    seen: set[str] = set()
    while pending:
        path, field = pending.pop(0)
        for name in _references(field):
            if name in seen:
                continue
            seen.add(name)
            definition = definitions[name]
            yield _heading(path, field, definition), definition
            inner = [(f"{path}.{key}", value) for key, value in definition["properties"].items()]
            pending = inner + pending


def _heading(path: str, field: Mapping[str, Any], definition: Mapping[str, Any]) -> str:
    if "kind" in definition.get("required", ()):
        return f"`{path}` of kind {_type(definition['properties']['kind'])}"
    return f"`{path}` as a section" if _TYPE_NAMES["string"] in _type(field) else f"`{path}`"


def _references(value: Any) -> list[str]:
    """Return the names of the definitions that a schema refers to, in order."""
    if isinstance(value, Mapping):
        own = [value["$ref"].removeprefix(_REFERENCE_PREFIX)] if "$ref" in value else []
        return own + [name for key, item in value.items() if key != "discriminator" for name in _references(item)]
    if isinstance(value, list):
        return [name for item in value for name in _references(item)]
    return []


def _field_list(definition: Mapping[str, Any], path: str, told: dict[tuple[str, str, str], str]) -> str:
    """Return the fields of a section. What a section of another kind said of a field is not said again.

    Args:
        definition: schema of the section.
        path: its heading.
        told: (path without kind, field, meaning) -> type and default of what was said; added to.
    """
    required = definition.get("required", [])
    lines, repeated = [], []
    for name, field in definition["properties"].items():
        if "const" in field:
            continue
        facts, meaning = _facts(field, name in required), _prose(field["description"])
        key = (path.partition(" of kind ")[0], name, meaning)
        if key in told:
            repeated.append(f"`{name}`" if told[key] == facts or not facts else f"`{name}` ({facts})")
            continue
        told[key] = facts
        lines.append(f"- **`{name}`**{f' ({facts})' if facts else ''}. {meaning}")
    return "\n".join([*lines, f"- As above: {', '.join(repeated)}."] if repeated else lines)


def _facts(field: Mapping[str, Any], is_required: bool) -> str:
    """Return a field's type and default: `integer ≥ 1; default 4`, `text; required`, nothing of an optional text."""
    kind = _type(field).removesuffix(f" or {_TYPE_NAMES['null']}")
    if is_required:
        return f"{kind}; required"
    default = _default(field)
    if default:
        return f"{kind}; default {default}"
    return "" if kind in ("section", _TYPE_NAMES["string"]) else kind


def _default(field: Mapping[str, Any]) -> str:
    """Return a field's default as Markdown; empty where nothing is set."""
    value = field.get("default", {})
    if _references(field) and isinstance(value, dict):
        return f"kind `{value['kind']}`" if "kind" in value else ""
    return f"`{_shown(value)}`" if value not in ([], {}, "", None) and value is not False else ""


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(field: Mapping[str, Any]) -> str:
    """Return a field's type and bounds in words."""
    if "$ref" in field:
        return "section"
    if "const" in field:
        return f"`{_shown(field['const'])}`"
    if "enum" in field:
        return ", ".join(f"`{_shown(value)}`" for value in field["enum"])
    options = field.get("anyOf") or field.get("oneOf")
    if options:
        return " or ".join(dict.fromkeys(_type(option) for option in options))
    if field["type"] == "array":
        items = _type(field["items"])
        return f"{_list_of(field.get('minItems', 0))} {f'({items})' if ' or ' in items else items}"
    if field["type"] == "object":
        values = field.get("additionalProperties")
        return f"names, each with {_type(values)}" if isinstance(values, dict) else "objects"
    return _TYPE_NAMES[field["type"]] + _bounds(field)


def _list_of(least: int) -> str:
    if least > 1:
        return f"list of at least {least} of"
    return "non-empty list of" if least else "list of"


def _bounds(field: Mapping[str, Any]) -> str:
    words = {
        "minimum": "≥ {}",
        "exclusiveMinimum": "> {}",
        "maximum": "≤ {}",
        "exclusiveMaximum": "< {}",
        "maxLength": "≤ {} characters",
        "pattern": "`{}`",
    }
    bounds = [text.format(_number(field[key])) for key, text in words.items() if key in field]
    return f" {', '.join(bounds)}" if bounds else ""


def _number(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _command_sections(group: click.Group, context: click.Context) -> Iterator[tuple[str, list[str]]]:
    """Yield the section of every command and its options; a group's own comes before those of its commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield _command_section(command, context)
        if isinstance(command, click.Group):
            yield from _command_sections(command, click.Context(command, info_name=name, parent=context))


def _command_section(command: click.Command, parent: click.Context) -> tuple[str, list[str]]:
    context = click.Context(command, info_name=command.name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    told = [record for record in records if record and record[1] and "--help" not in record[0]]
    options = [f"`{name}`: {literal(_BOUND.sub('', meaning))}" for name, meaning in told]
    return f"## {context.command_path}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}", options
