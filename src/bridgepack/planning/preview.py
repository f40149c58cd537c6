"""Preview of a build: a sample of a recipe's rows, tokenised in this process; nothing is written."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from bridgepack.bridge.wiring import Packs, RunLength, run_length
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.artifact.inspection import SequenceView, view_sequences
from bridgepack.data.artifact.origins import Origin
from bridgepack.data.build import find_files
from bridgepack.data.reading.rows import read_range, sampled_rows
from bridgepack.data.served.sample import sample_answers
from bridgepack.data.stages.finish import FinishSettings
from bridgepack.data.stages.split import unread_fields
from bridgepack.data.store.token_file import token_arrays
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.planning.cuts import Totals, cost_of_cutting, cuts_exchanges, totals, whole_totals
from bridgepack.planning.sample import SampledFile, SampledSource, Sampler, population, projected_packs, sampled_sources
from bridgepack.records import TRAIN, VALIDATION, Drop, DropReason, PackedRow, ServedRecord, SkippedFiles, UnreadField
from bridgepack.records.flags import LostFlags
from bridgepack.records.results import Result
from bridgepack.records.words import count_text

_COLUMN_ROWS = 100
type _Lengths = list[tuple[npt.NDArray[Any], float]]  # of files, see `SampledSource.lengths`


@dataclass(frozen=True, kw_only=True, slots=True)
class Tokens:
    """Runtime tokens of a source's sequences."""

    p50: int  #: median; `p95` and `p99` are percentiles
    p95: int
    p99: int
    max: int  #: longest sequence that was read
    trained_fraction: float  #: share of trained tokens (0-1)
    sequences_per_row: float = 1.0  #: of rows that give any
    #: tokens that splitting conversations adds, for each token of one sequence per row; 0 if none is split. With
    #: `over_long: split_exchanges`, less those that no sequence shows
    added_fraction: float = 0.0
    lost_fraction: float = 0.0  #: share of trained tokens (0-1) that cutting between exchanges leaves out


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """Rows that would be dropped for one reason, or would lose one kind of content."""

    kind: str  #: reason of a drop, or kind of lost content
    num_rows: int  #: number of such rows among those read
    #: file, row and what is wrong with it, of the first; `row ~N` where the number of a row is an estimate
    example: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SourcePreview:
    """The preview of one file, or of many files together."""

    split: str  #: `training` or `validation`
    files: tuple[str, ...]  #: files that were read
    num_files: int  #: number of all files
    format: str  #: kind of the files, e.g. `jsonl.gz`
    columns: Mapping[str, str]  #: name -> types of its values in the first rows
    num_rows_read: int  #: rows that were read
    num_rows: int  #: all rows; an estimate if not every row was read, and the files do not tell
    is_counted: bool  #: whether `num_rows` is exact
    is_sample: bool  #: whether not every row was read
    num_sequences: int  #: sequences of the rows read
    tokens: Tokens | None  #: None without sequences
    drops: tuple[Note, ...]  #: by reason, most frequent first
    lost_content: tuple[Note, ...]  #: by kind, most frequent first
    unread: tuple[UnreadField, ...]  #: columns and fields of turns that nobody reads
    sequences: tuple[SequenceView, ...]  #: of the first rows, with their text
    read_as: Mapping[str, int] = field(default_factory=dict)  #: name of each layout -> rows among those read
    kind: str = "chat"  #: kind of the rows


