"""Fits a new recipe to its data: answers as served, about 128 conversations a step, at least 20 steps an epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from textwrap import shorten
from typing import Any

from bridgepack.bridge.wiring import RunLength
from bridgepack.config.recipe.data import path_of
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.data.files import has_in_cache, only_cache
from bridgepack.data.reading.remote import scheme_of
from bridgepack.errors import BridgepackError, ConfigError
from bridgepack.geometry import floor_to_multiple
from bridgepack.planning.balance import balance_for
from bridgepack.planning.evaluation import Evaluation, evaluation_of
from bridgepack.planning.limits import limits_of
from bridgepack.planning.preview import Preview, preview_recipe
from bridgepack.records import TRAIN, ServedRecord, Shares, percent
from bridgepack.records.served import VARIABLES, switch_cure
from bridgepack.records.words import count_text

#: Conversations of a step in usual fine-tuning without packing, and steps of an epoch that a batch should leave.
_USUAL_SEQUENCES, _LEAST_STEPS = 128, 20
#: Share of the projected packs (0-1) that a sample can be relied on for.
_SURE_SHARE = 0.95
#: Files that a cached tokenizer has at least one of.
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "tokenizer.model")
#: What is said without the hub, although no user turned it off.
_OFFLINE = "HF_HUB_OFFLINE is set, and "
_MOST_CHARACTERS = 240
_TOKENS = "batch.tokens_per_step"


@dataclass(frozen=True, kw_only=True, slots=True)
class Fit:
    """The batch of a new recipe, or why it is not fitted to the data."""

    line: str  #: what was found, in one line
    comments: Mapping[str, str]  #: dotted path of the recipe -> comment
    #: section -> its fields that change; empty if the batch is not fitted
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: fraction of the rows (0-1) to set aside for evaluation; None to leave it as it is
    validation_fraction: float | None = None
    #: what settings train of a sample of the answers, and at which cost; empty where all are trained as they are served
    choices: tuple[Shares, ...] = ()
    choice: Shares | None = None  #: the one that is written


def fitted_batch(recipe: SFTRecipe) -> Fit:
    """Return the batch that fits a sample of a recipe's rows; without data or a tokenizer here, why there is none.

    It is the multiple of the data-parallel size nearest to 128 conversations a step, but at most a twentieth of the
    packs where a smaller multiple exists. Answers are trained as they are served, and a part of the rows that fills a
    step of evaluation is set aside, where a setting can do that. Never asks the hub.
    """
    reason = why_not_here(recipe)
    if not reason:
        try:
            with only_cache():
                return _fit_to_sample(recipe)
        except Exception as error:  # whatever data and tokenizer do, there is a recipe to start from
            reason = str(error) if isinstance(error, BridgepackError) else f"{type(error).__name__}: {error}"
    return _fallback_fit(recipe, reason)


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """A recipe that trains answers as they are served."""

    recipe: SFTRecipe  #: with the setting that was chosen
    #: what was measured, the recipe as it is first; empty where all answers are as they are served
    choices: tuple[Shares, ...] = ()
    choice: Shares | None = None
    values: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  #: section -> its fields that change
    comments: Mapping[str, str] = field(default_factory=dict)  #: dotted path of the recipe -> comment


def serving_of(recipe: SFTRecipe, record: ServedRecord | None) -> Serving:
    """Return a recipe with the best of the settings that a sample of its answers was measured with.

    Best is the setting with most answers as they are served; of several, the one with the fewest tokens.
    """
    if record is None or not record.choices:
        return Serving(recipe=recipe)
    as_it_is, *alternatives = record.choices
    better = [shares for shares in alternatives if shares.served_fraction > as_it_is.served_fraction]
    choice = max(better, key=lambda shares: shares.merit, default=as_it_is)
    served_recipe = recipe.override(choice.setting)
    sections = dict.fromkeys(path.partition(".")[0] for path in choice.setting)
    price = choice.price(as_it_is)
    return Serving(
        recipe=served_recipe,
        choices=record.choices,
        choice=choice,
        values={name: getattr(served_recipe, name).model_dump(mode="json", exclude_unset=True) for name in sections},
        comments=_comments(choice, f"{price}; without it {percent(as_it_is.served_fraction)}"),
    )


def _comments(choice: Shares, price: str) -> dict[str, str]:
    """Return path -> comment of the setting that was chosen; the price is at the first."""
    if not choice.setting:
        text = f"{percent(choice.served_fraction)} of the trained answers as served; no setting that was tried has more"
        return {"preprocessing.loss_mode": text}
    comments = dict.fromkeys(choice.setting, "trains answers as they are served")
    comments |= {next(iter(choice.setting)): price}
    for name, value in choice.setting.get(VARIABLES, {}).items():
        comments[VARIABLES] = f"{price}; {switch_cure(name, value)}"
    return comments


def _fit_to_sample(recipe: SFTRecipe) -> Fit:
    preview = preview_recipe(recipe, num_rows=0)
    serving = serving_of(recipe, preview.served)
    if serving.values:
        recipe = serving.recipe
        preview = preview_recipe(recipe, num_rows=0)
    evaluation = evaluation_of(recipe, preview)
    fit = _fit(evaluation)
    return replace(
        fit,
        comments={**fit.comments, **serving.comments},
        values={**fit.values, **serving.values},
        choices=serving.choices,
        choice=serving.choice,
    )


def why_not_here(recipe: SFTRecipe) -> str:
    """Return why rows cannot be tokenised here and now, e.g. because the data is not there; empty if they can."""
    paths = [path_of(source) for source in recipe.data.sources_of(TRAIN)]
    name = recipe.tokenizer.name_or_path
    if any(path is None or scheme_of(path) is not None for path in paths):
        return "data.train is not on this machine"
    missing = [path for path in paths if path is not None and not _is_there(path)]
    if missing:
        return f"{missing[0]} is not here yet"
    if not Path(name).is_dir() and not has_in_cache(name, _TOKENIZER_FILES, recipe.tokenizer.revision):
        return f"the tokenizer {name} is not on this machine"
    return ""


def _is_there(path: str) -> bool:
    place = Path(path).expanduser()
    return place.exists() or any(character in path for character in "*?[")


def _fallback_fit(recipe: SFTRecipe, reason: str) -> Fit:
    words = "".join(character if character.isprintable() else " " for character in reason).replace(_OFFLINE, "")
    why, _, what_to_do = words.partition(". ")
    words, cure = (shorten(text, _MOST_CHARACTERS, placeholder=" ...") for text in (why.rstrip("."), what_to_do))
    packs = max(round((recipe.batch.tokens_per_step or 0) / recipe.packing.packed_sequence_size), 1)
    line = f"the batch is not fitted to the data: {words}{f'. {cure}' if cure else ''}"
    return Fit(line=line, comments={_TOKENS: f"about {packs:,} packs; not fitted to the data: {words}"})


def _fit(evaluation: Evaluation) -> Fit:
    recipe, preview = evaluation.recipe, evaluation.preview
    run, sequences = preview.run, (preview.num_sequences or {}).get(TRAIN, 0)
    if run is None or not sequences:
        drops = [drop for source in preview.sources for drop in source.drops]
        return _fallback_fit(recipe, f"no row becomes a sequence: {drops[0].example if drops else 'there are none'}")
    per_pack = sequences / run.num_packs
    packs = _packs_per_step(run, per_pack, is_sample=preview.is_sample)
    if limits_of(recipe).takes_one_pack:
        packs = run.smallest_batch
    batch = {"tokens_per_step": packs * run.tokens_per_pack}
    values = {"batch": batch, **_balance_that_works(recipe, batch)}
    about = "about " if preview.is_sample else ""
    rows = f"{about}{count_text(sum(source.num_rows for source in preview.sources if source.split == TRAIN), 'row')}"
    all_packs = f"{about}{count_text(run.num_packs, 'pack')}"
    noun = "sequence" if recipe.splits_conversations else "conversation"
    conversations = f"about {count_text(round(packs * per_pack), noun)}"
    steps = f"{about}{count_text(-(-run.num_packs // packs), 'step')} an epoch"
    notes = f"{evaluation.words and f'; {evaluation.words}'}{_drops_text(preview)}"
    line = f"{rows}, {all_packs}, {count_text(packs, 'pack')} a step, {steps}{notes}"
    comment = f"{count_text(packs, 'pack')}, {conversations}; {all_packs} in all: {steps}"
    if packs == run.smallest_batch > 1:
        comment += f"; the smallest batch of {packs:,} data-parallel ranks"
    if run.num_packs < packs:
        why = f"a step takes at least {packs:,}, one for each data-parallel rank"
        line = f"{rows}, {all_packs}: training cannot start, {why}. Use fewer GPUs, smaller packs or more data."
        comment = f"{count_text(packs, 'pack')}; training cannot start, the data has {all_packs}"
    return Fit(
        line=line,
        comments={_TOKENS: comment, **evaluation.comments},
        values={**values, **evaluation.values},
        validation_fraction=recipe.data.validation_fraction if recipe.data.validation is None else None,
    )


def _packs_per_step(run: RunLength, per_pack: float, *, is_sample: bool) -> int:
    unit = run.smallest_batch
    nearest = int(_USUAL_SEQUENCES / per_pack / unit + 0.5) * unit
    maximum = int(run.num_packs * (_SURE_SHARE if is_sample else 1) / _LEAST_STEPS)
    return max(min(nearest, floor_to_multiple(maximum, unit)), unit)


def _balance_that_works(recipe: SFTRecipe, batch: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the packing without its balance, if it cannot be had with a batch."""
    try:
        balance_for(recipe.override({f"batch.{name}": value for name, value in batch.items()}))
    except ConfigError:
        return {"packing": {"balance": {"kind": "none"}}}
    return {}


def _drops_text(preview: Preview) -> str:
    num_dropped = sum(drop.num_rows for source in preview.sources for drop in source.drops)
    num_read = sum(source.num_rows_read for source in preview.sources)
    return (
        f"; {num_dropped:,} of {num_read:,} rows read are dropped, `bridgepack preview` says why" if num_dropped else ""
    )
