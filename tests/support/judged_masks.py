"""Rows whose masks are judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.errors import RowError
from bridgepack.proof.mask_check import built_sequence, claimed_forms
from bridgepack.proof.masks.judges import RecipeJudges, SourceJudge
from bridgepack.proof.masks.records import RowVerdict
from tests.support.read_rows import LAYOUTS, ReadingEncoder, encoder_of, usual_layouts
from tests.support.small_builds import small_recipe
from tests.zoo.tokenizers import Family, write_tokenizer


@dataclass(frozen=True, kw_only=True)
class Judged:
    encoder: ReadingEncoder
    judge: SourceJudge
    names: tuple[str, ...]  #: of derivations
    tokenizer: ChatTokenizer

    @classmethod
    def of(cls, folder: Path, family: Family, **preprocessing: Any) -> Judged:
        """Write a family's tokenizer and load what judges chats with it."""
        markers = {"assistant_markers": dict(family.assistant_markers)} if family.assistant_markers else {}
        return cls.of_tokenizer(write_tokenizer(folder, family), **{"kind": "chat", **markers, **preprocessing})

    @classmethod
    def of_tokenizer(
        cls,
        tokenizer: Path,
        *,
        loader: str = "transformers",
        variables: str | None = None,
        prompt: str | None = None,
        **preprocessing: Any,
    ) -> Judged:
        """Load what judges rows with a tokenizer; `variables` and `prompt` are of the layout of the rows."""
        packing = {"packed_sequence_size": 4096}
        recipe = small_recipe("rows.jsonl", tokenizer, preprocessing=preprocessing, packing=packing)
        recipe = recipe.override({"tokenizer.loader": loader})
        loaded = load_tokenizer(recipe.tokenizer)
        fields = {"chat_template_kwargs": variables, "prompt": prompt}
        layout = {name: value for name, value in fields.items() if value is not None}
        encoder = ReadingEncoder(encoder_of(recipe, loaded), recipe.preprocessing, layout)
        judges = RecipeJudges(recipe, loaded, claimed_forms(recipe, loaded))
        kind = recipe.preprocessing.kind
        layouts = LAYOUTS.validate_python(usual_layouts(kind, **layout)) if layout else ()
        return cls(encoder=encoder, judge=judges.of_source(kind, layouts), names=judges.names, tokenizer=loaded)

    def encode(self, row: Mapping[str, Any]) -> Encoded | RowError:
        (made,) = self.encode_all([row])
        return made

    def encode_all(self, rows: Sequence[Mapping[str, Any]]) -> list[Encoded | RowError]:
        """Return what becomes of each row, encoded as one batch: a fifth cheaper than one after the other."""
        return encode_examples(self.encoder, rows)

    def verdict(self, row: Mapping[str, Any], mask: list[int] | None = None) -> RowVerdict:
        """Return what derivations say of a row, with its own mask or another."""
        made = self.encode(row)
        assert isinstance(made, Encoded), made
        return self.judge_encoded(row, made if mask is None else made._replace(mask=mask))

    def judge_encoded(self, row: Mapping[str, Any], made: Encoded) -> RowVerdict:
        """Return what derivations say of tokens and a mask that may be another row's."""
        return self.judge.judge(row, built_sequence(made))

    def read(self, row: Mapping[str, Any]) -> Any:
        """Return what the proof reads of a row."""
        return self.judge.reader.read(row)

    def kinds(self, row: Mapping[str, Any], mask: list[int] | None = None) -> list[str]:
        return [finding.kind for finding in self.verdict(row, mask).findings]
