"""Applies a recipe's sizes to uncut sequences: keeps, cuts or drops them; and masks their labels after an EOS."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from bridgepack.config.recipe.preprocessing import PromptCompletionPreprocessing
from bridgepack.config.recipe.resolved import ResolvedRecipe
from bridgepack.errors import RowError, TokenizerError
from bridgepack.records import DropReason, MaskArray, TokenArray
from bridgepack.records.sequences import without_labels_after_eos
from bridgepack.records.words import count_text

#: Drop reason per code of a `Judgement`; the first means not dropped.
REASONS = ("", DropReason.OVER_LONG, DropReason.NO_TRAINED_TOKEN)
_OVER_LONG, _NO_TRAINED_TOKEN = 1, 2


class Judgement(NamedTuple):
    """Which sequences of a range are kept, cut or dropped."""

    codes: npt.NDArray[np.int8]  #: shape [num_sequences], int8, index into `REASONS`; 0 if kept or cut
    needs_cut: npt.NDArray[np.bool_]  #: shape [num_sequences], bool


class Piece(NamedTuple):
    """The kept part, or one of the parts, of an over-long sequence."""

    input_ids: TokenArray  #: shape [stored_length], int32, stored
    loss_mask: MaskArray  #: shape [stored_length], int8, token-aligned; the first token's value is ignored
    first_token: int = 0  #: start in the sequence if that was split, stored coordinates; otherwise 0


class HistoryCut(NamedTuple):
    """What `truncate_history` takes out of a row, or what no sequence of `split_exchanges` shows."""

    num_exchanges: int = 0
    num_turns: int = 0

    def detail(self, max_runtime_length: int) -> str:
        """Return the ledger's detail."""
        cut_text = f"{count_text(self.num_exchanges, 'exchange')}, {count_text(self.num_turns, 'turn')} are left out"
        return f"{cut_text}, so that at most {max_runtime_length} runtime tokens remain"

    @classmethod
    def of_detail(cls, detail: str) -> Self:
        """Return what a ledger's detail says: token files keep it as text alone, `1,204 exchanges, 9 turns ..`."""
        words = detail.replace(",", "").split()
        return cls(int(words[0]), int(words[2]))

    @classmethod
    def total(cls, cuts: Iterable[Self]) -> Self:
        """Return the sum of several."""
        all_cuts = list(cuts)
        return cls(sum(cut.num_exchanges for cut in all_cuts), sum(cut.num_turns for cut in all_cuts))


