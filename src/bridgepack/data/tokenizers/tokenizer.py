"""Renders conversations with a tokenizer's chat template and encodes text, like Megatron-Bridge's wrapper."""

import datetime
import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence
from copy import copy
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from jinja2.exceptions import TemplateError

from bridgepack.config.recipe.data import TokenizerConfig
from bridgepack.data.tokenizers.backends import keeps_bytes, normalizes
from bridgepack.data.tokenizers.engines import REFERENCE, Engine, join_ids, reference_engine
from bridgepack.data.tokenizers.templates import GENERATION_BLOCK, ChatTemplate, Messages, Span, Tools, compile_template
from bridgepack.data.tokenizers.texts import check_is_unicode
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason
from bridgepack.records.flags import LostFlags
from bridgepack.user_files import MAX_LARGE_BYTES, read_bytes, reason_of

#: Tokens that Megatron-Bridge never trains. Source: megatron-bridge 0.6.2, data/token_utils.py PAD_TOKENS.
NEVER_TRAINED_TOKENS = frozenset(
    {
        *("<|im_start|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>", "<|image_pad|>", "<|video_pad|>"),
        *("<|AUDIO|>", "<|audio_bos|>", "<|audio_eos|>", "<image>", "<pad>", "<|begin_of_text|>"),
        *("<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|python_tag|>"),
        *("<|image|>", "<image_soft_token>", "<audio_soft_token>", "<start_of_audio>", "<start_of_image>"),
        *("<end_of_audio>", "<end_of_image>"),
    }
)
#: Files whose bytes can change a token or a rendered text; a tokenizer folder may also hold model weights.
_TOKENIZER_FILE = re.compile(r"^(?!.*(safetensors|\.index)).*\.(json|jinja|txt|model|tiktoken|py)$|^vocab")
_NOT_TOKENIZER_FILES = frozenset({"config.json", "generation_config.json", "README.txt", "LICENSE.txt"})


