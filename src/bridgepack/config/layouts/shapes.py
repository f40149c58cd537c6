"""The layouts that read the rows of a source, of one kind: one, or one for each shape that its rows have."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bridgepack.config.document import stated_values
from bridgepack.config.layouts import sayings
from bridgepack.config.layouts.attempts import Attempt, Sample, attempts_at, best_of, layout_of
from bridgepack.config.layouts.candidates import Candidate, Columns, candidate_with, candidates_of
from bridgepack.config.layouts.detect import LEAST_SHARE, Detection, detection_of, options_of
from bridgepack.config.layouts.entry import PublicLayout
from bridgepack.config.layouts.forms import Form, Profile
from bridgepack.config.layouts.hints import as_prompt_completion
from bridgepack.config.layouts.public import DETECTED_LAYOUTS
from bridgepack.config.recipe.layout import AnyLayout, ChatLayout, TokenizedLayout, columns_of
from bridgepack.errors import ConfigError

#: Slots whose text neither a prompt nor a completion can have.
_OF_TURNS = frozenset({"system", "tools", "switch", "variables", "thoughts"})
#: Columns of tool schemas that conversations may have in rows further on.
_TOOLS = ("tools", "functions", "tool_defs")


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """Rows that one layout reads."""

    name: str  #: name of the layout
    layout: AnyLayout
    num_rows: int  #: rows that it reads, of those that were looked at


def shapes_of(
    rows: Sequence[Any], *, kind: str, data_name: str = "the data", places: Sequence[str] = ()
) -> tuple[Shape, ...]:
    """Return the shapes of rows of one source, the most frequent first; none if all rows are empty.

    Only layouts that become rows of a `kind` are chosen: preprocessing says which. Rows that no layout reads are left
    out, unless all are. `data_name` names the data in messages, and `places` each row.

    Raises:
        ConfigError: no layout of the kind fits a row, several fit equally, or rows are of a layout that is refused.
    """
    sample = Sample.of(rows, places)
    return tuple(
        Shape(
            name=attempt.candidate.entry.name,
            layout=_with_usual_columns(layout_of(attempt, sample, ignores_identifiers=False)),
            num_rows=num_rows,
        )
        for attempt, num_rows in _attempts_with_rows(sample, kind, data_name)
    )


def detect_mixed(rows: Sequence[Any], *, data_name: str, places: Sequence[str]) -> Detection | None:
    """Return the layouts that together read the rows of one source, as conversations; None if one or none does.

    Arguments as of `shapes_of`.
    """
    sample = Sample.of(rows, places)
    try:
        attempts = _attempts_with_rows(sample, "chat", data_name)
    except ConfigError:
        return None
    num_read = sum(num_rows for _, num_rows in attempts)
    if len(attempts) < 2 or num_read < LEAST_SHARE * sample.counts.total():
        return None
    detections = [detection_of(attempt, sample, is_chosen=False) for attempt, _ in attempts]
    shapes = [(detection.entry.name, num_rows) for detection, (_, num_rows) in zip(detections, attempts, strict=True)]
    first = detections[0]
    read_columns = {name for attempt, _ in attempts for name in attempt.candidate.known_columns}
    return replace(
        first,
        more=tuple(detection.layout for detection in detections[1:]),
        why=(sayings.several_layouts(shapes, sample.counts.total()),),
        unread=tuple({u.name: u for d in detections for u in d.unread if u.name not in read_columns}.values()),
        has_loss_flags=any(detection.has_loss_flags for detection in detections),
    )


def _attempts_with_rows(sample: Sample, kind: str, data_name: str) -> list[tuple[Attempt, int]]:
    """Return the attempts that read the rows of a sample, each with its rows: frequent ones first, after wider ones.

    Raises:
        ConfigError: as `shapes_of`.
    """
    columns = sample.columns()
    attempts = attempts_at(sample, _candidates(kind, columns))
    attempts = [attempt for attempt in attempts if attempt.num_fits]
    best = {profile: _best_at(profile, attempts) for profile in sample.counts}
    attempts_with_rows: list[tuple[Attempt, int]] = []
    profiles_unread = [
        profile for profile in sample.counts if any(attempt.candidate.reading for attempt in best[profile])
    ]
    while profiles_unread:
        attempt = _widest(best, profiles_unread, sample, data_name)
        profiles = _profiles_of(attempt, profiles_unread)
        attempts_with_rows.append((attempt, sum(sample.counts[profile] for profile in profiles)))
        profiles_unread = [profile for profile in profiles_unread if profile not in profiles]
    _refuse_others(best, [attempt for attempt, _ in attempts_with_rows], sample, data_name, kind)
    return _wider_first(attempts_with_rows)


def _wider_first(attempts_with_rows: Sequence[tuple[Attempt, int]]) -> list[tuple[Attempt, int]]:
    """Return the attempts with each before those that read a part of its columns, as the first that fits reads a row.

    `messages`, then `messages` and `response` -> `messages` and `response`, then `messages`
    """
    wide_to_narrow: list[tuple[Attempt, int]] = []
    for attempt, num_rows in attempts_with_rows:
        read = attempt.candidate.read
        narrower = (place for place, (later, _) in enumerate(wide_to_narrow) if later.candidate.read < read)
        wide_to_narrow.insert(next(narrower, len(wide_to_narrow)), (attempt, num_rows))
    return wide_to_narrow


def _candidates(kind: str, columns: Columns) -> Iterator[Candidate]:
    """Yield the candidates whose rows are of a kind, and those whose rows are refused."""
    for entry in DETECTED_LAYOUTS:
        own_kind = entry.layout["kind"] if entry.layout is not None else None
        if own_kind in {None, kind}:
            # who says that the rows are documents means their text, whatever else they have
            yield from candidates_of(replace(entry, is_alone=entry.is_alone and own_kind is None), columns)
        elif kind == "prompt_completion" and own_kind == "chat":
            yield from _pairs(candidates_of(entry, columns), columns)


def _pairs(candidates: Iterator[Candidate], columns: Columns) -> Iterator[Candidate]:
    """Yield the candidates that are a question and its answer, as a prompt and a completion."""
    for candidate in candidates:
        slots = {slot: names for slot, names in candidate.columns.items() if slot not in _OF_TURNS}
        plain = candidate_with(candidate.entry, slots, columns)
        layout = as_prompt_completion(plain.layout(()))
        if layout is not None:
            yield replace(plain, reading=layout.model_dump(mode="json", exclude={"ignore"}))


def _best_at(profile: Profile, attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the best attempts at rows of a profile: those that read them fully, else those that lack something."""
    for fit in ("fits", "lacks"):
        fitting = [attempt for attempt in attempts if attempt.fits[profile] == fit]
        if fitting:
            return best_of(fitting)
    return []


