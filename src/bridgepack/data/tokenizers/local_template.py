"""Finds the chat template of a tokenizer on this machine, without loading the tokenizer."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from jinja2.exceptions import TemplateError

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.templates import names_read
from bridgepack.user_files import read_text

#: Files and a folder in which transformers looks for templates, the folder for further ones, by name.
_CONFIG, _TEMPLATE, _NAMED_TEMPLATES = "tokenizer_config.json", "chat_template.jinja", "additional_chat_templates"
_SPECIAL_TOKENS = MappingProxyType(
    dict.fromkeys((f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")), "")
)


@dataclass(frozen=True, kw_only=True, slots=True)
class LocalTemplate:
    """A chat template as `ChatTokenizer` has it."""

    chat_template: str | None  #: the template's text
    #: name -> text of the special tokens that a tokenizer may have; which it has, loading tells
    special_tokens: Mapping[str, str] = _SPECIAL_TOKENS


def local_template(config: TokenizerConfig) -> LocalTemplate | None:
    """Return the chat template that loading the tokenizer would give, or None if only loading it tells.

    Only loading tells for an id on the hub, code of its own, several named templates, and what cannot be read.
    Source: transformers 5.12, tokenization_utils_base.py, from_pretrained and _from_pretrained.
    """
    folder = Path(config.name_or_path)
    template_file = folder / _TEMPLATE
    if config.trust_remote_code or not folder.is_dir() or (folder / _NAMED_TEMPLATES).exists():
        return None
    try:
        settings = json.loads(read_text(folder / _CONFIG))
        file = template_file if config.chat_template is None and template_file.is_file() else config.chat_template
        text = settings.get("chat_template") if file is None else read_text(Path(file))
        if not isinstance(text, str):
            return None
        names_read(text)
    except (OSError, ValueError, AttributeError, RecursionError, TemplateError):
        return None
    return LocalTemplate(chat_template=text)
