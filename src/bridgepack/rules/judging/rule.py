"""Definition of a rule: a code, a name for the fault, a severity, texts from its docstring, and a check.

Four kinds, by subject: `StructureRule` on raw rows, `RowRule` on rows with valid structure, `ArtifactRule` on the
facts about a whole artifact, `RunRule` on a run: its settings, with its artifact, topology, files and environment.
A rule is a decorated function with its texts in the docstring; `registry` collects them.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from importlib import import_module
from types import MappingProxyType
from typing import Any, ClassVar, TypedDict, Unpack

from bridgepack.records import Change
from bridgepack.records.messages import Message, read_references, say, setting
from bridgepack.rules.judging.facts import ArtifactFacts
from bridgepack.rules.judging.rows import Offenders, Rows
from bridgepack.rules.judging.subject import Run

#: A section begins a line, or follows another one's full stop: `Bad: micro_batch_size 2. Good: micro_batch_size 1.`
_BEGIN = r"(?:^|(?<=\. ))(Why|Bad|Good|Fix|Noticed|Evidence|Source):"
_SECTION = re.compile(rf"{_BEGIN}(.*?)(?={_BEGIN}|\Z)", re.MULTILINE | re.DOTALL)
#: Decorators omit the common prefix of files of the host and of TransformerEngine.
_HOST_FILE, _ENGINE_FILE = re.compile(r"(?<![\w/])(?=(?:bridge|core)/)"), re.compile(r"(?<![\w/])TE/")
#: A reason's first word says what happens -> how a user reads it, as the beginning of a sentence.
_OUTCOMES: Mapping[str, str] = MappingProxyType(
    {
        "Crash or silent": "The run crashes, or goes on without an error",
        "Silent or crash": "The run goes on without an error, or crashes",
        "Crash or hang": "The run crashes or hangs",
        "Crash": "The run crashes",
        "Silent": "Nothing fails",
        "Slow": "The run is slow",
    }
)
_OUTCOME = re.compile(rf"(?:^|(?<=\. ))({'|'.join(_OUTCOMES)})\b")
_CATALOGUE_ID = re.compile(r"\bPS[BC]\d{3}\b")
#: Address of the rules' pages.
RULE_PAGES = "https://bridgepack.readthedocs.io/rules/"


def rule_page(code: str) -> str:
    """Return the address of a rule's page."""
    return f"{RULE_PAGES}{code}/"


class Severity(StrEnum):
    """How bad a finding is: an error makes the check fail, a warning only with `--strict`, advice never."""

    ERROR = "error"
    WARNING = "warning"
    ADVICE = "advice"

    @property
    def rank(self) -> int:
        """Position among severities, worst first."""
        return list(Severity).index(self)


ERROR, WARNING, ADVICE = Severity
#: Frequent values of `noticed` and `evidence`.
VALIDATE = "validate()"
EXECUTED, READ = "executed with the real 0.6.2", "read in the source"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """The fields of every rule."""

    judges: ClassVar[str] = ""  #: its subject, as text

    code: str  #: `BP` and three digits; never reused. `rules.registry` explains the first digits.
    name: str  #: name of the fault, e.g. `pack-exceeds-its-size`.
    severity: Severity  #: severity of its findings
    source: str  #: numbers in the rule catalogue and places in the host's code that it is based on
    summary: str  #: the fault in one sentence
    why: str  #: the consequence, in sentences
    bad: str  #: a small example with the fault
    good: str  #: the same example without the fault
    fix: str  #: what to do
    noticed: str = ""  #: when the host itself notices: `validate()`, `dataset build`, `first step`, `never`, ..
    evidence: str = ""  #: how it is known: executed, read in the source, or a public issue
    #: distribution -> version specifier that it applies to; all versions of other distributions
    versions: Mapping[str, str] = field(default_factory=dict)
    is_fixable: bool = False  #: whether its violations may have changes that fix them
    check: Callable[..., Any]  #: takes the subject and returns the violations

    def __reduce__(self) -> tuple[Callable[[str, str], Any], tuple[str, str]]:
        """Pickle a rule by the module and name of its function."""
        return _rule_at, (self.check.__module__, self.check.__name__)

    @property
    def catalogue_ids(self) -> tuple[str, ...]:
        """Numbers of the rule catalogue in `source`."""
        return tuple(_CATALOGUE_ID.findall(self.source))


