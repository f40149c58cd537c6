"""Reference pages of the documentation, as Markdown: recipe fields, commands, rules. From the code, never by hand."""

import inspect
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import click

from bridgepack.config.schema import cluster_schema, recipe_schema, schema_text
from bridgepack.rules.registry import ALL_RULES

from .rules import NOTICE, literal, rule_pages

_REFERENCE_PREFIX = "#/$defs/"
#: Names of JSON types, as a recipe's author says them.
_TYPE_NAMES = {
    "integer": "whole number",
    "number": "number",
    "string": "text",
    "boolean": "`true` or `false`",
    "null": "`null`",
}

_RECIPE_INTRODUCTION = """\
# Recipe reference

Every field of a recipe. A recipe is a YAML or TOML file, or a Python function that returns an `SFTRecipe`; the names
are the same in all three. `--set packing.seed=7` changes one field for one build. An unknown field or an impossible
value is an error that names the field, the value, what is allowed and what to do.
"""
_CLUSTER_INTRODUCTION = """\
# Cluster reference

Every field of a cluster file. A cluster file is YAML or TOML; [Clusters](clusters.md) has one of each kind.
`--cluster-set executor.nodes=4` changes one field for one launch. A field that an executor lacks is an error that says
which executors have it. `bridgepack launch --list-executors` prints the same, and the fields of the classes that
`kind: nemo_run` can name.
"""
_COMMANDS_INTRODUCTION = """\
# Commands

Exit codes: 0 clean, 1 findings, 2 could not run, 130 interrupted (143 by SIGTERM, 129 by SIGHUP). With `--json` a
command prints one JSON document to standard output, errors as `{"error": ...}`. Messages about what went wrong go to
standard error.

Shells complete commands, recipes, rules and the fields of `--set` after
`eval "$(_BRIDGEPACK_COMPLETE=bash_source bridgepack)"`; `zsh_source` and `fish_source` are for zsh and fish.
"""


def reference_pages(command: click.Group) -> dict[str, str]:
    """Return file name -> Markdown of every generated page.

    Args:
        command: the command line.
    """
    return {
        "recipe-reference.md": recipe_page(),
        "recipe.schema.json": schema_text(),
        "cluster-reference.md": cluster_page(),
        "cluster.schema.json": schema_text(cluster_schema()),
        "cli.md": commands_page(command),
        **rule_pages(ALL_RULES),
    }


def recipe_page() -> str:
    """Return the page of every recipe field: type, bounds, default, meaning."""
    return _schema_page(_RECIPE_INTRODUCTION, recipe_schema())


def cluster_page() -> str:
    """Return the page of every field of a cluster file."""
    return _schema_page(_CLUSTER_INTRODUCTION, cluster_schema())


def _schema_page(introduction: str, schema: Mapping[str, Any]) -> str:
    blocks = [NOTICE, introduction, _field_list(schema)]
    for path, definition in _sections(schema):
        blocks += [f"## {path}", _prose(definition["description"]), _field_list(definition)]
    return _page(blocks)


def commands_page(command: click.Group) -> str:
    """Return the page of every command: usage, what it does, arguments and options."""
    context = click.Context(command, info_name=command.name, **command.context_settings)
    blocks = [NOTICE, _COMMANDS_INTRODUCTION]
    blocks += _command_sections(command, context)
    return _page(blocks)


def _page(blocks: Sequence[str]) -> str:
    return "\n\n".join(block.strip("\n") for block in blocks) + "\n"


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


def _field_list(definition: Mapping[str, Any]) -> str:
    required = definition.get("required", [])
    return "\n".join(_field_line(name, field, name in required) for name, field in definition["properties"].items())


def _field_line(name: str, field: Mapping[str, Any], is_required: bool) -> str:
    default = "required" if is_required else f"default {_default(field)}"
    return f"- **`{name}`** ({_type(field)}; {default}). {_prose(field['description'])}"


def _default(field: Mapping[str, Any]) -> str:
    value = field.get("default", {})
    if _references(field) and isinstance(value, dict):
        return f"of kind `{value['kind']}`" if "kind" in value else "all its defaults"
    return f"`{_shown(value)}`" if value not in ([], {}, "") else "empty"


def _shown(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _type(field: Mapping[str, Any]) -> str:
    """Return a field's type and bounds in words."""
    if "$ref" in field:
        return "section"
    if "const" in field:
        return f"`{_shown(field['const'])}`"
    if "enum" in field:
        return " or ".join(f"`{_shown(value)}`" for value in field["enum"])
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
        "minimum": "at least {}",
        "exclusiveMinimum": "more than {}",
        "maximum": "at most {}",
        "exclusiveMaximum": "less than {}",
        "maxLength": "at most {} characters",
        "pattern": "matching `{}`",
    }
    return "".join(f", {text.format(_number(field[key]))}" for key, text in words.items() if key in field)


def _number(bound: Any) -> Any:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _command_sections(group: click.Group, context: click.Context) -> Iterator[str]:
    """Yield the section of every command; a group's own comes before those of its commands."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield _command_section(command, context)
        if isinstance(command, click.Group):
            yield from _command_sections(command, click.Context(command, info_name=name, parent=context))


def _command_section(command: click.Command, parent: click.Context) -> str:
    context = click.Context(command, info_name=command.name, parent=parent)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    records = [parameter.get_help_record(context) for parameter in command.get_params(context)]
    options = "\n".join(f"- `{record[0]}`: {literal(record[1])}" for record in records if record and record[1])
    return f"## {context.command_path}\n\n```text\n{usage}\n```\n\n{_prose(command.help or '')}\n\n{options}"