@dataclass(frozen=True, kw_only=True, slots=True)
class SequencePolicy:
    """The recipe's settings for uncut sequences: what becomes of over-long ones, and of labels after an EOS."""

    action: str  #: `drop`, `truncate`, `truncate_history`, `split`, `split_exchanges` or `error`
    max_runtime_length: int  #: maximum runtime length of a sequence, in tokens
    eos_token_id: int  #: of the tokenizer
    masks_after_eos: bool  #: labels whose input is EOS are not trained
    pairs: PromptCompletionPreprocessing | None  #: how to cut a prompt and its completion; None for other rows

    @classmethod
    def of(cls, resolved_recipe: ResolvedRecipe, eos_token_id: int, kind: str | None = None) -> SequencePolicy:
        """Return the policy for a recipe's rows of a kind, by default its own.

        Raises:
            TokenizerError: the special tokens that the recipe adds fill a whole sequence.
        """
        recipe, longest = resolved_recipe.recipe, resolved_recipe.max_sequence_length.value
        settings = recipe.preprocessing.of_kind(kind or recipe.preprocessing.kind)
        pairs = settings if isinstance(settings, PromptCompletionPreprocessing) else None
        num_special = pairs.add_bos + pairs.add_sep + pairs.add_eos if pairs else 0
        if settings.over_long == "truncate" and num_special > longest + 1:
            raise TokenizerError(
                f"packing.max_sequence_length is {longest}; the {num_special} special tokens that preprocessing adds "
                "leave no room for text. Raise it or set add_bos, add_sep or add_eos to false.",
                field="packing.max_sequence_length",
            )
        return cls(
            action=settings.over_long,
            max_runtime_length=longest,
            eos_token_id=eos_token_id,
            masks_after_eos=settings.labels_after_eos == "mask",
            pairs=pairs,
        )

    @property
    def splits(self) -> bool:
        """Whether over-long sequences are split into several."""
        return self.action in ("split", "split_exchanges")

    def num_pieces(self, stored_lengths: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return the number of pieces for sequences of these lengths: 6 stored tokens, maximum length 2 -> 3."""
        return -(-(stored_lengths - 1) // self.max_runtime_length)

    def judge(self, stored_lengths: npt.NDArray[Any], num_learned: npt.NDArray[Any]) -> Judgement:
        """Return which sequences are kept, cut or dropped, from their lengths and numbers of trained labels."""
        is_over_long = stored_lengths - 1 > self.max_runtime_length
        codes = np.where(num_learned == 0, _NO_TRAINED_TOKEN, 0).astype(np.int8)
        if not self.splits:
            codes[is_over_long] = 0 if self.action == "truncate" else _OVER_LONG
        return Judgement(codes, is_over_long & (codes == 0))

    def detail(self, code: int, stored_length: int) -> str:
        """Return the ledger's detail for a dropped sequence."""
        if code == _OVER_LONG:
            suffix = " of the last exchange alone" if self.action == "truncate_history" else ""
            return f"{stored_length - 1} runtime tokens{suffix}; at most {self.max_runtime_length}"
        return f"none of its {stored_length - 1} runtime tokens is trained"

    def cut(self, input_ids: TokenArray, loss_mask: MaskArray, num_context: int) -> list[Piece] | RowError:
        """Return the pieces of an over-long sequence, one unless it is split, or the error why none is trainable."""
        if self.splits:
            return [piece for piece in self.pieces(input_ids, loss_mask) if self._is_learned(piece)]
        parts = self.kept_parts(len(input_ids), num_context)
        ids, mask = (np.concatenate([values[part] for part in parts]) for values in (input_ids, loss_mask))
        piece = Piece(ids, mask)
        num_left = len(piece.input_ids)
        if num_left < 2:
            return RowError(DropReason.TOO_SHORT, f"{count_text(num_left, 'token')}; next-token loss needs at least 2")
        if self._is_learned(piece):
            return [piece]
        before = len(input_ids if self.pairs is None else piece.input_ids) - 1
        detail = f"{before} runtime tokens; none of the {num_left - 1} that are kept is trained"
        return RowError(DropReason.TRUNCATED_NO_TRAINED_TOKEN, detail)

    def pieces(self, input_ids: TokenArray, loss_mask: MaskArray) -> list[Piece]:
        """Return a sequence in pieces of maximum length; each begins with the last token of the previous one.

        So each label is in one piece, after the token that predicts it: 5 tokens, length 2 -> 0 1 2, 2 3 4.
        """
        step = self.max_runtime_length
        places = [(first, slice(first, first + step + 1)) for first in range(0, len(input_ids) - 1, step)]
        return [Piece(input_ids[place], loss_mask[place], first) for first, place in places]

    def _is_learned(self, piece: Piece) -> bool:
        return bool(np.any((piece.loss_mask[1:] != 0) & (piece.input_ids[:-1] != self.eos_token_id)))

    def mask_of_row(self, input_ids: TokenArray, loss_mask: MaskArray) -> MaskArray:
        """Return a sequence's mask as it is in a row, still token-aligned; both shapes [stored_length]."""
        if not self.masks_after_eos:
            return loss_mask
        labels = without_labels_after_eos(loss_mask[1:], input_ids[:-1], self.eos_token_id)
        return np.concatenate((loss_mask[:1], labels))

    def kept_parts(self, stored_length: int, num_context: int) -> list[slice]:
        """Return the kept parts of an over-long sequence: cuts the prompt first, then the completion.

        Source: megatron-bridge 0.6.2, data/sft_processing.py, tokenize_prompt_completion_example.
        """
        if self.pairs is None:
            return [slice(0, self.max_runtime_length + 1)]
        prompt_start, prompt_stop = int(self.pairs.add_bos), num_context - self.pairs.add_sep
        completion_stop = stored_length - self.pairs.add_eos
        overflow = stored_length - (self.max_runtime_length + 1)
        from_prompt = min(prompt_stop - prompt_start, overflow)
        from_completion = overflow - from_prompt
        if self.pairs.truncation_method == "left":
            return [
                slice(0, prompt_start),
                slice(prompt_start + from_prompt, num_context),
                slice(num_context + from_completion, stored_length),
            ]
        keeps_end = from_completion == 0 or self.pairs.ends_cut_completions
        return [
            slice(0, prompt_stop - from_prompt),
            slice(prompt_stop, completion_stop - from_completion),
            slice(completion_stop, stored_length if keeps_end else completion_stop),
        ]