def _rule_at(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


@dataclass(frozen=True, kw_only=True, slots=True)
class Violation:
    """One place that breaks a rule: file, pack or field, its value, the allowed values, and changes that fix it.

    Violations of one rule with the same group become one finding. `fix` replaces the rule's own text, where the cure
    can be said with its value. Texts that name settings are messages; what is no message is literal. `where` of a rule
    on a run is the path of a setting, or a `place`.
    """

    where: str
    found: str
    allowed: str
    group: str = ""
    changes: tuple[Change, ...] = ()
    fix: str = ""


Found = Iterable[Violation]
_NOTHING: Any = object()


def wrong(
    where: str,
    actual: str,
    allowed_values: str,
    *,
    group: str = "",
    changes: tuple[Change, ...] = (),
    to: Any = _NOTHING,
    because: str = "",
    needs_repack: bool = False,
    fix: str = "",
) -> Violation:
    """Return a violation at `where`; `to` is the value that fixes this setting, `because` the reason in one line.

    `needs_repack` says whether existing packs must then be built again; `fix` is the cure in words, with its value.
    """
    if to is not _NOTHING:
        changes = change(where, to, because, needs_repack=needs_repack)
    return Violation(where=where, found=actual, allowed=allowed_values, group=group, changes=changes, fix=fix)


def set_to(path: str, value: str) -> Message:
    """Return the fix that sets one setting, of a rule whose own fix is on several."""
    return say("Set {path} to {value}.", path=setting(path), value=value)


def place(text: str) -> Message:
    """Return the place of a violation that is no setting of the host: a file, a split, a package, a recipe's field."""
    return Message(text)


def change(path: str, value: Any, because: str, *, needs_repack: bool = False) -> tuple[Change, ...]:
    """Return a tuple with one safe change, for `Violation.changes`."""
    return (Change(path=path, value=value, why=because, needs_repack=needs_repack),)


class StructureRule(Rule):
    """A rule on raw rows, batch by batch; later rules do not get the rows it reports."""

    judges: ClassVar[str] = "each pack"


class RowRule(Rule):
    """A rule on rows with valid structure, batch by batch."""

    judges: ClassVar[str] = "each pack with valid structure"


class ArtifactRule(Rule):
    """A rule on a whole artifact."""

    judges: ClassVar[str] = "the whole artifact"


Guard = Callable[[Run], object]


@dataclass(frozen=True, kw_only=True, slots=True)
class RunRule(Rule):
    """A rule on a run: its settings, with its topology, artifact, files and environment if given."""

    judges: ClassVar[str] = "the run"

    check: Callable[[Run], Found]  #: yields the violations of a run that passes the guards
    noticed: str = "never."
    evidence: str = f"{READ}."
    #: guards, called in this order; the rule applies to a run if all return true
    when: Guard | tuple[Guard, ...] = ()
    #: code of a rule that reports the same with fewer facts; this finding replaces it
    instead_of: str = ""

    def violations(self, run: Run) -> Found:
        """Return the violations of a run; empty if the rule does not apply to it."""
        guards = self.when if isinstance(self.when, tuple) else (self.when,)
        for guard in guards:  # a loop, because hundreds of rules are asked for each of a plan's candidates
            if not guard(run):
                return ()
        return self.check(run)


class RuleFacts(TypedDict, total=False):
    """Optional arguments of a decorator, which become fields of `Rule` and `RunRule`.

    `noticed` and `evidence` have no full stop. Texts too long for the decorator are sections of the docstring.
    """

    noticed: str
    evidence: str
    versions: Mapping[str, str]
    when: Guard | tuple[Guard, ...]
    instead_of: str


@dataclass(frozen=True)
class Decorator[Check, Made]:
    """Turns a function and its docstring into a rule."""

    kind: Callable[..., Made]

    def __call__(
        self, code: str, severity: Severity, source: str = "", **facts: Unpack[RuleFacts]
    ) -> Callable[[Check], Made]:
        """Return the decorator for the function."""
        return lambda check: self.kind(check=check, **_rule_fields(check, code, severity, source, facts))


def _rule_fields(check: Any, code: str, severity: Severity, source: str, facts: RuleFacts) -> dict[str, Any]:
    """Return the fields of a rule from its decorator, its function's name and its docstring.

    The docstring's first line is the summary; `Why`, `Bad`, `Good`, `Fix`, `Noticed`, `Evidence` and a
    `Source` that is too long for the decorator are sections. `Why` begins with what happens, as in `_OUTCOMES`; it may
    be omitted if validate() refuses the run and nothing else happens.
    """
    text = inspect.getdoc(check) or ""
    sections = {match[1].lower(): " ".join(match[2].split()) for match in _SECTION.finditer(text)}
    source = _HOST_FILE.sub("megatron/", sections.get("source", source))
    sections["source"] = _ENGINE_FILE.sub("TransformerEngine 2.17 ", source)
    if facts.get("noticed") == VALIDATE:
        sections.setdefault("why", "Crash at start: Megatron-Bridge's validate() refuses these settings.")
    if "why" in sections:
        sections["why"] = _OUTCOME.sub(lambda outcome: _OUTCOMES[outcome[1]], sections["why"])
    sentences: dict[str, str] = {name: f"{facts[name]}." for name in ("noticed", "evidence") if name in facts}
    return {
        "code": code,
        "name": check.__name__.replace("_", "-"),
        "severity": severity,
        "summary": text.partition("\n")[0],
        **dict.fromkeys(("why", "bad", "good", "fix"), ""),
        **sections,
        **{name: read_references(sections[name]) for name in ("why", "fix") if name in sections},
        **facts,
        **sentences,
    }


structure_rule = Decorator[Callable[[Rows], Offenders | None], StructureRule](StructureRule)
row_rule = Decorator[Callable[[Rows], Offenders | None], RowRule](RowRule)
artifact_rule = Decorator[Callable[[ArtifactFacts], Found], ArtifactRule](ArtifactRule)
#: Decorators of a rule on runs; the violations of a fixable one may have changes that fix them.
rule = Decorator[Callable[[Run], Found], RunRule](RunRule)
fixable_rule = Decorator[Callable[[Run], Found], RunRule](partial(RunRule, is_fixable=True))