@dataclass(frozen=True, kw_only=True, slots=True)
class Preview(Result):
    """The preview of a recipe's build.

    Attributes:
        name: name of the recipe.
        sources: each file of the recipe's data, or many files together.
        num_packs: split -> packs; projected where a source is a sample. None where they depend on all rows, because
            sources are mixed or duplicates go.
        run: length of the run over the training packs; None if their number is unknown or 0.
        loses_text: whether the tokenizer loses text, such as spaces, that its own tokenizer.json keeps.
        lost_flags: added tokens whose flags Megatron-Core takes away, so that a server cuts texts into other tokens.
        template: what the chat template writes and reads; None for rows that are no conversations.
        forms: field of preprocessing that is `auto` -> what is decided for the chat template, as in the manifest.
        num_sequences: split -> sequences, as `num_packs`.
        stopped_early: whether reading took too long, so that it ended before the sample was complete.
        served: comparison of a sample of the training answers with what a server sends; None for rows that are no
            conversations.
        stops: field of the recipe by which a build would stop, not drop -> the reasons of such drops.
        skipped: split -> files of its folders that a build does not read.
    """

    DERIVED: ClassVar = ("is_sample",)
    TABLE: ClassVar = "sources"

    name: str
    sources: tuple[SourcePreview, ...]
    num_packs: Mapping[str, int] | None
    num_sequences: Mapping[str, int] | None
    run: RunLength | None
    loses_text: bool
    forms: Mapping[str, Any]
    stopped_early: bool
    stops: Mapping[str, str]
    template: Mapping[str, Any] | None = None
    served: ServedRecord | None = None
    skipped: Mapping[str, SkippedFiles] = field(default_factory=dict)
    lost_flags: tuple[LostFlags, ...] = ()

    def headline(self) -> str:
        """Return what came out, in one line."""
        num_rows = sum(source.num_rows for source in self.sources)
        about = "" if all(source.is_counted for source in self.sources) else "about "
        drops = sum(drop.num_rows for source in self.sources for drop in source.drops)
        num_read = sum(source.num_rows_read for source in self.sources)
        packs = "packs not projected"
        if self.num_packs is not None:
            packs = f"{'about ' if self.is_sample else ''}{count_text(sum(self.num_packs.values()), 'pack')}"
        drop_text = f"{drops:,} of {count_text(num_read, 'row')} read would be dropped"
        return f"{self.name}: {about}{count_text(num_rows, 'row')}, {packs}; {drop_text}"

    @property
    def is_sample(self) -> bool:
        """Whether the figures are of a sample, and packs are projected."""
        return any(source.is_sample for source in self.sources)


def preview_recipe(recipe: SFTRecipe, *, num_rows: int = 5) -> Preview:
    """Return the preview of a recipe from a sample of its rows, with the text of the first `num_rows` per source.

    Raises:
        ConfigError, TokenizerError: as for a build.
        DataError: an input is missing, cannot be read, or has no row.
    """
    resolved_recipe = recipe.resolve()
    with TemporaryDirectory(prefix="bridgepack-preview-") as scratch:
        files, skipped_files = find_files(recipe, Path(scratch))
        sampler = Sampler.from_recipe(recipe, files, Path(scratch))
        every_file = [file for members in files.values() for file in members]
        stage = sampler.how.stage()
        stage.check_engine(sampled_rows(every_file, recipe.data.max_row_bytes), 0)
        sources = sampled_sources(files, max_row_bytes=recipe.data.max_row_bytes)
        is_complete = sampler.read(sources)
        multiple, tokenizer = resolved_recipe.pad_seq_to_mult.value, stage.tokenizer
        splits = [name for settings in sampler.settings.values() for name in settings.splits]
        names = () if recipe.chooses_rows else dict.fromkeys(splits)
        lengths = {name: [group for source in sources for group in source.lengths([name])] for name in names}
        num_packs = {
            name: sum(projected_packs(recipe.packing, multiple, group) for group in groups)
            for name, groups in _groups_of_packs(recipe, sources, lengths).items()
        }
        num_sequences = {
            name: round(sum(len(stored_lengths) * weight for stored_lengths, weight in lengths[name])) for name in names
        }
        uncut_totals: Sequence[Totals | None] = [None] * len(sources)
        if cuts_exchanges(recipe):
            uncut_totals = whole_totals(recipe, sources, tuple(dict.fromkeys(splits)), Path(scratch) / "whole")
        answer_sample = None if recipe.chat_preprocessing is None else sample_answers(stage, files[TRAIN])
        previews = tuple(
            _preview_source(source, sampler.settings[source.split], tokenizer, num_rows, uncut)
            for source, uncut in zip(sources, uncut_totals, strict=True)
        )
    return Preview(
        name=recipe.name,
        sources=previews,
        num_packs=num_packs or None,
        num_sequences=num_sequences or None,
        run=run_length(recipe, Packs(folder="", num_packs=num_packs)) if num_packs.get(TRAIN) else None,
        loses_text=tokenizer.loses_text,
        lost_flags=tokenizer.lost_flags,
        template=None if stage.facts is None else stage.facts.as_json(),
        forms=stage.forms(),
        stopped_early=not is_complete,
        served=answer_sample,
        skipped=skipped_files,
        stops=_stops(recipe, {drop.kind for source in previews for drop in source.drops}),
    )