def _widest(
    best: Mapping[Profile, list[Attempt]], profiles_unread: Sequence[Profile], sample: Sample, data_name: str
) -> Attempt:
    """Return the attempt that reads most of the rows of some profiles; of several, that of the earliest row.

    Raises:
        ConfigError: others read the same rows, in another way.
    """
    attempts = [
        attempt for profile in profiles_unread for attempt in best[profile] if attempt.candidate.reading is not None
    ]
    profiles = {id(attempt): _profiles_of(attempt, profiles_unread) for attempt in attempts}
    num_rows = {
        key: sum(sample.counts[profile] for profile in profiles_read) for key, profiles_read in profiles.items()
    }
    widest = [attempt for attempt in attempts if num_rows[id(attempt)] == max(num_rows.values())]
    rivals = best_of([attempt for attempt in _unique(widest) if profiles[id(attempt)] == profiles[id(widest[0])]])
    complete = [
        attempt
        for attempt in rivals
        if all(p.content_columns <= attempt.covered_columns for p in profiles[id(attempt)])
    ]
    if len(rivals) > 1 and len(complete) != 1:
        options = options_of(complete or rivals, sample)
        raise ConfigError(sayings.equal_fits(data_name, options, sample.columns().forms, is_new=False))
    return (complete or rivals)[0]


def _unique(attempts: Sequence[Attempt]) -> list[Attempt]:
    return list({id(attempt): attempt for attempt in attempts}.values())


def _profiles_of(attempt: Attempt, profiles: Sequence[Profile]) -> list[Profile]:
    return [profile for profile in profiles if attempt.fits[profile] != "other"]


def _refuse_others(
    best: Mapping[Profile, list[Attempt]], attempts_chosen: Sequence[Attempt], sample: Sample, data_name: str, kind: str
) -> None:
    """Refuse rows that would be read as what they are not, and data of which nothing is read.

    Raises:
        ConfigError: there are such rows.
    """
    for profile, attempts in best.items():
        entries = [attempt.candidate.entry for attempt in attempts if attempt.candidate.reading is None]
        if not entries or len(entries) < len(attempts):
            continue
        is_read = any(attempt.fits[profile] == "fits" for attempt in attempts_chosen) and not _is_in_text(entries[0])
        if is_read or not attempts_chosen or 2 * sample.counts[profile] > sample.counts.total():
            raise ConfigError(sayings.refused_layout(data_name, entries[0], is_new=False))
    if sample.counts and not attempts_chosen:
        other_kinds = dict.fromkeys(
            attempt.candidate.reading["kind"]
            for attempt in attempts_at(sample, _all_candidates(sample.columns()))
            if attempt.num_fits and attempt.candidate.reading is not None
        )
        values = {str(name): value for row in reversed(sample.rows) for name, value in row.items()}
        contents = {
            name: sayings.kind_of(content_kind, values[name])
            for p in sample.counts
            for name, content_kind in p.contents
        }
        raise ConfigError(sayings.no_layout_of_kind(data_name, kind, contents, [*other_kinds]))


def _is_in_text(entry: PublicLayout) -> bool:
    """Return whether the rows of an entry are told by their text alone, which each row's encoder judges, too."""
    return any(entry_slot.forms & {Form.MARKED_TEXT, Form.RENDERED_TEXT} for entry_slot in entry.slots.values())


def _all_candidates(columns: Columns) -> Iterator[Candidate]:
    for entry in DETECTED_LAYOUTS:
        yield from candidates_of(entry, columns)


def _with_usual_columns(layout: AnyLayout) -> AnyLayout:
    """Return a layout that reads optional columns of rows further on, too, under their usual names.

    The system text and the tool schemas of a conversation may begin after the rows that were looked at, and rows of
    token ids may have a mask or labels.
    """
    if isinstance(layout, TokenizedLayout):
        is_usual = layout.loss_mask == "loss_mask" or layout.labels == "labels"
        fields = {name: value for name, value in stated_values(layout).items() if name not in {"loss_mask", "labels"}}
        return TokenizedLayout.model_validate(fields) if is_usual else layout
    if not isinstance(layout, ChatLayout):
        return layout
    read = {column.name for column in columns_of(layout)} | {*layout.ignore}
    changes: dict[str, Any] = {}
    has_system = any(getattr(turn, "role", "") == "system" for turn in layout.messages)
    if not has_system and "system" not in read:
        changes["messages"] = ({"role": "system", "content": "{system}"}, *stated_values(layout.messages))
    if layout.tools is None and not {*_TOOLS} & read:
        changes["tools"] = _TOOLS
    return ChatLayout.model_validate({**stated_values(layout), **changes})