class ChatTokenizer:
    """A tokenizer with its chat template, like Megatron-Bridge's wrapper.

    Attributes:
        backend: its `tokenizers.Tokenizer`; None for a tokenizer written in Python.
        loses_text: it loses text that its own tokenizer.json preserves.
        engine: encodes texts.
        lost_flags: added tokens whose flags Megatron-Core's wrapper changes and a server does not.
        learned: what others learned of its template, by the settings on which that depends.
    """

    engine: Engine

    def __init__(
        self,
        tokenizer: Any,
        config: TokenizerConfig,
        template: Any,
        *,
        loses_text: bool = False,
        lost_flags: Sequence[LostFlags] = (),
    ) -> None:
        """Take a tokenizer loaded by transformers, and its template; several named templates count as none."""
        self._tokenizer = tokenizer
        self.lost_flags = tuple(lost_flags)
        self.loses_text = loses_text
        self.backend: Any = getattr(tokenizer, "backend_tokenizer", None)
        if self.backend is not None:
            self.backend.no_truncation()
            self.backend.no_padding()
        self.config = config
        self.learned: dict[Hashable, Any] = {}
        self.chat_template: str | None = template if isinstance(template, str) and template else None
        self._template_names = ", ".join(template) if isinstance(template, Mapping) else ""
        self.use_reference_engine()

    def use_reference_engine(self) -> None:
        """Encode texts with `tokenizers`, or with the tokenizer's own Python code."""
        if self.backend is None:
            self.engine = Engine(REFERENCE, lambda texts: join_ids([self.encode(text) for text in texts]))
        else:
            self.engine = reference_engine(self.backend)

    @property
    def eos_token_id(self) -> int:
        """Id of the end-of-sequence token, which also pads sequences to their multiple."""
        index = self.special_token_id("eos")
        assert index is not None
        return index

    @cached_property
    def vocab_size(self) -> int:
        """Number of ids, with added tokens; every id is smaller."""
        vocabulary = self._tokenizer.get_vocab()
        num_tokens = len(self._tokenizer) if self.backend is None else len(vocabulary)
        largest = max(vocabulary.values(), default=-1)
        return max(num_tokens, largest + 1, max(self.added_tokens.values(), default=-1) + 1)

    @cached_property
    def added_tokens(self) -> dict[str, int]:
        """Text -> id of every added token, special or not."""
        return {str(token.content): int(index) for index, token in self._tokenizer.added_tokens_decoder.items()}

    @cached_property
    def control_tokens(self) -> tuple[str, ...]:
        """Texts of added tokens, without non-special tokens of white space, of which Gemma has many."""
        tokens = self._tokenizer.added_tokens_decoder.values()
        return tuple(text for token in tokens if (text := str(token.content)) and (token.special or not text.isspace()))

    @cached_property
    def isolated_token_ids(self) -> frozenset[int]:
        """Ids of added tokens that split text without changing the text beside them.

        Tokens that are searched for in normalised text are included if there is no normaliser.
        """
        is_exact = self.backend is not None and not normalizes(self.backend)
        return frozenset(
            int(index)
            for index, token in self._tokenizer.added_tokens_decoder.items()
            if not (token.lstrip or token.rstrip or token.single_word or (token.normalized and not is_exact))
        )

    @cached_property
    def texts_of_strippers(self) -> Mapping[int, str]:
        """Id -> text of every added token that takes the white space beside it with it."""
        tokens = self._tokenizer.added_tokens_decoder.items()
        return {int(index): str(token.content) for index, token in tokens if token.lstrip or token.rstrip}

    @cached_property
    def never_trained_ids(self) -> frozenset[int]:
        """Ids of tokens that Megatron-Bridge masks out of every loss."""
        return frozenset(index for text, index in self.added_tokens.items() if text in NEVER_TRAINED_TOKENS)

    @cached_property
    def has_generation_blocks(self) -> bool:
        """Whether the chat template marks what the assistant wrote."""
        return self.chat_template is not None and GENERATION_BLOCK.search(self.chat_template) is not None

    @cached_property
    def is_space_sensitive(self) -> bool:
        """Whether joining two texts with a space changes other tokens; the separator's first space is then kept."""
        return self.encode("x y") != [*self.encode("x"), *self.encode("y")]

    def special_token_id(self, name: str) -> int | None:
        """Return the id of `bos`, `eos` or `sep`; None if the tokenizer has none."""
        index = getattr(self._tokenizer, f"{name}_token_id")
        return None if index is None else int(index)

    @property
    def special_tokens(self) -> Mapping[str, Any]:
        """Name -> text of the special tokens that the chat template can use, such as `bos_token`.

        Some releases of transformers add a list of the others.
        """
        return dict(self._tokenizer.special_tokens_map)

    @property
    def template_variables(self) -> dict[str, Any]:
        """Variables of the chat template: special tokens, the recipe's variables, the date."""
        day = self.config.template_date
        dates = {} if day is None else {"strftime_now": day.strftime}
        return {**self.special_tokens, **self._template_kwargs, **dates}

    @property
    def _template_kwargs(self) -> dict[str, Any]:
        """The recipe's template variables as JSON values, which worker processes read."""
        kwargs: dict[str, Any] = self.config.model_dump(mode="json")["chat_template_kwargs"]
        return kwargs

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text, without adding special tokens."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def decode(self, input_ids: Sequence[int]) -> str:
        """Return the text of ids, with special tokens."""
        return str(self._tokenizer.decode(list(input_ids), skip_special_tokens=False))

    @cached_property
    def keeps_bytes(self) -> bool:
        """Whether tokens are pieces of the text's bytes, without losing any; a normaliser leaves ASCII unchanged."""
        return self.backend is not None and keeps_bytes(self.backend)

    def encode_with_places(self, texts: Sequence[str]) -> list[Any]:
        """Return one `tokenizers.Encoding` per text, with each token's character position."""
        if self.backend is None:
            return [_WithoutPlaces(self.encode(text)) for text in texts]
        return list(self.backend.encode_batch(list(texts), add_special_tokens=False))

    def ranges_of_blocks(self, encoding: Any, blocks: Sequence[Span]) -> list[Span]:
        """Return (start, stop) in tokens of a text's generation blocks, which are given in characters.

        Raises:
            RowError: the tokenizer does not report its tokens' positions.

        Source: transformers 5.12, tokenization_utils_base.py, apply_chat_template, return_assistant_tokens_mask.
        """
        ranges: list[Span] = []
        with _REFUSALS:
            for start, stop in blocks:
                first, last = encoding.char_to_token(start), encoding.char_to_token(stop - 1)
                if first is None:
                    break
                ranges.append((first, last + 1 if last else len(encoding.ids)))
        return ranges

    @property
    def no_template_error(self) -> TokenizerError:
        """Return the error for chats without a template, or with several templates instead of one for all rows."""
        return _no_template_error(self._tokenizer, self.config.name_or_path, self._template_names)

    @cached_property
    def template(self) -> ChatTemplate:
        """The compiled chat template.

        Raises:
            TokenizerError: there is none, it is not valid Jinja or nested too deeply, or it chooses at random.
        """
        if self.chat_template is None:
            raise self.no_template_error
        where = f"tokenizer.name_or_path is {self.config.name_or_path!r}"
        return compile_template(self.chat_template, self.template_variables, where)

    def render_text(self, messages: Messages, tools: Tools, kwargs: Mapping[str, Any] = MappingProxyType({})) -> str:
        """Return the chat template's text for a conversation, with the conversation's own variables.

        Raises:
            RowError: the template rejects it, reason `template_error`, or the result is not text, `invalid_field`.
            TokenizerError: the template is not valid Jinja.
        """
        with _REFUSALS:
            text = self.template.render("".join, messages, tools, kwargs)
            self.template.refuse_odd_text(text, messages, tools, kwargs)
        check_is_unicode(text)
        return text

    def render_served(self, messages: Messages, tools: Tools, template_kwargs: Mapping[str, Any]) -> str:
        """Return the text that a server sends to the model for a conversation: with the generation prompt.

        Raises as `render_text`.
        """
        return self.render_text(messages, tools, {**template_kwargs, "add_generation_prompt": True})

    def with_template_kwargs(self, template_kwargs: Mapping[str, Any]) -> Self:
        """Return the same tokenizer with other template variables of the recipe."""
        tokenizer = copy(self)
        tokenizer.__dict__.pop("template", None)
        tokenizer.learned = {}
        tokenizer.config = self.config.model_copy(update={"chat_template_kwargs": dict(template_kwargs)})
        return tokenizer

    def render_marked(self, messages: Messages, tools: Tools, kwargs: Mapping[str, Any]) -> tuple[str, list[Span]]:
        """Return the text and the (start, stop) characters of the template's generation blocks, as `render_text`."""
        with _REFUSALS:
            text, spans = self.template.render(self.template.join_marked, messages, tools, kwargs)
            self.template.refuse_odd_text(text, messages, tools, kwargs)
        check_is_unicode(text)
        return text, spans

    def identity(self) -> dict[str, Any]:
        """Return what rows depend on: name, template hash, sizes, special ids and file hashes."""
        template, bos = self.chat_template or "", self.special_token_id("bos")
        day, kwargs = self.config.template_date or datetime.date.today(), self._template_kwargs
        return {
            "name_or_path": self.config.name_or_path,
            "revision": self.config.revision,
            "loader": self.config.loader,
            "vocab_size": self.vocab_size,
            "eos_token_id": self.eos_token_id,
            "loses_text": self.loses_text,
            **({"lost_flags": [token.as_json() for token in self.lost_flags]} if self.lost_flags else {}),
            "bos_token_id": bos,
            "adds_bos": bos is not None and self._tokenizer.encode("x")[:1] == [bos],
            "never_trained": {
                text: self.added_tokens[text] for text in sorted(NEVER_TRAINED_TOKENS & set(self.added_tokens))
            },
            "template_date": day.isoformat() if "strftime_now" in template else None,
            **({"chat_template_kwargs": kwargs} if kwargs else {}),
            "chat_template_sha256": _sha256(template.encode()),
            "files": self._file_hashes(),
        }

    def _file_hashes(self) -> dict[str, str]:
        folder = Path(self.config.name_or_path)
        if folder.is_dir():
            names = sorted(entry.name for entry in folder.iterdir() if entry.is_file())
            tokenizer_files = [
                name for name in names if _TOKENIZER_FILE.match(name) and name not in _NOT_TOKENIZER_FILES
            ]
            return {name: _sha256(_content_of(folder / name)) for name in tokenizer_files}
        if self.backend is not None:
            return {"tokenizer.json (as loaded)": _sha256(self.backend.to_str().encode())}
        return {"vocabulary (as loaded)": _sha256(repr(sorted(self._tokenizer.get_vocab().items())).encode())}


