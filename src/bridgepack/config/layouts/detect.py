"""Detects the layout of some rows: the entry that reads the most of them, or an error with what fits."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridgepack.config.layouts import sayings
from bridgepack.config.layouts.candidates import Candidate, Columns, Fit, candidates_of
from bridgepack.config.layouts.contents import FLAGS, Contents, holds, plain_name
from bridgepack.config.layouts.copies import ends_with_answer, is_repeated, without_second_thought
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.forms import Form, Profile, profile_of
from bridgepack.config.layouts.public import PUBLIC_LAYOUTS
from bridgepack.config.layouts.roles import aliases_for
from bridgepack.config.layouts.turns import TurnFields, is_obeyed, turn_fields
from bridgepack.config.recipe.layout import AnyLayout
from bridgepack.errors import ConfigError

#: Share of the rows that a layout must fit; the others are named.
_LEAST_SHARE = 0.99


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
    role_aliases: Mapping[str, str]  #: names of roles in the turns that need an alias -> role


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows and what is derived from them."""

    rows: Sequence[Mapping[str, Any]]
    places: Sequence[str]  #: the rows' names in messages
    profiles: Sequence[Profile]
    counts: Counter[Profile] = field(default_factory=Counter)

    def columns(self) -> Columns:
        """Return the columns of all rows."""
        forms: dict[str, frozenset[Form]] = {str(name): frozenset() for row in self.rows for name in row}
        for profile in self.counts:
            for name, found in profile.forms:
                forms[name] |= found
        together = {(a, b) for profile in self.counts for a, _ in profile.forms for b, _ in profile.forms if a != b}
        switches = {
            name: frozenset(row[name] for row in self.rows if isinstance(row.get(name), str))
            for name, found in forms.items()
            if Form.SWITCH in found
        }
        return Columns(forms=forms, together=frozenset(together), switches=switches)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Tried:
    """A candidate and the rows that it fits."""

    candidate: Candidate
    repeated: frozenset[str]  #: columns whose text stands in those that it reads
    num_fits: int
    num_lacks: int  #: rows that have nothing else, but not all that they should
    covered: frozenset[str]  #: columns with content that it reads or that need not be read

    def is_worse(self, other: "_Tried") -> bool:
        """Return whether another candidate reads more, or as much and is more special."""
        before, name = other.candidate.entry.before, self.candidate.entry.name
        is_special = other.candidate.entry.name != name and ("*" in before or name in before)
        return self.covered < other.covered or (self.covered <= other.covered and is_special)


def entry_named(name: str) -> PublicLayout:
    """Return the entry with a name.

    Raises:
        ConfigError: there is none.
    """
    plain = name.lower().replace("-", "_")
    found = next((entry for entry in PUBLIC_LAYOUTS if entry.name == plain), None)
    if found is None:
        raise ConfigError(sayings.unknown_name(name, [entry.name for entry in PUBLIC_LAYOUTS]))
    return found


def detect(
    rows: Sequence[Mapping[str, Any]],
    *,
    name: str | None = None,
    what: str = "the data",
    places: Sequence[str] = (),
) -> Detection:
    """Return the layout of rows of one source, of which at least one is not empty.

    `name` chooses an entry; `what` names the data in messages, and `places` each row.

    Raises:
        ConfigError: no layout fits, several fit equally, the rows have several shapes, or their layout is refused.
    """
    entries = PUBLIC_LAYOUTS if name is None else (entry_named(name),)
    seen = _Rows(rows, places or [f"row {number}" for number in range(1, len(rows) + 1)], [*map(profile_of, rows)])
    seen.counts.update(profile for profile in seen.profiles if profile.forms)
    columns = seen.columns()
    candidates = [one for entry in entries for one in candidates_of(entry, columns)]
    found = [_try(without_second_thought(one, columns, seen.rows), seen) for one in candidates]
    refused = [entry for entry in entries if entry.layout is None and name is not None]
    if refused:
        raise ConfigError(sayings.refused_layout(what, refused[0]))
    least = _LEAST_SHARE if name is None else 0.0
    fitting = [one for one in found if one.num_fits and one.num_fits + one.num_lacks >= least * seen.counts.total()]
    if not fitting:
        raise ConfigError(_nothing_fits(found, seen, what, name))
    best = [one for one in fitting if not any(one.is_worse(other) for other in fitting)]
    alike = _alike(best)
    if len(alike) > 1 and any(one.candidate.reading for one in alike):
        options = [(one.candidate.entry.name, _layout(one, seen, []), one.candidate.known) for one in alike]
        raise ConfigError(sayings.equal_fits(what, options, columns.forms))
    chosen = alike[0]
    if chosen.candidate.reading is None:
        raise ConfigError(sayings.refused_layout(what, chosen.candidate.entry))
    return _detection(chosen, seen, is_chosen=name is not None)


def _try(candidate: Candidate, seen: _Rows) -> _Tried:
    repeated = frozenset(
        name
        for name in {name for profile in seen.counts for name in profile.content_columns} - candidate.known
        if is_repeated(name, candidate, seen.rows)
    )
    if repeated and ends_with_answer(candidate, seen.rows):
        fits: dict[Profile, Fit] = dict.fromkeys(seen.counts, "other")  # the question is a copy of the whole row
    else:
        fits = {profile: candidate.fit(profile, repeated) for profile in seen.counts}
    reads = [profile for profile, fit in fits.items() if fit != "other"]
    return _Tried(
        candidate=candidate,
        repeated=repeated,
        num_fits=sum(seen.counts[profile] for profile in reads if fits[profile] == "fits"),
        num_lacks=sum(seen.counts[profile] for profile in reads if fits[profile] == "lacks"),
        covered=frozenset(name for profile in seen.counts for name in profile.content_columns)
        & (candidate.known | repeated),
    )


