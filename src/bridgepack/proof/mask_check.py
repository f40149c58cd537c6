"""Has the rows of a recipe or an artifact encoded again, and their masks judged by `masks`, which shares no code."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from bridgepack.config.load import load_recipe
from bridgepack.config.recipe.readings import written_layouts
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.reading.inputs import InputFile
from bridgepack.data.sequences.encoding import Encoded
from bridgepack.data.sequences.loading import load_stage
from bridgepack.data.sequences.over_long import SequencePolicy
from bridgepack.data.templates.forms import forms_of
from bridgepack.data.tokenizers.limits import TimeLimit
from bridgepack.data.tokenizers.tokenizer import ChatTokenizer
from bridgepack.data.tokenizers.trust import refuse_tokenizer_code
from bridgepack.errors import DataError, RowError
from bridgepack.proof.masks.judges import RecipeJudges, SourceJudge
from bridgepack.proof.masks.masks import MaskComparison, MaskOptions
from bridgepack.proof.masks.records import BuiltRow, BuiltSequence, MaskReport
from bridgepack.proof.packs import opened_artifact, recorded_recipe
from bridgepack.proof.sources import (
    choose_rows,
    encoded_rows,
    found_sources,
    input_files,
    rows_of_file,
    stage_tokenizer,
)
from bridgepack.records import TRAIN, VALIDATION, Manifest

_MADE_ANEW = (
    "masks were computed again from the sources; `bridgepack prove sources` compares them with those in the artifact"
)


def check_masks(target: str | Path | SFTRecipe, options: MaskOptions | None = None) -> MaskReport:
    """Return whether the masks of a recipe's rows equal those of independent derivations.

    `target` is a recipe, its location, or the folder of an artifact, whose own recipe is used.

    Raises:
        ConfigError: the recipe does not exist, an override is invalid, or the chat template does not read a variable.
        ArtifactError: the folder is not an artifact.
        DataError: a source is missing or cannot be read, or many rows take too much time or memory.
        TokenizerError: the tokenizer cannot be loaded, or cannot do what the recipe asks.
    """
    options = options or MaskOptions()
    is_artifact = not isinstance(target, SFTRecipe) and bool(str(target)) and Path(target).is_dir()
    if not isinstance(target, SFTRecipe) and is_artifact:
        artifact = opened_artifact(Path(target))
        recipe, manifest = recorded_recipe(artifact, options.overrides), artifact.manifest
    else:
        recipe, manifest = load_recipe(target, options.overrides), None
    refuse_tokenizer_code(recipe, is_trusted=options.trust_remote_code)
    tokenizer = stage_tokenizer(recipe, is_built=is_artifact)
    judges = RecipeJudges(recipe, tokenizer, claimed_forms(recipe, tokenizer, manifest))
    with found_sources(recipe, manifest) as sources:
        if sources.gone:
            raise DataError("; ".join(sources.gone))
        comparison = _compare(recipe, judges, input_files(recipe, sources.files, options.split), options)
    name = target.name if isinstance(target, SFTRecipe) else str(target)
    return comparison.report(name, (_MADE_ANEW,) if is_artifact else ())


def claimed_forms(recipe: SFTRecipe, tokenizer: ChatTokenizer, manifest: Manifest | None = None) -> Mapping[str, Any]:
    """Return the forms in which turns are given to the chat template, as a manifest has them, or would have them."""
    if manifest is not None:
        forms: Mapping[str, Any] = manifest.tokenizer.get("forms", {})
        return forms
    return forms_of(tokenizer).decisions(recipe.fields_on_auto) if recipe.fields_on_auto else {}


def _compare(
    recipe: SFTRecipe, judges: RecipeJudges, inputs: Sequence[tuple[str, InputFile]], options: MaskOptions
) -> MaskComparison:
    """Return the comparison of every row, or of the rows of the sample."""
    rows_of_files, num_rows = choose_rows(inputs, options.num_rows, options.seed, recipe.data.max_row_bytes)
    comparison = MaskComparison(judges.names, options, num_rows)
    total = None if options.num_rows is None else min(options.num_rows, num_rows)
    options.progress.start("Comparing masks", total, "rows")
    with TimeLimit() as limit:
        for (split, file), rows in zip(inputs, rows_of_files, strict=True):
            if rows is None or rows:
                judge = _judge_of(recipe, judges, split, file)
                for row in built_rows(recipe, split, file, rows):
                    comparison.add(row, judge, limit)
                    options.progress.advance(1)
    options.progress.finish()
    return comparison


def _judge_of(recipe: SFTRecipe, judges: RecipeJudges, split: str, file: InputFile) -> SourceJudge:
    is_train = split == TRAIN or recipe.data.validation is None
    sources = recipe.data.sources_of(TRAIN if is_train else VALIDATION)
    layouts = written_layouts(recipe.data, sources[file.source])
    return judges.of_source(file.kind_of_rows, layouts)


def built_rows(recipe: SFTRecipe, split: str, file: InputFile, rows: set[int] | None = None) -> Iterator[BuiltRow]:
    """Yield rows as a file has them, each with what the build makes of it, in order; arguments as of `encoded_rows`.

    The rows are read twice, so that what the build does to one is not seen in the other.
    """
    eos_token_id = load_stage(recipe.model_dump_json()).tokenizer.eos_token_id
    policy = SequencePolicy.of(recipe.resolve(), eos_token_id, file.kind_of_rows)
    plain_rows = rows_of_file(replace(file, view=None), rows, recipe.data.max_row_bytes)
    for row, group in groupby(encoded_rows(recipe, file, rows), key=lambda item: item[0]):
        columns = next(columns for number, columns in plain_rows if number == row)
        outcomes = [outcome for _, _, outcome in group]
        first = outcomes[0]
        drop = str(first.reason) if isinstance(first, RowError) else ""
        sequences = tuple(built_sequence(outcome) for outcome in outcomes if isinstance(outcome, Encoded))
        if file.kind_of_rows == "chat":
            masks = [policy.mask_of_row(item.input_ids, item.loss_mask) for item in sequences]
            sequences = tuple(
                replace(item, loss_mask=mask, is_final=True) for item, mask in zip(sequences, masks, strict=True)
            )
        yield BuiltRow(
            split=split,
            file=file.label,
            row=row,
            columns=columns if isinstance(columns, Mapping) else {},
            sequences=sequences,
            drop=drop,
            losses=() if isinstance(first, RowError) else first.losses,
        )


def built_sequence(sequence: Encoded) -> BuiltSequence:
    """Return a sequence as the proof takes it."""
    return BuiltSequence(
        input_ids=np.array(sequence.ids, dtype=np.int32),
        loss_mask=np.array(sequence.mask, dtype=np.int8),
        turns=sequence.turns,
        removed=sequence.removed,
        stop=sequence.stop,
    )