class _WithoutPlaces(NamedTuple):
    """Tokens of a tokenizer written in Python, which have no positions; raises the same error as transformers."""

    ids: list[int]

    def char_to_token(self, _: int) -> int | None:
        raise ValueError("char_to_token() is not available when using Python based tokenizers")


class _Refusals:
    """Turns a template's errors for a conversation into a RowError; not a generator, because it runs twice per row."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, RecursionError):
            raise RowError(DropReason.TEMPLATE_ERROR, "the row is nested too deeply for the chat template") from None
        if isinstance(error, (TemplateError, TypeError, ValueError, AttributeError, LookupError, ArithmeticError)):
            raise RowError(DropReason.TEMPLATE_ERROR, f"the chat template rejects the row: {error}") from None


_REFUSALS = _Refusals()


def _no_template_error(tokenizer: Any, name: str, names: str) -> TokenizerError:
    """Return the error of a tokenizer of transformers that has not one chat template for all rows.

    `names` are those of its templates, if it has several. Some tokenizers, such as Kimi-K3's, render chats in Python:
    Megatron-Bridge 0.7 lets them, and here a template in Jinja has to write the same.
    """
    problem, template = "no chat template", "Set tokenizer.chat_template to a Jinja file"
    if names:
        problem = f"several named chat templates ({names}), but every row needs the same one"
    elif not type(tokenizer).apply_chat_template.__module__.startswith("transformers."):
        problem += f" in Jinja: its class {type(tokenizer).__name__} renders chats in Python, which is not used here"
        template += (
            " that writes the same text, and preprocessing.assistant_markers to the texts around an answer, e.g. for "
            "Kimi-K3 {assistant_start: '<|open|>message role=\"assistant\"<|sep|>', assistant_end: "
            "'<|close|>message<|sep|><|end_of_msg|>'}"
        )
    return TokenizerError(
        f"tokenizer.name_or_path is {name!r}; it has {problem}. {template}, or use preprocessing.kind "
        "prompt_completion.",
        field="tokenizer.name_or_path",
    )


def _content_of(path: Path) -> bytes:
    try:
        return read_bytes(path, max_bytes=MAX_LARGE_BYTES)
    except OSError as error:
        raise TokenizerError(f"{str(path)!r} cannot be read: {reason_of(error)}. Correct or remove it.") from None


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
