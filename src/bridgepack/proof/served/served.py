"""Compares what a recipe's or an artifact's rows train with what a server sends and a model must then write."""

from collections import Counter
from pathlib import Path

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.served.compare import ServedAnswer
from bridgepack.data.served.masked_prompts import PromptRows
from bridgepack.data.served.rows import ServedRows
from bridgepack.data.served.switches import SwitchRows, find_switches
from bridgepack.data.served.tally import ServedTally
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.errors import DataError, RowError
from bridgepack.proof.masks.masks import MaskOptions
from bridgepack.proof.packs import opened_artifact, recorded_recipe
from bridgepack.proof.served.records import ServedFinding, ServedReport
from bridgepack.proof.sources import choose_rows, found_sources, input_files, row_batches, stage_tokenizer
from bridgepack.records import EXPECTED_KINDS

#: Section of an artifact's recipe that may be another one: packs do not depend on it.
SERVING = "serving"


def check_served(target: str | Path | SFTRecipe, options: MaskOptions | None = None) -> ServedReport:
    """Return whether the answers that rows train are those that a server shows.

    `target` is a recipe, its location, or the folder of an artifact, whose own recipe is used.

    Raises:
        ConfigError: the recipe does not exist, its rows are no conversations, an override is invalid, or the chat
            template does not read a variable.
        ArtifactError: the folder is not an artifact.
        DataError: a source is missing or cannot be read.
        TokenizerError: the tokenizer cannot be loaded, or cannot do what the recipe asks.
    """
    options = options or MaskOptions()
    is_artifact = not isinstance(target, SFTRecipe) and bool(str(target)) and Path(target).is_dir()
    if not isinstance(target, SFTRecipe) and is_artifact:
        artifact = opened_artifact(Path(target))
        recipe, manifest = recorded_recipe(artifact, options.overrides, may_change=SERVING), artifact.manifest
    else:
        recipe, manifest = load_recipe(target, options.overrides), None
    refuse_tokenizer_code(recipe, is_trusted=options.trust_remote_code)
    stage_tokenizer(recipe, is_built=is_artifact and not options.overrides)
    comparison = _Comparison(recipe, options)
    with found_sources(recipe, manifest) as sources:
        if sources.gone:
            raise DataError("; ".join(sources.gone))
        comparison.run(input_files(recipe, sources.files, options.split))
        return comparison.report(target.name if isinstance(target, SFTRecipe) else str(target))


class _Comparison:
    def __init__(self, recipe: SFTRecipe, options: MaskOptions) -> None:
        self._recipe, self._options = recipe, options
        self._rows = ServedRows.of(load_stage(recipe.model_dump_json()))
        self._num_rows = self._num_read = 0
        self._tally, self._drops = ServedTally(), Counter[str]()
        self._findings: list[ServedFinding] = []
        self._switch_rows, self._prompt_rows = SwitchRows(), PromptRows()

    def run(self, inputs: list[tuple[str, InputFile]]) -> None:
        """Compare every row, or the rows of the sample."""
        options, progress = self._options, self._options.progress
        rows_of_files, self._num_rows = choose_rows(
            inputs, options.num_rows, options.seed, self._recipe.data.max_row_bytes
        )
        total = None if options.num_rows is None else min(options.num_rows, self._num_rows)
        progress.start("Comparing answers", total, "rows")
        for index, ((split, file), rows) in enumerate(zip(inputs, rows_of_files, strict=True)):
            if rows is None or rows:
                self._compare_file(index, split, file, rows)
        progress.finish()

    def _compare_file(self, index: int, split: str, file: InputFile, rows: set[int] | None) -> None:
        for batch in row_batches(self._recipe, file, rows):
            self._num_read += len(batch)
            self._options.progress.advance(len(batch))
            rows_to_compare = [(row, item) for row, item in batch if not isinstance(item, RowError)]
            self._drops.update(str(item.reason) for _, item in batch if isinstance(item, RowError))
            for (row, columns), answers in zip(
                rows_to_compare, self._rows.answers([item for _, item in rows_to_compare]), strict=True
            ):
                if isinstance(answers, RowError):
                    self._drops[str(answers.reason)] += 1
                    continue
                for answer in answers:
                    self._keep(split, file.label, row, answer)
                self._tally.add(index, row, answers)
                if answers:
                    self._switch_rows.add(columns, answers)
                    self._prompt_rows.add(columns, answers)

    def _keep(self, split: str, file: str, row: int, answer: ServedAnswer) -> None:
        """Keep a finding while there is room, and always one of each kind."""
        if answer.kind in EXPECTED_KINDS or not self._options.limit:
            return
        is_new = all(finding.kind != answer.kind for finding in self._findings)
        if len(self._findings) < self._options.limit or is_new:
            self._findings.append(
                ServedFinding(
                    kind=str(answer.kind),
                    split=split,
                    file=file,
                    row=row,
                    turn=answer.turn,
                    num_trained_tokens=answer.num_trained_tokens,
                    detail=answer.detail,
                    token=answer.token,
                    trained_text=answer.trained_text,
                    served_text=answer.served_text,
                )
            )

    def report(self, target: str) -> ServedReport:
        """Return the findings."""
        is_sample = self._options.num_rows is not None
        switches = find_switches(self._rows, self._switch_rows)
        prompt_trial = self._prompt_rows.try_setting(self._rows.stage)
        record = self._tally.record(switches, prompt_trial, self._rows.settings)
        return ServedReport(
            target=target,
            mode="sample" if is_sample else "all",
            seed=self._options.seed if is_sample else None,
            num_rows=self._num_rows if is_sample else self._num_read,
            num_rows_read=self._num_read,
            record=record,
            drops=dict(sorted(self._drops.items())),
            cures={count.kind: record.cure(count.kind) for count in record.differing},
            findings=tuple(self._findings),
            lost_flags=self._rows.stage.tokenizer.lost_flags,
        )