def _groups_of_packs(
    recipe: SFTRecipe, sources: Sequence[SampledSource], lengths: Mapping[str, _Lengths]
) -> dict[str, list[_Lengths]]:
    """Return split -> lengths that are packed together: all of a split, or those of a validation set."""
    groups = {name: [of_split] for name, of_split in lengths.items()}
    if recipe.data.has_validation_sets and VALIDATION in groups:
        sets: dict[int, _Lengths] = {}
        files = [(source.split, file) for source in sources for file in source.files]
        for (split, file), of_file in zip(files, lengths[VALIDATION], strict=True):
            if split == VALIDATION:
                sets.setdefault(file.file.source, []).append(of_file)
        groups[VALIDATION] = list(sets.values())
    return groups


def _stops(recipe: SFTRecipe, reasons: set[str]) -> dict[str, str]:
    """Return recipe field that makes a build stop -> drop reasons found in the sample."""
    losses = getattr(recipe.chat_preprocessing, "on_lost_content", "keep")
    actions = {
        "data.on_bad_row": (recipe.data.on_bad_row, reasons),
        "preprocessing.over_long": (recipe.preprocessing.over_long, reasons & {DropReason.OVER_LONG}),
        "preprocessing.on_lost_content": (losses, reasons & {DropReason.LOST_CONTENT}),
    }
    return {name: ", ".join(sorted(drops)) for name, (action, drops) in actions.items() if action == "error" and drops}


def _preview_source(
    source: SampledSource, settings: FinishSettings, tokenizer: ChatTokenizer, num_rows: int, uncut: Totals | None
) -> SourcePreview:
    splits = settings.splits
    first = next((file for file in source.files if file.taken), None)  # a file may be empty
    parts = [part for file in source.files for name in splits for part in file.parts(name)]
    results = [
        replace(result, place=replace(result.place, file_index=index))
        for index, file in enumerate(source.files)
        for _, result in file.taken
    ]
    return SourcePreview(
        split=source.split,
        files=tuple(file.file.label for file in source.files),
        num_files=source.num_files,
        format=".".join(filter(None, (source.files[0].file.kind, source.files[0].file.compression))),
        columns=_columns(first) if first else {},
        num_rows_read=sum(file.num_rows_read for file in source.files),
        num_rows=source.num_rows,
        is_counted=source.is_counted,
        is_sample=source.is_sample,
        num_sequences=sum(len(part.sequences) for part in parts),
        tokens=_tokens(source, splits, uncut),
        drops=_notes(source, splits, "drops"),
        lost_content=_notes(source, splits, "losses"),
        unread=unread_fields([file.file.source for file in source.files], results),
        sequences=tuple(islice(_sequences(first, tokenizer, settings), num_rows)) if first else (),
        read_as=_read_as(source),
        kind=source.files[0].file.kind_of_rows,
    )


def _read_as(source: SampledSource) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for file in source.files:
        names = () if file.file.view is None else file.file.view.reading.names
        for _, result in file.taken:
            counts.update(dict(zip(names, result.num_read, strict=False)))
    return dict(counts)