def _alike(best: Sequence[_Tried]) -> list[_Tried]:
    """Return one candidate for each way of reading: the one with most marks, of these the first."""
    groups: list[list[_Tried]] = []
    for one in best:
        reading = one.candidate.reading or one.candidate.entry.name
        group = next(
            (group for group in groups if (group[0].candidate.reading or group[0].candidate.entry.name) == reading),
            None,
        )
        if group is None:
            groups.append([one])
        else:
            group.append(one)
    return [max(group, key=lambda one: len(one.candidate.entry.marks)) for group in groups]


def _nothing_fits(found: Sequence[_Tried], seen: _Rows, what: str, name: str | None) -> str:
    values = {str(column): value for row in reversed(seen.rows) for column, value in row.items()}
    held = {column: kind for profile in seen.counts for column, kind in profile.contents}
    columns = {column: sayings.kind_of(kind, values[column]) for column, kind in held.items()}
    if name is not None:
        return sayings.lacks_columns(what, entry_named(name), columns)
    shapes: Counter[str] = Counter()
    examples: dict[str, str] = {}
    ordered = sorted(found, key=lambda one: (-len(one.covered), -one.num_fits))
    for profile, place in zip(seen.profiles, seen.places, strict=True):
        if not profile.forms:
            continue
        fitting = (one for one in ordered if one.candidate.fit(profile, one.repeated) == "fits")
        shape = next((one.candidate.entry.name for one in fitting), "")
        shapes[shape] += 1
        examples.setdefault(shape, place)
    return sayings.mixed_shapes(what, shapes, examples) if any(shapes) else sayings.unknown_columns(what, columns)


def _detection(chosen: _Tried, seen: _Rows, *, is_chosen: bool) -> Detection:
    candidate, total = chosen.candidate, seen.counts.total()
    fields = turn_fields(candidate, seen.rows)
    flags = {**_row_flags(chosen, seen), **fields.flags}
    obeys = candidate.is_chat and bool(flags) and all(is_obeyed(name, values) for name, values in flags.items())
    unread = [one for one in (*_unread(chosen, seen), *_unread_fields(fields)) if one.holds != "flag" or not obeys]
    aliases, unknown = aliases_for(fields.roles)
    why = [*sayings.reasons(candidate, chosen.repeated, total, is_chosen=is_chosen)]
    if chosen.num_lacks:
        why.append(sayings.lacking(chosen.num_lacks, total, _first(chosen, seen, "lacks")))
    if others := total - chosen.num_fits - chosen.num_lacks:
        why.append(sayings.others(others, total, _first(chosen, seen, "other")))
    why += sayings.flags_and_roles(flags if obeys else {}, aliases)
    why += [sayings.unknown_role(name, seen.places[fields.roles[name]]) for name in unknown]
    ignored = [f"messages.{name}" for name, held in fields.held.items() if held == "identifier"]
    return Detection(
        entry=candidate.entry,
        layout=_layout(chosen, seen, ignored),
        num_rows=total,
        why=tuple(why),
        unread=tuple(unread),
        has_loss_flags=obeys,
        role_aliases=aliases,
    )


def _row_flags(chosen: _Tried, seen: _Rows) -> dict[str, list[Any]]:
    """Return column about the loss -> its values, for columns that the layout does not read."""
    found: dict[str, list[Any]] = {}
    for row in seen.rows:
        for name, value in row.items():
            if plain_name(str(name)) in FLAGS and name not in chosen.candidate.known and value is not None:
                found.setdefault(str(name), []).append(value)
    return found


def _first(chosen: _Tried, seen: _Rows, fit: str) -> str:
    pairs = zip(seen.profiles, seen.places, strict=True)
    return next(place for one, place in pairs if one.forms and chosen.candidate.fit(one, chosen.repeated) == fit)


def _layout(chosen: _Tried, seen: _Rows, fields: Sequence[str]) -> Any:
    """Return the layout that ignores identifiers and what is repeated; None if its rows are refused."""
    candidate = chosen.candidate
    if candidate.reading is None:
        return None
    held: dict[str, set[Contents]] = {}
    for profile in seen.counts:
        for name, kind in profile.contents:
            held.setdefault(name, set()).add(kind)
    repeats = {*candidate.ignored, *candidate.entry.ignores, *chosen.repeated}
    read = candidate.read - {*candidate.ignored}
    ignore = [name for name, kinds in held.items() if name not in read and (kinds == {"identifier"} or name in repeats)]
    known = [name for name in candidate.entry.ignores if name.startswith("messages.") and name not in fields]
    return candidate.layout([*dict.fromkeys([*filter(None, ignore), *fields, *known])])


def _unread(chosen: _Tried, seen: _Rows) -> Iterator[Unread]:
    passed = chosen.candidate.known | chosen.repeated
    found: dict[str, dict[Contents, list[Any]]] = {}
    for row in seen.rows:
        for name, value in row.items():
            if str(name) not in passed and (held := holds(str(name), value)) is not None:
                found.setdefault(str(name), {}).setdefault(held, []).append(value)
    told: tuple[Contents, ...] = ("text", "flag")
    for name, values in found.items():
        kind = next((one for one in told if one in values), None)
        if kind is not None:
            having = values[kind]
            yield Unread(name=name, holds=kind, num_rows=len(having), example=sayings.example(having[0]))


def _unread_fields(fields: TurnFields) -> Iterator[Unread]:
    for name, held in fields.held.items():
        if held != "identifier":
            yield Unread(
                name=f"messages.{name}",
                holds=held,
                num_rows=fields.num_rows[name],
                example=sayings.example(fields.examples[name]),
            )
