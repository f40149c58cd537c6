"""Attempts to read rows: each candidate with the rows that it fits, and which of them read the most."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bridgepack.config.layouts.candidates import Candidate, Columns, Fit
from bridgepack.config.layouts.contents import Contents
from bridgepack.config.layouts.copies import ends_with_answer, is_repeated, without_second_thought
from bridgepack.config.layouts.forms import Form, Profile, profile_of
from bridgepack.config.recipe.layout import columns_of

#: End of a path to the first item of a list.
_FIRST = ".0"


@dataclass(frozen=True, slots=True)
class Sample:
    """Rows and what is derived from them."""

    rows: Sequence[Mapping[str, Any]]
    places: Sequence[str]  #: the rows' names in messages
    profiles: Sequence[Profile]
    counts: Counter[Profile] = field(default_factory=Counter)  #: profile -> its rows, of those that are not empty

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Any]], places: Sequence[str]) -> "Sample":
        """Return a sample of rows; without `places` they are numbered."""
        profiles = [*map(profile_of, rows)]
        names = places or [f"row {number}" for number in range(1, len(rows) + 1)]
        return cls(rows, names, profiles, Counter(profile for profile in profiles if profile.forms))

    def columns(self) -> Columns:
        """Return the columns of all rows."""
        forms: dict[str, frozenset[Form]] = {str(name): frozenset() for row in self.rows for name in row}
        for profile in self.counts:
            for name, own_forms in profile.forms:
                forms[name] |= own_forms
        together = {(a, b) for profile in self.counts for a, _ in profile.forms for b, _ in profile.forms if a != b}
        switches = {
            name: frozenset(row[name] for row in self.rows if isinstance(row.get(name), str))
            for name, own_forms in forms.items()
            if Form.SWITCH in own_forms
        }
        return Columns(forms=forms, together=frozenset(together), switches=switches)

    def text_columns(self) -> frozenset[str]:
        """Return the columns that hold text or token ids in any row."""
        return frozenset(name for profile in self.counts for name in profile.content_columns)

    def contents(self) -> dict[str, set[Contents]]:
        """Return column -> what its values hold."""
        contents: dict[str, set[Contents]] = {}
        for profile in self.counts:
            for name, kind in profile.contents:
                contents.setdefault(name, set()).add(kind)
        return contents


@dataclass(frozen=True, kw_only=True, slots=True)
class Attempt:
    """A candidate and the rows that it fits."""

    candidate: Candidate
    repeated_columns: frozenset[str]  #: columns whose text stands in those that it reads
    fits: Mapping[Profile, Fit]
    num_fits: int
    num_lacks: int  #: rows that have nothing else, but not all that they should
    covered_columns: frozenset[str]  #: columns with content that it reads or that need not be read

    def is_worse(self, rival: "Attempt") -> bool:
        """Return whether another candidate reads more, or as much and is more special."""
        rival_entry, entry = rival.candidate.entry, self.candidate.entry
        is_general = entry.name in rival_entry.before or (
            "*" in rival_entry.before and not {"*", rival_entry.name} & {*entry.before}
        )
        is_special = rival_entry.name != entry.name and is_general
        return self.covered_columns < rival.covered_columns or (
            self.covered_columns <= rival.covered_columns and is_special
        )


def attempts_at(sample: Sample, candidates: Iterable[Candidate]) -> list[Attempt]:
    """Return an attempt for each candidate."""
    columns = sample.columns()
    return [_attempt(without_second_thought(candidate, columns, sample.rows), sample) for candidate in candidates]


def _attempt(candidate: Candidate, sample: Sample) -> Attempt:
    contents = sample.text_columns()
    repeated_columns = frozenset(
        name for name in contents - candidate.known_columns if is_repeated(name, candidate, sample.rows)
    )
    if repeated_columns and ends_with_answer(candidate, sample.rows):
        fits: dict[Profile, Fit] = dict.fromkeys(sample.counts, "other")  # the question is a copy of the whole row
    else:
        fits = {profile: candidate.fit(profile, repeated_columns) for profile in sample.counts}
    return Attempt(
        candidate=candidate,
        repeated_columns=repeated_columns,
        fits=fits,
        num_fits=sum(sample.counts[profile] for profile, fit in fits.items() if fit == "fits"),
        num_lacks=sum(sample.counts[profile] for profile, fit in fits.items() if fit == "lacks"),
        covered_columns=contents & (candidate.known_columns | repeated_columns)
        if not candidate.entry.covers_all
        else contents,
    )


def best_of(attempts: Sequence[Attempt]) -> list[Attempt]:
    """Return the attempts that no other is better than, one for each way of reading: that with most marks."""
    best = [attempt for attempt in attempts if not any(attempt.is_worse(rival) for rival in attempts)]
    groups: dict[str, list[Attempt]] = {}
    for attempt in best:
        reading = attempt.candidate.reading or attempt.candidate.entry.name
        groups.setdefault(repr(reading), []).append(attempt)
    return [max(group, key=lambda attempt: len(attempt.candidate.entry.marks)) for group in groups.values()]


def layout_of(attempt: Attempt, sample: Sample, *, ignore: Sequence[str] = (), ignores_identifiers: bool = True) -> Any:
    """Return the layout that ignores what is repeated, `ignore`, and identifiers; None if its rows are refused."""
    candidate = attempt.candidate
    if candidate.reading is None:
        return None
    repeats = {*candidate.ignored_columns, *candidate.entry.ignores, *attempt.repeated_columns}
    read = candidate.read - {*candidate.ignored_columns}
    names = [
        name
        for name, kinds in sample.contents().items()
        if name not in read and name and ((ignores_identifiers and kinds == {"identifier"}) or name in repeats)
    ]
    fields = [name for name in candidate.entry.ignores if name.startswith("messages.") and name not in ignore]
    # of a list of answers, an entry says that only the first is trained
    firsts = [column.path for column in columns_of(candidate.layout(())) if column.path.endswith(_FIRST)]
    items = [f"{path.removesuffix(_FIRST)}.*" for path in firsts]
    return candidate.layout([*dict.fromkeys([*names, *ignore, *fields, *items])])
