"""Renders conversations with a tokenizer's chat template and encodes text, as Megatron-Bridge's wrapper would."""

from __future__ import annotations

import datetime
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from bridgepack.config.data import TokenizerConfig
from bridgepack.data.tokenizer_probe import drops_tool_names, end_of_turn_ids
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason

#: Tokens that Megatron-Bridge never trains. Source: megatron-bridge 0.6.2, data/token_utils.py PAD_TOKENS.
NEVER_TRAINED_TOKENS = frozenset(
    {
        "<|im_start|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<|AUDIO|>",
        "<|audio_bos|>",
        "<|audio_eos|>",
        "<image>",
        "<pad>",
        "<|begin_of_text|>",
        "<|finetune_right_pad_id|>",
        "<|step_id|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|python_tag|>",
        "<|image|>",
        "<image_soft_token>",
        "<audio_soft_token>",
        "<start_of_audio>",
        "<start_of_image>",
        "<end_of_audio>",
        "<end_of_image>",
    }
)
#: A template with this block says itself what the assistant wrote. Source: megatron-bridge 0.6.2, datasets/utils.py.
GENERATION_BLOCK = re.compile(r"\{%-?\s+generation\s+-?%\}")
#: Files whose bytes can change a token or a rendered text; a tokenizer folder may hold model weights beside them.
_TOKENIZER_FILE = re.compile(r"^(?!.*(safetensors|\.index)).*\.(json|jinja|txt|model|tiktoken|py)$|^vocab")
_NOT_TOKENIZER_FILES = frozenset({"config.json", "generation_config.json", "README.txt", "LICENSE.txt"})

Messages = Sequence[Mapping[str, Any]]


class Encoded(NamedTuple):
    """Ids and token-aligned mask of one example.

    Attributes:
        ids: shape [stored_length].
        mask: shape [stored_length], 1 where the token is trained as a target.
        is_truncated: the encoder cut it already.
    """

    ids: list[int]
    mask: list[int]
    is_truncated: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class Rendered:
    """A conversation as text and as tokens.

    Attributes:
        text: what the chat template gives.
        input_ids: its tokens, without any that the tokenizer would add by itself.
        encoding: the `tokenizers.Encoding`, for character positions; None for a tokenizer without a fast backend.
        generation_mask: token-aligned mask from the template's own generation blocks; None where it has none.
    """

    text: str
    input_ids: list[int]
    encoding: Any
    generation_mask: list[int] | None


