"""What one value of a column or of a turn's field holds: text that can be lost, a flag about the loss, or neither."""

import re
from functools import lru_cache
from typing import Any, Literal

from bridgepack.config.json_text import parsed_json

type Contents = Literal["text", "flag", "identifier"]

_PLAIN_FLAGS = frozenset(
    {
        *("loss", "loss_weight", "loss_mask", "loss_scale", "trainable", "mask", "weight", "train", "training"),
        *("is_trained", "is_training", "trained", "train_on_turn", "train_on_turns", "is_correct"),
        *("compute_loss", "calculate_loss", "use_loss", "has_loss", "do_train", "should_train", "train_on"),
        *("weights", "loss_weights", "loss_masks", "train_mask", "calc_loss"),
        *("include_in_loss", "in_loss", "with_loss"),
        *("use_for_training", "for_training", "to_train", "loss_on", "learn", "should_learn"),
    }
)
#: Those that say that something is not trained.
_NEGATED = frozenset(
    {
        *(
            "ignore_loss",
            "no_loss",
            "skip_loss",
            "mask_loss",
            "loss_masked",
            "masked",
            "is_masked",
            "exclude_from_loss",
        ),
        *("no_train", "skip_train", "no_training", "skip_training", "untrained", "exclude_from_training"),
    }
)
#: Names, as `plain_name` writes them, that say whether or how much a turn or a row is trained.
FLAGS = _PLAIN_FLAGS | _NEGATED
#: Last words of names of content, of which a single word can be all: `answer`, `system_prompt`.
_CONTENT_WORDS = """
    answer assistant chosen completion completions content context contexts conversation conversations cot
    dialog dialogue document documents evidence example examples explanation fact facts history input inputs instruction
    instructions message messages option options output outputs passage passages problem prompt query question rationale
    reasoning rejected response responses sentence solution system target targets text thinking thought thoughts user
    utterance value
"""
#: Whole names of content; their words are in names of labels, too.
_CONTENT_NAMES = """
    abstract article bot choice choices claim code critique description distractor feedback hint hints human hypothesis
    note notes paragraph persona premise reply schema sql story summary think
"""
#: Names of answers, and of what is asked, that can be a number, an object or a list.
_ANSWERS = frozenset({"answer", "completion", "output", "response", "solution", "target"})
_NUMBERS = _ANSWERS | {"input", "question", "prompt", "query", "instruction", "problem", "system"}
#: Names of content that can be true or false, for the chat template.
_SWITCHES = frozenset({"enable_thinking", "reasoning", "think", "thinking"})
#: Names of the column with tool schemas.
TOOL_COLUMNS = (
    *("tools", "functions", "tool_defs", "available_tools", "tool_schemas", "function_schemas", "tool_definitions"),
    *("function_definitions", "available_functions", "tool_list", "tools_list", "function_list", "functions_list"),
    *("tools_json", "functions_json", "tool_schema", "function_schema", "tool_specs", "tools_schema", "apis"),
    "tool_config",
)
#: Names of what is often JSON text: schemas and calls, where `[]` is none.
_LISTS = frozenset({*TOOL_COLUMNS, "tool_calls", "calls", "answers"})
#: Names of calls, which are content however short their values are.
_CALLS = frozenset({"tool_calls", "function_calls", "tool_invocations", "tool_uses", "actions", "api_calls"})
#: Names of what is seen or heard, which no tokenizer here reads.
_MEDIA = re.compile(
    r"(?:image|img|picture|photo|audio|video)s?(?:_(?:path|file|url|uri|bytes|base64))?s?|pixel_values|image_data"
)
_WORDS_OF_MEDIA = ("image", "video", "audio")
#: Keys of a part with the data, or the place, of a file, and its fields that say of which type that is.
_FILES, _FILE_TYPES = ("inline_data", "file_data"), ("media_type", "mime_type")
#: Last words of names of labels, which can have several words: `license: Creative Commons Attribution 4.0`.
_LABEL_NAMES = """
    affiliation agent attribution author benchmark category citation city company copyright corpus country created
    creator dataset date difficulty doi domain editor email field filename filepath folder format generator genre hash
    header id ids institution journal key keyword keywords kind label labels lang language level licence license link
    links location model name organization origin owner page path provenance publication publisher repo repository
    section site source sources split status style subject subset tag tags task time timestamp title topic type url
    urls username uuid venue version website
"""
_CONTENT, _WHOLE_CONTENT = frozenset(_CONTENT_WORDS.split()), frozenset(_CONTENT_NAMES.split())
_LABELS = frozenset(_LABEL_NAMES.split())
#: Names of a question's choices, which are content however short; others are numbered, as `option_a`.
_CHOICES = frozenset({"a", "b", "c", "d", "e", "f", "opa", "opb", "opc", "opd", "ope"})
#: The end of a name with a number or a letter: `option_a`, `choice2`.
_NUMBERED = re.compile(r"(?:_[a-z]|[0-9_]+)$")
#: Words that make a text, words of the longest label, and characters of a text in a script without spaces.
_WORDS, _LABEL_WORDS, _UNSPACED = 4, 16, 6
#: Characters, list items and levels that are looked at: what follows is like them.
_HEAD, _ITEMS, _DEPTH = 2000, 20, 20
#: A letter of a script that is written without spaces: Thai to Khmer, kana and Han.
_UNSPACED_LETTERS = re.compile(r"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
_MOST_TELLING: tuple[Contents, ...] = ("text", "flag", "identifier")
_KINDS_OF_CONTENT = frozenset({"content", "number", "switch", "media", "list"})
_NO_LIST = frozenset({"[]", "{}", "null"})
_MANY = (dict, list, tuple)
_LETTER = re.compile(r"[^\W\d_]")
_HUMP = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")


#: Flags as texts, which CSV files have, -> their values.
_FLAG_TEXTS = {**dict.fromkeys(("0", "0.0", "false"), 0), **dict.fromkeys(("1", "1.0", "true"), 1)}


def flag_of(value: Any, name: str = "") -> Any:
    """Return a flag about the loss, as a number if it is the text of 0 or 1, true or false; an empty text as None.

    `"False"` -> 0; `True` of `ignore_loss` -> 0; others unchanged.
    """
    if isinstance(value, str):
        value = _FLAG_TEXTS.get(value.strip().lower(), value) if value.strip() else None
    if name and plain_name(name) in _NEGATED and isinstance(value, int | float) and value in (0, 1):
        return 1 - value
    return value


def is_flag(name: str) -> bool:
    """Return whether a column, or a field as `messages.NAME`, says whether or how much something is trained."""
    return plain_name(name.rpartition(".")[2]) in FLAGS


def is_media(name: str) -> bool:
    """Return whether a column, or a field as `messages.NAME`, has what is seen or heard."""
    return bool(_MEDIA.fullmatch(_plain_end(name)))


def media_in(part: Any) -> str:
    """Return what a part of content has that is seen or heard, as its type, its key or its file say; empty for others.

    {"type": "image_url", ..} -> `image_url`; {"inlineData": {"mimeType": "image/png", ..}} -> `image/png`
    """
    if not isinstance(part, dict):
        return ""
    kind, names = part.get("type"), {plain_name(str(name)): name for name in part}
    file = next((part[names[name]] for name in _FILES if name in names and isinstance(part[names[name]], dict)), part)
    types = (value for name, value in file.items() if plain_name(str(name)) in _FILE_TYPES)
    keys = (name for name in (_WORDS_OF_MEDIA if kind is None else ()) if isinstance(part.get(name), dict))
    words = (word for word in (kind, *types, *keys) if isinstance(word, str))
    return next((word for word in words if any(medium in word for medium in _WORDS_OF_MEDIA)), "")


def is_mask_claim(name: str, value: Any) -> bool:
    """Return whether a flag is a mask that is true or false, which may mean trained or masked."""
    return plain_name(name) == "mask" and (
        isinstance(value, bool) or (isinstance(value, str) and value.strip().lower() in {"true", "false"})
    )


@lru_cache(maxsize=4096)
def plain_name(name: str) -> str:
    """Return a column's name in lower case with underscores: `User-Agent`, `userAgent` -> `user_agent`."""
    return _HUMP.sub("_", name).lower().replace("-", "_").replace(" ", "_")


def is_empty(value: Any) -> bool:
    """Return whether a value holds nothing: null, a text of white space, no number, or an empty list or object."""
    if isinstance(value, str):
        return not value or value.isspace()
    return value is None or is_nan(value) or (isinstance(value, (list, tuple, dict)) and not value)


def is_nan(value: Any) -> bool:
    """Return whether a value is what tables hold where a column of numbers has none."""
    return isinstance(value, float) and value != value


def holds(name: str, value: Any) -> Contents | None:
    """Return what a value holds; None for an empty one.

    Text is what could be meant for the model: at least four words, many characters of a script without spaces, or
    anything but a number in a column with a content's name. `Answer: 7` -> text, `id: 7` -> identifier.
    """
    return None if value is None else _holds(name, value, 0)


def _holds(name: str, value: Any, depth: int) -> Contents | None:
    if value is None or is_nan(value):
        return None
    kind = _kind_of(name)
    if type(value) is str:
        return _of_text(kind, value, depth) if value else None
    if isinstance(value, _MANY):
        return _of_items(kind, name, value, depth) if value else None
    if kind == "flag":
        return "flag"
    if isinstance(value, bool):
        return "text" if kind == "switch" else "identifier"
    is_content = kind == "media" or (kind == "number" and (depth == 0 or _plain_end(name) in _ANSWERS))
    return "text" if is_content or isinstance(value, bytes) else "identifier"


def _plain_end(name: str) -> str:
    """Return the last part of a column's or a field's name, as `plain_name` writes it."""
    return plain_name(name.rpartition(".")[2])


def _of_items(kind: str, name: str, value: Any, depth: int) -> Contents | None:
    if kind == "media" or depth > _DEPTH or _plain_end(name) in _CALLS or (kind == "number" and depth == 0):
        return "text"
    if kind == "flag":
        return "flag"
    if isinstance(value, dict) and len(value) > 1 and all(map(_is_number, value.values())):
        return "identifier"  # counts or scores
    if kind == "content" and depth == 0 and isinstance(value, dict) and _says_something(value):
        return "text"
    pairs = value.items() if isinstance(value, dict) else ((name, item) for item in value[:_ITEMS])
    kinds = {_holds(str(key), item, depth + 1) for key, item in pairs}
    return next((kind_found for kind_found in _MOST_TELLING if kind_found in kinds), None)


def _says_something(value: dict[Any, Any]) -> bool:
    """Return whether an object has a text that is no label, however short: {"A": "3 m"} of a question's options."""
    texts = (str(key) for key, item in value.items() if isinstance(item, str) and not item.isspace() and item)
    return any(_kind_of(key) != "label" for key in texts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@lru_cache(maxsize=4096)
def _kind_of(name: str) -> str:
    """Return what the name of a column, or of a field as `messages.NAME`, says of its values."""
    plain = _plain_end(name)
    if _MEDIA.fullmatch(plain):
        return "media"
    names_of_kinds = {"flag": FLAGS, "list": _LISTS, "number": _NUMBERS, "switch": _SWITCHES}
    kind = next((kind for kind, names in names_of_kinds.items() if plain in names), None)
    if kind is not None:
        return kind
    base = _NUMBERED.sub("", plain)
    last = base.rpartition("_")[2]
    if last in _CONTENT or plain in _WHOLE_CONTENT or base in _WHOLE_CONTENT or plain in _CHOICES:
        return "content"
    return "label" if last in _LABELS else ""


def _of_text(kind: str, text: str, depth: int) -> Contents | None:
    if kind in _KINDS_OF_CONTENT:
        return None if text.isspace() or (kind == "list" and "".join(text[:_HEAD].split()) in _NO_LIST) else "text"
    least = _LABEL_WORDS if kind == "label" else _WORDS
    words = text[:_HEAD].split(None, least)
    if not words:
        return None
    if words[0][0] in "[{" and (content := parsed_json(text)) is not None:
        return _holds(kind or "json", content, depth + 1)
    if len(words) >= least and sum(_LETTER.search(word) is not None for word in words) >= least:
        return "text"
    if not text.isascii() and len(_UNSPACED_LETTERS.findall(text[:_HEAD])) >= least + _UNSPACED - _WORDS:
        return "text"
    return "flag" if kind == "flag" else "identifier"
