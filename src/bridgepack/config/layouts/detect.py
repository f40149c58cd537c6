"""Detects the layout of some rows: the entry that reads the most of them, or an error with what fits."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridgepack.config.layouts import sayings
from bridgepack.config.layouts.attempts import Attempt, Sample, attempts_at, best_of, layout_of
from bridgepack.config.layouts.candidates import candidates_of
from bridgepack.config.layouts.contents import FLAGS, Contents, holds, is_flag, plain_name
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.public import DETECTED_LAYOUTS, PUBLIC_LAYOUTS
from bridgepack.config.layouts.roles import renamed_roles, unknown_roles
from bridgepack.config.layouts.turns import TurnFields, is_obeyed, turn_fields
from bridgepack.config.recipe.layout import AnyLayout
from bridgepack.errors import ConfigError

#: Share of the rows that a layout must fit; the others are named.
LEAST_SHARE = 0.99


@dataclass(frozen=True, kw_only=True, slots=True)
class Unread:
    """A column, or a field of turns as `messages.NAME`, that a layout does not read."""

    name: str
    holds: Contents
    num_rows: int  #: rows that have it
    example: str  #: one of its values


@dataclass(frozen=True, kw_only=True, slots=True)
class Detection:
    """The layout of some rows."""

    entry: PublicLayout
    layout: AnyLayout
    num_rows: int  #: rows that were looked at
    why: tuple[str, ...]  #: what tells it, and what else is to be known, in words
    unread: tuple[Unread, ...]  #: text and flags that nobody reads
    has_loss_flags: bool  #: whether turns or rows say 0 or 1, true or false, of their training
    more: tuple[AnyLayout, ...] = ()  #: layouts of the rows that the first does not read

    @property
    def layouts(self) -> tuple[AnyLayout, ...]:
        """All of its layouts; a row is read by the first that fits it."""
        return (self.layout, *self.more)


def entries_named(name: str) -> tuple[PublicLayout, ...]:
    """Return the entries with a name, or with a data set of that name; most names have one.

    Raises:
        ConfigError: there is none.
    """
    plain = name.lower().replace("-", "_")
    entries = tuple(entry for entry in PUBLIC_LAYOUTS if plain in entry.all_names)
    if not entries:
        raise ConfigError(
            sayings.unknown_name(name, [layout_name for entry in PUBLIC_LAYOUTS for layout_name in entry.all_names])
        )
    return entries


def detect(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str | None = None,
    data_name: str = "the data",
    places: Sequence[str] = (),
) -> Detection:
    """Return the layout of rows of one source, of which at least one is not empty.

    `name` chooses an entry; `data_name` names the data in messages, and `places` each row.

    Raises:
        ConfigError: no layout fits, several fit equally, the rows have several shapes, or their layout is refused.
    """
    entries = DETECTED_LAYOUTS if name is None else entries_named(name)
    sample = Sample.of(rows, places)
    columns = sample.columns()
    attempts = attempts_at(sample, (candidate for entry in entries for candidate in candidates_of(entry, columns)))
    if name is not None and entries[0].layout is None:
        raise ConfigError(sayings.refused_layout(data_name, entries[0]))
    least = (LEAST_SHARE if name is None else 0.0) * sample.counts.total()
    fitting = [attempt for attempt in attempts if attempt.num_fits and attempt.num_fits + attempt.num_lacks >= least]
    if not fitting:
        raise ConfigError(_nothing_fits(attempts, sample, data_name, name))
    best = best_of(fitting)
    if name is not None:  # the layouts of one name stand in the order in which they are to be taken
        best = [attempt for attempt in best if attempt.covered_columns >= sample.text_columns()][:1] or best
    if len(best) > 1 and any(attempt.candidate.reading for attempt in best):
        raise ConfigError(sayings.equal_fits(data_name, options_of(best, sample), columns.forms))
    if best[0].candidate.reading is None:
        raise ConfigError(sayings.refused_layout(data_name, best[0].candidate.entry))
    return detection_of(best[0], sample, is_chosen=name is not None)


def options_of(attempts: Sequence[Attempt], sample: Sample) -> list[tuple[str, AnyLayout | None, frozenset[str]]]:
    """Return the names, the layouts and the known columns of attempts, for messages."""
    return [
        (attempt.candidate.entry.name, layout_of(attempt, sample), attempt.candidate.known_columns)
        for attempt in attempts
    ]


def _nothing_fits(attempts: Sequence[Attempt], sample: Sample, data_name: str, name: str | None) -> str:
    values = {str(column): value for row in reversed(sample.rows) for column, value in row.items()}
    kinds = {column: contents for profile in sample.counts for column, contents in profile.contents}
    columns = {column: sayings.kind_of(contents, values[column]) for column, contents in kinds.items()}
    if name is not None:
        return sayings.lacks_columns(data_name, entries_named(name), columns)
    shapes: Counter[str] = Counter()
    examples: dict[str, str] = {}
    entries: dict[str, PublicLayout] = {}
    by_reach = sorted(attempts, key=lambda attempt: (-len(attempt.covered_columns), -attempt.num_fits))
    for profile, place in zip(sample.profiles, sample.places, strict=True):
        if not profile.forms:
            continue
        fitting = (
            attempt for attempt in by_reach if attempt.candidate.fit(profile, attempt.repeated_columns) == "fits"
        )
        attempt = next(fitting, None)
        shape = attempt.candidate.entry.name if attempt is not None else ""
        shapes[shape] += 1
        examples.setdefault(shape, place)
        if attempt is not None and attempt.candidate.reading is None:
            entries[shape] = attempt.candidate.entry
    if entries and entries.keys() >= {*filter(None, shapes)}:  # all that is known of the rows is refused
        return sayings.refused_layout(data_name, entries[max(entries, key=shapes.__getitem__)])
    return (
        sayings.mixed_shapes(data_name, shapes, examples)
        if any(shapes)
        else sayings.unknown_columns(data_name, columns)
    )


def detection_of(attempt: Attempt, sample: Sample, *, is_chosen: bool) -> Detection:
    """Return the layout of an attempt with what is said of it; `is_chosen` by its name."""
    candidate, total = attempt.candidate, sample.counts.total()
    fields = turn_fields(candidate, sample.rows)
    flags = {**_row_flags(attempt, sample), **fields.flags}
    obeys = candidate.is_chat and bool(flags) and all(is_obeyed(name, values) for name, values in flags.items())
    unread = [
        field for field in (*_unread(attempt, sample), *_unread_fields(fields)) if not (obeys and is_flag(field.name))
    ]
    why = [*sayings.reasons(candidate, attempt.repeated_columns, total, is_chosen=is_chosen)]
    if attempt.num_lacks:
        why.append(sayings.lacking(attempt.num_lacks, total, _first(attempt, sample, "lacks")))
    if num_others := total - attempt.num_fits - attempt.num_lacks:
        why.append(sayings.other_shapes(num_others, total, _first(attempt, sample, "other")))
    why += filter(None, [sayings.choice_of_pair([candidate.entry.name], "chat")])
    why += sayings.flags_and_roles(flags if obeys else {}, renamed_roles(fields.roles))
    why += [sayings.unknown_role(name, sample.places[fields.roles[name]]) for name in unknown_roles(fields.roles)]
    turn_fields_ignored = [f"messages.{name}" for name, contents in fields.contents.items() if contents == "identifier"]
    return Detection(
        entry=candidate.entry,
        layout=layout_of(attempt, sample, ignore=turn_fields_ignored),
        num_rows=total,
        why=tuple(why),
        unread=tuple(unread),
        has_loss_flags=obeys,
    )


def _row_flags(attempt: Attempt, sample: Sample) -> dict[str, list[Any]]:
    """Return column about the loss -> its values, for columns that the layout does not read."""
    flags: dict[str, list[Any]] = {}
    for row in sample.rows:
        for name, value in row.items():
            if plain_name(str(name)) in FLAGS and name not in attempt.candidate.known_columns and value is not None:
                flags.setdefault(str(name), []).append(value)
    return flags


def _first(attempt: Attempt, sample: Sample, fit: str) -> str:
    pairs = zip(sample.profiles, sample.places, strict=True)
    return next(
        place
        for profile, place in pairs
        if profile.forms and attempt.candidate.fit(profile, attempt.repeated_columns) == fit
    )


def _unread(attempt: Attempt, sample: Sample) -> Iterator[Unread]:
    read_columns = attempt.candidate.known_columns | attempt.repeated_columns
    values_of_columns: dict[str, dict[Contents, list[Any]]] = {}
    for row in sample.rows:
        for name, value in row.items():
            if str(name) not in read_columns and (contents := holds(str(name), value)) is not None:
                values_of_columns.setdefault(str(name), {}).setdefault(contents, []).append(value)
    reported_contents: tuple[Contents, ...] = ("text", "flag")
    for name, values in values_of_columns.items():
        kind = next((contents_kind for contents_kind in reported_contents if contents_kind in values), None)
        if kind is not None:
            having = values[kind]
            yield Unread(name=name, holds=kind, num_rows=len(having), example=sayings.example(having[0]))


def _unread_fields(fields: TurnFields) -> Iterator[Unread]:
    for name, contents in fields.contents.items():
        if contents != "identifier":
            yield Unread(
                name=f"messages.{name}",
                holds=contents,
                num_rows=fields.num_rows[name],
                example=sayings.example(fields.examples[name]),
            )
