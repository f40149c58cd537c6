"""A sample of a recipe's rows, tokenised in this process by the steps of a build; it is not stored."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from bridgepack.config.recipe.packing import PackingConfig
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import make_folders
from bridgepack.data.packing.plan import plan_packs
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.reading.ranges import is_table
from bridgepack.data.reading.rows import pick_evenly
from bridgepack.data.reading.sampling import FileWindows, Window, file_windows
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.stages.finish import FinishSettings, RangePart, RangePlace, RangeResult
from bridgepack.data.stages.retokenise import EarlierTokens
from bridgepack.data.stages.tokenise import Tokenization, TokenizeTask, rescued_range, tokenize_range
from bridgepack.data.stages.write import ArtifactSpec
from bridgepack.data.tasks import InThisProcess, TaskFailure
from bridgepack.data.templates.variables import refuse_unread_variables
from bridgepack.data.tokenizers.engines import REFERENCE
from bridgepack.geometry import IntArray, aligned_runtime_lengths

#: Rows and bytes after which no further window is read, but the first of every file; what is small is read to its end.
#: They take a second or two. No clock decides, so that the same data always give the same figures.
_BUDGET_ROWS, _BUDGET_BYTES = 10_000, 1 << 22
#: Seconds after which reading stops nevertheless, and the results say so: templates or rows can be very slow.
_DEADLINE_S = 60.0
STOPPED_EARLY = f"reading stopped after {_DEADLINE_S:.0f} s, so another run may read other rows"
#: Files of a split that are shown apart; of more, so many are read, and shown together.
_MAX_FILES = 8
#: Sequences that packs are projected from, at most.
_MAX_SEQUENCES = 1 << 16
_TEXT_BYTES = 1 << 22


@dataclass(kw_only=True, slots=True)
class SampledFile:
    """A file that is sampled."""

    file: InputFile
    index: int  #: position in its split's inputs
    found: FileWindows
    taken: list[tuple[Window, RangeResult]] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """Whether every row was read."""
        return sum(window.size for window, _ in self.taken) >= self.found.total

    @property
    def num_rows_read(self) -> int:
        """Rows read, drops included."""
        return sum(result.num_rows for _, result in self.taken)

    @property
    def factor(self) -> float:
        """Rows of the file per row that was read."""
        size = sum(window.size for window, _ in self.taken)
        return 1.0 if self.is_whole or not size else self.found.total / size

    def parts(self, split: str) -> Iterator[RangePart]:
        """Yield what went to a split."""
        yield from (result.parts[split] for _, result in self.taken if split in result.parts)


@dataclass(frozen=True, kw_only=True, slots=True)
class SampledSource:
    """Files that are reported together."""

    split: str
    num_files: int  #: all of them; `files` are those that are read
    share: float  #: bytes of all files for each byte of those that are read
    files: tuple[SampledFile, ...]

    @property
    def is_sample(self) -> bool:
        """Whether not every row was read."""
        return len(self.files) < self.num_files or not all(file.is_whole for file in self.files)

    @property
    def is_counted(self) -> bool:
        """Whether `num_rows` is exact: every row was read, or every file is a table, which tells its rows."""
        are_tables = len(self.files) == self.num_files and all(is_table(file.file) for file in self.files)
        return are_tables or not self.is_sample

    @property
    def num_rows(self) -> int:
        """Rows of all files; estimated from the rows that were read, unless they are counted."""
        return round(sum(file.num_rows_read * file.factor for file in self.files) * self.share)

    def lengths(self, splits: Iterable[str]) -> list[tuple[npt.NDArray[Any], float]]:
        """Return stored lengths of the sequences of splits, and the sequences that each stands for, file by file."""
        names, no_lengths = tuple(splits), np.empty(0, int)
        return [
            (
                np.concatenate(
                    [no_lengths, *(part.sequences["stored_length"] for name in names for part in file.parts(name))]
                ),
                file.factor * self.share,
            )
            for file in self.files
        ]


def sampled_sources(files: Mapping[str, Sequence[InputFile]], *, max_row_bytes: int) -> tuple[SampledSource, ...]:
    """Return the sources of each split's files, of which nothing is read yet; a few files are a source each.

    Raises:
        DataError: when a file cannot be read.
    """
    sources = []
    for split, members in files.items():
        sample_files = [
            SampledFile(
                file=members[index], index=index, found=file_windows(members[index], max_row_bytes=max_row_bytes)
            )
            for index in pick_evenly(range(len(members)), _MAX_FILES)
        ]
        if len(members) <= _MAX_FILES:
            sources += [
                SampledSource(split=split, num_files=1, share=1.0, files=(sample_file,)) for sample_file in sample_files
            ]
        else:
            num_bytes = sum(sample_file.file.num_bytes for sample_file in sample_files)
            share = sum(file.num_bytes for file in members) / max(num_bytes, 1)
            sources.append(SampledSource(split=split, num_files=len(members), share=share, files=tuple(sample_files)))
    return tuple(sources)


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampler:
    """Tokenises windows of files by the steps of a build."""

    how: Tokenization
    settings: Mapping[str, FinishSettings]  #: split of the files -> what happens to their sequences
    folder: Path  #: for token files

    @classmethod
    def from_recipe(cls, recipe: SFTRecipe, splits: Iterable[str], folder: Path) -> Sampler:
        """Return the sampler of a recipe, with its tokenizer loaded; it drops rows at which a build may stop.

        Raises:
            ConfigError, TokenizerError: as for a build.
        """
        how = Tokenization(
            key="",
            recipe_json=recipe.model_dump_json(),
            engine=REFERENCE,
            num_input_bytes=0,
            max_text_bytes=_TEXT_BYTES,
        )
        stage, resolution = how.stage(), recipe.resolve()
        refuse_unread_variables(recipe, stage.tokenizer)
        spec = ArtifactSpec(resolved=resolution, fingerprint="", tokenizer=stage.identity(), versions={}, inputs={})
        settings = {split: without_stops(spec.finish_settings(split, folder)) for split in splits}
        for split_settings in settings.values():
            make_folders(split_settings.folder)
        return cls(how=how, settings=settings, folder=folder)

    def read(self, sources: Iterable[SampledSource], *, times: int = 1) -> bool:
        """Tokenise windows of the files in turn, until all are done or the budget is spent; of each file at least one.

        Args:
            sources: their files are read.
            times: factor of the budget of rows and bytes.

        Returns:
            Whether the sample is complete; False if time ran out.

        Raises:
            DataError: when a file cannot be read.
        """
        deadline, num_rows, num_bytes = time.monotonic() + _DEADLINE_S, 0, 0
        waiting = [(source.split, file) for source in sources for file in source.files]
        is_complete = True
        while waiting:
            for split, file in tuple(waiting):
                is_spent = num_rows >= times * _BUDGET_ROWS or num_bytes >= times * _BUDGET_BYTES
                is_late = time.monotonic() > deadline
                window = None if file.taken and (is_spent or is_late) else next(file.found.windows, None)
                if window is None:
                    is_complete = is_complete and (is_spent or file.is_whole or not is_late)
                    waiting.remove((split, file))
                else:
                    file.taken.append((window, self._tokenize(split, file, window)))
                    num_rows, num_bytes = num_rows + window.part.num_rows, num_bytes + window.num_bytes
        return is_complete

    def again(self, sources: Iterable[SampledSource], *, shorter: int, splits: bool) -> tuple[SampledSource, ...]:
        """Return sources with the same windows, which another sampler read for another maximum length.

        `shorter` and `splits` as of `EarlierTokens`: only what a length cuts is tokenised again.

        Raises:
            DataError: when a file cannot be read.
        """
        new_sources = []
        for source in sources:
            files = [replace(file, taken=[]) for file in source.files]
            for file, before in zip(files, source.files, strict=True):
                for window, result in before.taken:
                    earlier = EarlierTokens(
                        token_file=result.place.token_file, tokenization=None, shorter=shorter, splits=splits
                    )
                    file.taken.append((window, self._tokenize(source.split, file, window, earlier)))
            new_sources.append(replace(source, files=tuple(files)))
        return tuple(new_sources)

    def _tokenize(
        self, split: str, file: SampledFile, window: Window, earlier: EarlierTokens | None = None
    ) -> RangeResult:
        path, first_row = self.folder / f"{split}-{file.index}-{len(file.taken)}", window.part.first_row
        place = RangePlace(
            file_index=file.index,
            label=file.file.label,
            first_row=first_row,
            token_file=path,
            kind=file.file.kind_of_rows,
        )
        settings, runner = self.settings[split], InThisProcess()
        task = TokenizeTask(
            how=self.how, file=file.file, part=window.part, place=place, settings=settings, earlier=earlier
        )
        outcome = runner.run_alone(tokenize_range, task)
        return rescued_range(runner, outcome) if isinstance(outcome, TaskFailure) else outcome


def projected_packs(packing: PackingConfig, multiple: int, samples: Sequence[tuple[IntArray, float]]) -> int:
    """Return the projected number of packs; exact if all sequences are given and they are few.

    A sample is repeated until it has as many sequences as it stands for, or as many as are planned in a moment: few
    sequences fill their packs worse than many.

    `samples` are stored lengths, and the sequences that each of them stands for; `multiple` is that of runtime lengths.
    """
    total = sum(len(lengths) * weight for lengths, weight in samples)
    if not total:
        return 0
    scale = min(1.0, _MAX_SEQUENCES / total)
    stored_lengths = population(samples, scale)
    plan = plan_packs(
        aligned_runtime_lengths(stored_lengths - 1, multiple),
        packed_sequence_size=packing.packed_sequence_size,
        algorithm=packing.algorithm,
        max_sequences_per_pack=packing.max_sequences_per_pack,
        seed=packing.seed,
    )
    return max(round(plan.num_packs / scale), 1)


def population(samples: Sequence[tuple[IntArray, float]], scale: float = 1.0) -> IntArray:
    """Return the lengths of samples, each repeated by its weight times a scale; int64."""
    lengths_of_samples = [
        np.resize(lengths, max(round(len(lengths) * weight * scale), 1)) for lengths, weight in samples if len(lengths)
    ]
    return np.concatenate([np.empty(0, dtype=np.int64), *lengths_of_samples]).astype(np.int64)


def without_stops(settings: FinishSettings) -> FinishSettings:
    """Return settings of a build that drop the rows at which it would stop."""

    def without_stop(policy: SequencePolicy) -> SequencePolicy:
        return replace(policy, action="drop") if policy.action == "error" else policy

    return replace(
        settings,
        stops_at_bad_rows=False,
        stops_at_losses=False,
        policy=without_stop(settings.policy),
        others={kind: without_stop(policy) for kind, policy in settings.others.items()},
    )
