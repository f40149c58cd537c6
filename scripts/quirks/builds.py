"""Builds rows with a family's template and says of each what is trained, and whether that is what the row says."""

import json
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bridgepack.api import check
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.artifact import LOST_CONTENT_FILE, PLAN_FOLDER, Artifact
from bridgepack.data.artifact.plan import PlanEntry, entries_of_packs, iter_dropped_rows
from bridgepack.data.build import build_artifact
from bridgepack.data.results import BuildOptions
from bridgepack.data.tokenizers.load import load_tokenizer
from bridgepack.proof.packs import opened_artifact, read_packs
from bridgepack.records import TRAIN
from tests.zoo.families import Family, write_tokenizer

from .rows import INJECTION, Answer, Quirk

#: Between runs of tokens.
CUT = "\n\0\n"
#: Setting that takes the family's template with generation blocks.
BLOCKS = "tokenizer.chat_template"
#: A row that every build keeps, so that none is without a pack.
_PLAIN = {"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]}


class Outcome(NamedTuple):
    """What a build made of a row."""

    dropped: str = ""  #: reason; empty where it was kept
    told: tuple[str, ...] = ()  #: kinds of losses that the build reports of it
    trained: str = ""
    context: str = ""
    codes: frozenset[str] = frozenset()  #: rules that find something in the artifact


class Builder:
    """Builds quirks with one family."""

    def __init__(self, folder: Path, family: Family) -> None:
        self._folder, self.family = folder, family
        self._tokenizer = write_tokenizer(folder / "tokenizer", family)
        self._num_builds = 0

    def build(self, quirks: Sequence[Quirk], settings: Mapping[str, Any]) -> dict[str, Outcome]:
        """Return what becomes of each, by its text; `settings` are dotted fields of the recipe."""
        self._num_builds += 1
        folder = self._folder / str(self._num_builds)
        folder.mkdir()
        rows = [*(quirk.row for quirk in quirks), _PLAIN]
        text = "".join(json.dumps(row) + "\n" for row in rows).replace(
            INJECTION, json.dumps(self.family.injection)[1:-1]
        )
        (folder / "rows.jsonl").write_text(text)
        found = self._built(self.values(str(folder / "rows.jsonl")), settings, folder)
        return {quirk.what: found["rows.jsonl", row] for row, quirk in enumerate(quirks, 1)}

    def build_sources(
        self,
        sources: Sequence[tuple[Sequence[Mapping[str, Any]], Mapping[str, Any]]],
        preprocessing: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> list[list[Outcome]]:
        """Return what becomes of each row of each source; sources are rows with their layout."""
        self._num_builds += 1
        folder = self._folder / str(self._num_builds)
        folder.mkdir()
        train = []
        for index, (rows, layout) in enumerate(sources):
            path = folder / f"{index}.jsonl"
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
            train.append({"path": str(path), "layout": layout})
        values = self.values(train)
        markers = self.family.preprocessing if preprocessing["kind"] == "chat" else {}
        values["preprocessing"] = {**markers, **preprocessing}
        found = self._built(values, settings, folder)
        return [
            [found[f"{index}.jsonl", row + 1] for row in range(len(rows))] for index, (rows, _) in enumerate(sources)
        ]

    def encode(self, text: str) -> list[int]:
        """Return the token ids of a text."""
        return load_tokenizer(SFTRecipe.from_mapping(self.values("rows.jsonl")).tokenizer).encode(text)

    def values(self, train: Any) -> dict[str, Any]:
        """Return a recipe for some training data."""
        return {
            "name": "quirks",
            "data": {"train": train},
            "tokenizer": {"name_or_path": str(self._tokenizer)},
            "preprocessing": {"kind": "chat", **self.family.preprocessing},
            "packing": {"packed_sequence_size": 4096},
        }

    def _built(
        self, values: Mapping[str, Any], settings: Mapping[str, Any], folder: Path
    ) -> dict[tuple[str, int], Outcome]:
        """Return what becomes of each row, by its file and number from 1."""
        recipe = SFTRecipe.from_mapping(values).override(self._with_blocks(settings, folder))
        options = BuildOptions(num_workers=0)
        artifact = opened_artifact(build_artifact(recipe, output=folder / "made", options=options).output)
        return dict(self._outcomes(artifact, recipe))

    def _with_blocks(self, settings: Mapping[str, Any], folder: Path) -> Mapping[str, Any]:
        if BLOCKS not in settings:
            return settings
        template = self.family.template
        for plain, marked in self.family.blocks.items():
            template = template.replace(plain, marked)
        (folder / "blocks.jinja").write_text(template)
        return {"preprocessing.assistant_markers": None, BLOCKS: str(folder / "blocks.jinja")}

    def _outcomes(self, artifact: Artifact, recipe: SFTRecipe) -> Iterable[tuple[tuple[str, int], Outcome]]:
        """Yield the file and number of each row with what became of it."""
        told: dict[tuple[str, int], tuple[str, ...]] = {}
        ledger = (artifact.folder / PLAN_FOLDER / LOST_CONTENT_FILE).read_text().splitlines()
        for row, lines in groupby(map(json.loads, ledger), key=lambda line: (Path(line["file"]).name, line["row"])):
            told[row] = tuple(line["kind"] for line in lines)
        for drop in iter_dropped_rows(artifact):
            yield (Path(drop.file).name, drop.row), Outcome(dropped=drop.reason)
        files = [Path(item.path).name for item in artifact.manifest.splits[0].inputs]
        decode = load_tokenizer(recipe.tokenizer).decode
        num_packs = artifact.manifest.splits[0].statistics.num_packs
        codes = frozenset(item.code for item in check(artifact.folder).findings)
        packs = read_packs(artifact, TRAIN, range(num_packs))
        for pack, entries in entries_of_packs(artifact, TRAIN, range(num_packs)).items():
            for entry in entries:
                texts = ["", ""]
                for is_trained, ids in _runs(packs[pack], entry):
                    texts[is_trained] += decode(ids) + CUT
                place = files[entry.file_index], entry.row
                yield place, Outcome(told=told.get(place, ()), context=texts[0], trained=texts[1], codes=codes)


def _runs(pack: Any, entry: PlanEntry) -> Iterable[tuple[int, list[int]]]:
    """Yield runs of a sequence's tokens that are all trained, 1, or all not, 0."""
    start = int(pack.seq_start_id[entry.position])
    ids = pack.input_ids[start : start + entry.runtime_length + 1].tolist()
    mask = [0, *np.asarray(pack.loss_mask[start : start + entry.runtime_length]).astype(int).tolist()]
    for bit, places in groupby(range(len(ids)), key=mask.__getitem__):
        yield bit, [ids[place] for place in places]


def is_right(quirk: Quirk, family: Family, outcome: Outcome) -> bool:
    """Say whether a row's text has everything where it belongs, by looking for what the row says in it."""
    if quirk.is_hopeless or outcome.dropped:
        return False
    trained, context = (unicodedata.normalize("NFC", text) for text in (outcome.trained, outcome.context))
    wanted = (*quirk.context, *quirk.context_of.get(family.name, ()))
    if any(text.strip() not in context for text in wanted) or any(text in context for text in quirk.absent):
        return False
    for answer in quirk.answers:
        for text in _said(answer, family):
            if text is None or text not in trained:
                return False
            before, _, trained = trained.partition(text)
            trained = before + CUT + trained if before.strip() else trained
    num_ends = sum(trained.count(end) for end in family.ends)
    for text in sorted((*family.scaffold, *family.ends, *quirk.optional, CUT.strip()), key=len, reverse=True):
        trained = trained.replace(text, "")
    has_ends = num_ends >= len(quirk.answers) or "no_end" in outcome.told
    return has_ends and not trained.strip()


def _said(answer: Answer, family: Family) -> Iterable[str | None]:
    """Yield what an answer's text must have, in order; None where the family has no form for it."""
    yield from (text.strip() for text in (answer.thoughts, answer.content) if text.strip())
    for name, arguments in answer.calls:
        yield None if family.call is None else family.call(name, arguments)