def _tokens(source: SampledSource, splits: tuple[str, ...], uncut: Totals | None) -> Tokens | None:
    lengths = population(source.lengths(splits), 1 / max(source.share, *(file.factor for file in source.files))) - 1
    if not len(lengths):
        return None
    num_tokens = num_trained = num_added = num_sequences = num_rows = 0.0
    for file in source.files:
        for part in (part for name in splits for part in file.parts(name)):
            runtime = part.sequences["stored_length"] - 1
            num_tokens += file.factor * int(runtime.sum())
            num_added += file.factor * int(runtime[part.sequences["is_added"]].sum())
            num_trained += file.factor * int(part.sequences["num_trained"].sum())
            num_sequences += file.factor * len(part.sequences)
            num_rows += file.factor * len(np.unique(part.sequences["row_offset"]))
    lost_fraction, added_fraction = (0.0, 0.0) if uncut is None else cost_of_cutting(uncut, totals([source], splits))
    p50, p95, p99 = np.percentile(lengths, [50, 95, 99], method="higher").astype(int).tolist()
    return Tokens(
        p50=p50,
        p95=p95,
        p99=p99,
        max=int(lengths.max()),
        trained_fraction=num_trained / num_tokens,
        sequences_per_row=num_sequences / num_rows,
        added_fraction=num_added / max(num_tokens - num_added, 1.0) or added_fraction,
        lost_fraction=lost_fraction,
    )


def _notes(source: SampledSource, splits: tuple[str, ...], field: str) -> tuple[Note, ...]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for file in source.files:
        for window, result in sorted(file.taken, key=lambda window_result: window_result[0].part.first_row):
            for notes in (getattr(result.parts[name], field) for name in splits):
                counts.update(notes.counts)
                for example in notes.examples:
                    kind = example.reason if isinstance(example, Drop) else example.kind
                    row = f"row {'' if window.has_row_numbers else '~'}{example.row}"
                    examples.setdefault(kind, f"{file.file.label} {row}: {example.detail}")
    return tuple(Note(kind=str(kind), num_rows=count, example=examples[kind]) for kind, count in counts.most_common())


def _sequences(file: SampledFile, tokenizer: ChatTokenizer, settings: FinishSettings) -> Iterator[SequenceView]:
    """Yield the sequences of the first window of a file with their text, in row order."""
    _, result = min(file.taken, key=lambda window_result: window_result[0].part.first_row)
    policy = settings.policy_of(result.place.kind)
    fields = ["row_offset", "first_token", "index", "is_cut"]
    rows = sorted(row for part in result.parts.values() for row in part.sequences[fields].tolist())
    counts, num_pieces = Counter(row for row, *_ in rows), Counter[int]()
    for position, (row, first_token, at, is_cut) in enumerate(rows):
        path = result.cut_file if is_cut and result.cut_file else result.place.token_file
        ids, mask = token_arrays(path).sequence(at)
        mask = policy.mask_of_row(ids, mask)
        alone = PackedRow(input_ids=ids, loss_mask=np.append(mask[1:], 0), seq_start_id=np.zeros(1, dtype=np.int32))
        num_pieces[row] += 1
        piece = (num_pieces[row], counts[row]) if counts[row] > 1 else (0, 0)
        origin = Origin(file.file.label, result.place.first_row + row, first_token, len(ids) - 1, *piece)
        (view,) = view_sequences(alone, origins=[origin], tokenizer=tokenizer, eos_token_id=tokenizer.eos_token_id)
        yield replace(view, position=position)


def _columns(file: SampledFile) -> dict[str, str]:
    window, _ = min(file.taken, key=lambda window_result: window_result[0].part.first_row)
    as_they_are = replace(file.file, view=None)
    examples = (item for _, item in read_range(as_they_are, window.part) if isinstance(item, Mapping))
    column_kinds: dict[str, dict[str, None]] = {}
    for example in islice(examples, _COLUMN_ROWS):
        for name, value in example.items():
            column_kinds.setdefault(name, {})[_kind_of(value)] = None
    return {name: " or ".join(kinds) for name, kinds in column_kinds.items()}


def _kind_of(value: Any) -> str:
    if isinstance(value, list):
        inside = value[0] if value else None
        if isinstance(inside, Mapping):
            return f"list of {{{', '.join(map(str, inside))}}}"
        return f"list of {_kind_of(inside)}" if value else "empty list"
    if isinstance(value, Mapping):
        return "object"
    names = {str: "text", bool: "true or false", int: "number", float: "number", type(None): "null"}
    return names.get(type(value), type(value).__name__)