class ChatTokenizer:
    """A tokenizer with its chat template, as Megatron-Bridge's wrapper would see it."""

    def __init__(self, tokenizer: Any, config: TokenizerConfig, *, loses_text: bool = False) -> None:
        """Wrap a tokenizer of transformers.

        Args:
            tokenizer: as transformers loaded it.
            config: of the recipe.
            loses_text: text does not survive it, although it survives its own tokenizer.json.
        """
        self._tokenizer = tokenizer
        self.loses_text = loses_text
        self._backend = getattr(tokenizer, "backend_tokenizer", None)
        if self._backend is not None:
            self._backend.no_truncation()
            self._backend.no_padding()
        self.config = config
        template = tokenizer.chat_template
        self.chat_template: str | None = template if isinstance(template, str) and template else None

    @property
    def eos_token_id(self) -> int:
        """Id of the end-of-sequence token, which also pads sequences to their multiple."""
        return int(self._tokenizer.eos_token_id)

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids, added tokens included; every id is below it."""
        largest = max(self._tokenizer.get_vocab().values(), default=-1)
        return max(len(self._tokenizer), largest + 1, max(self.added_tokens.values(), default=-1) + 1)

    @cached_property
    def added_tokens(self) -> dict[str, int]:
        """Text -> id of every added token, special or not."""
        return {str(token): int(index) for index, token in self._tokenizer.added_tokens_decoder.items()}

    @cached_property
    def isolated_token_ids(self) -> frozenset[int]:
        """Ids of added tokens that split text without touching what stands next to them."""
        return frozenset(
            int(index)
            for index, token in self._tokenizer.added_tokens_decoder.items()
            if not (token.lstrip or token.rstrip or token.single_word or token.normalized)
        )

    @cached_property
    def never_trained_ids(self) -> frozenset[int]:
        """Ids of tokens that Megatron-Bridge masks out of every loss."""
        return frozenset(index for text, index in self.added_tokens.items() if text in NEVER_TRAINED_TOKENS)

    @property
    def has_generation_blocks(self) -> bool:
        """The chat template marks what the assistant wrote."""
        return self.chat_template is not None and GENERATION_BLOCK.search(self.chat_template) is not None

    @cached_property
    def is_space_sensitive(self) -> bool:
        """Joining two texts with a space changes more than the join; the separator's first space is then kept."""
        return self.encode("x y") != [*self.encode("x"), *self.encode("y")]

    def special_token_id(self, name: str) -> int | None:
        """Return the id of `bos`, `eos` or `sep`; None where the tokenizer has none."""
        value = getattr(self._tokenizer, f"{name}_token_id")
        return None if value is None else int(value)

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without any token that the tokenizer would add by itself."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def encode_batch(self, texts: Sequence[str]) -> list[Any]:
        """Return one `tokenizers.Encoding` per text, or lists of ids where there is no fast backend."""
        if self._backend is None:
            return [self.encode(text) for text in texts]
        encodings: list[Any] = self._backend.encode_batch(list(texts), add_special_tokens=False)
        return encodings

    def decode(self, input_ids: Sequence[int]) -> str:
        """Return the text of some ids, special tokens included."""
        return str(self._tokenizer.decode(list(input_ids), skip_special_tokens=False))

    def render_text(self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None) -> str:
        """Return the text that the chat template gives for a conversation.

        Raises:
            RowError: with reason `template_error` when the template refuses it, `invalid_field` when the text is none.
            TokenizerError: when the template is not valid Jinja.
        """
        text = str(self._apply_chat_template(messages, tools, tokenize=False))
        check_is_unicode(text)
        return text

    def render_with_generation_mask(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None
    ) -> tuple[list[int], list[int]]:
        """Return ids and the mask of the template's generation blocks, through transformers' own code.

        Raises:
            RowError: with reason `template_error` when the template refuses the conversation.
        """
        output = self._apply_chat_template(
            messages, tools, tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return list(output["input_ids"]), list(output["assistant_masks"])

    def _apply_chat_template(
        self, messages: Messages, tools: Sequence[Mapping[str, Any]] | None, **options: Any
    ) -> Any:
        from jinja2.exceptions import TemplateError, TemplateSyntaxError

        if tools is not None:
            options["tools"] = list(tools)
        try:
            return self._tokenizer.apply_chat_template(list(messages), add_generation_prompt=False, **options)
        except TemplateSyntaxError as error:
            raise TokenizerError(
                f"tokenizer.name_or_path is {self.config.name_or_path!r}; line {error.lineno} of its chat template is "
                f"not valid Jinja: {error.message}. Correct the template, or set tokenizer.chat_template to another."
            ) from None
        except (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError) as error:
            raise RowError(DropReason.TEMPLATE_ERROR, f"the chat template refuses it: {error}") from None
        except RecursionError:
            raise RowError(DropReason.TEMPLATE_ERROR, "it is nested too deeply for the chat template") from None

    def identity(self) -> dict[str, Any]:
        """Return what rows depend on: name, template hash, sizes, special ids and the hashes of its files."""
        return {
            "name_or_path": self.config.name_or_path,
            "revision": self.config.revision,
            "loader": self.config.loader,
            "vocab_size": self.vocab_size,
            "eos_token_id": self.eos_token_id,
            "loses_text": self.loses_text,
            **self._probed(),
            "template_date": datetime.date.today().isoformat()
            if "strftime_now" in (self.chat_template or "")
            else None,
            "chat_template_sha256": _sha256((self.chat_template or "").encode()),
            "files": self._file_hashes(),
        }

    def _probed(self) -> dict[str, Any]:
        """Return what rules on tokens need to know; it follows from the rest of the identity."""
        bos = self.special_token_id("bos")
        return {
            "bos_token_id": bos,
            "adds_bos": bos is not None and list(self._tokenizer.encode("x"))[:1] == [bos],
            "end_of_turn_ids": end_of_turn_ids(self),
            "never_trained": {
                text: self.added_tokens[text] for text in sorted(NEVER_TRAINED_TOKENS & set(self.added_tokens))
            },
            "drops_tool_names": drops_tool_names(self),
        }

    def _file_hashes(self) -> dict[str, str]:
        folder = Path(self.config.name_or_path)
        if folder.is_dir():
            names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
            wanted = [name for name in names if _TOKENIZER_FILE.match(name) and name not in _NOT_TOKENIZER_FILES]
            return {name: _sha256((folder / name).read_bytes()) for name in wanted}
        if self._backend is not None:
            return {"tokenizer.json (as loaded)": _sha256(self._backend.to_str().encode())}
        return {"vocabulary (as loaded)": _sha256(repr(sorted(self._tokenizer.get_vocab().items())).encode())}


def check_is_unicode(text: str) -> None:
    """Refuse a text that no tokenizer can encode: JSON may cut an emoji in half, which leaves a lone surrogate.

    Raises:
        RowError: with reason `invalid_field`.
    """
    if not is_unicode(text):
        found = next(character for character in text if "\ud800" <= character <= "\udfff")
        detail = f"the text holds U+{ord(found):04X}, half of a character that was cut in two"
        raise RowError(DropReason.INVALID_FIELD, detail)


def is_unicode(text: str) -> bool:
    """Return whether a text has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
