"""What an upgrade of Megatron-Bridge changes for a run: findings, names and values of settings, and habits.

Everything follows from two `HostRelease`s: the rules judge the run for both, its settings are read with the facts of
both, and each habit that differs is told in the words of `HABITS`.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from bridgepack.checking.options import CheckOptions
from bridgepack.checking.settings import settings_of
from bridgepack.checking.words import UserTerms
from bridgepack.config.errors import quote
from bridgepack.host import HostRelease
from bridgepack.host.names import name_in
from bridgepack.records import TRAIN, VALIDATION, Finding, Upgrade, UpgradeChange
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.judge import judge_run
from bridgepack.rules.judging.judgement import Judgement
from bridgepack.rules.judging.subject import SPECS, Run
from bridgepack.rules.registry import RUN_RULES
from bridgepack.rules.run.checkpoints import is_from_parts
from bridgepack.rules.run.data.packed_paths import explicit_paths
from bridgepack.rules.run.data.supply import num_packs
from bridgepack.rules.run.reading import truths

#: Sections that say how a run is written down and restarted, not what it trains.
_BOOKKEEPING = ("logger", "profiling", "tensor_inspect", "straggler", "nvrx_straggler", "ft", "inprocess_restart")


def upgrade_on(run: Run, judgement: Judgement, terms: UserTerms, options: CheckOptions) -> Upgrade | None:
    """Return what the release that was asked for does otherwise than that of the settings, or None if it is no later.

    Args:
        run: the run, for the release that was asked for.
        judgement: what the rules on runs say of it.
        terms: the user's terms for its settings.
        options: options of the check.
    """
    if options.bridge_version is None:
        return None
    before = settings_of(terms.target, replace(options, bridge_version=None))
    assert before is not None
    before = replace(run, config=before.config, versions=before.versions)
    old, new = before.versions.release, run.versions.release
    if not is_later(new, old) or _is_written_for(new, old, run):
        return None
    earlier = judge_run(before, options.select_rules(RUN_RULES))
    findings, renames = _findings(earlier, judgement, terms), _iter_renames(before, run, terms)
    changes = (*findings, *renames, *_values(before, run, terms), *_habits(before, run))
    return Upgrade(before=old.name, after=new.name, changes=changes)


def is_later(release: HostRelease, reference: HostRelease) -> bool:
    """Return whether a release is later than another."""
    return _series(release) > _series(reference)


def _is_written_for(release: HostRelease, earlier: HostRelease, run: Run) -> bool:
    """Return whether a file has a name that only this release of the two has, of a setting or of the package."""
    if release.root != earlier.root and run.config.package == release.root:
        return True
    names = {ours: theirs for ours, theirs in release.renames.items() if earlier.renames.get(ours) != theirs}
    return any(run.config.user_paths.get(ours) == theirs for ours, theirs in names.items())


def _series(release: HostRelease) -> tuple[int, ...]:
    return tuple(map(int, release.name.split(".")))


def _findings(before: Judgement, after: Judgement, terms: UserTerms) -> Iterator[UpgradeChange]:
    """Yield findings of one release alone; a rule that one of them cannot judge tells nothing."""
    silent = {rule.code for judgement in (before, after) for rule in judgement.rules_skipped}
    silent |= set(terms.config.ignored if terms.config else ())
    for judgement, counterpart, is_new in ((before, after, False), (after, before, True)):
        codes = {finding.code for finding in counterpart.findings}
        for finding in judgement.findings:
            if finding.code not in codes | silent:
                words = _words(terms.of_finding(finding))
                sides = ("", words) if is_new else (words, "")
                rule = f"{finding.code} {finding.name}"
                yield UpgradeChange(kind="finding", what=rule, before=sides[0], after=sides[1])


def _words(finding: Finding) -> str:
    return f"{finding.severity} at {finding.where}: {finding.found}"


def _iter_renames(before: Run, after: Run, terms: UserTerms) -> Iterator[UpgradeChange]:
    """Yield settings of the user that have another name, and the package; what nobody stated follows by itself."""
    old, new = before.versions.release, after.versions.release
    if old.root != new.root:
        yield UpgradeChange(kind="renamed", what="the package of imports", before=old.root, after=new.root)
    for path in dict.fromkeys((*old.renames, *new.renames)):
        names = name_in(old, path), name_in(new, path)
        if names[0] != names[1] and before.is_set(path):
            yield UpgradeChange(kind="renamed", what=terms.of_path(path), before=names[0], after=names[1])


def _values(before: Run, after: Run, terms: UserTerms) -> Iterator[UpgradeChange]:
    """Yield settings that both releases have with different values: of the base recipe, or of a class's default."""
    old, new = (dict(_leaves(run.loaded_config.values)) for run in (before, after))
    for path, value in old.items():
        if path in new and new[path] != value and not path.startswith(_BOOKKEEPING):
            sides = quote(value), quote(new[path])
            yield UpgradeChange(kind="value", what=terms.of_path(path), before=sides[0], after=sides[1])


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (dotted path, value) of settings; an enum and a function are values, classes of sections are none."""
    for name, value in values.items():
        path = f"{above}{name}"
        if isinstance(value, Mapping) and not {"_name_", "_call_"} & value.keys():
            yield from _leaves(value, f"{path}.")
        elif name != "_target_":
            yield path, value


def _habits(before: Run, after: Run) -> Iterator[UpgradeChange]:
    """Yield the habits that differ and concern this run."""
    old, new = before.versions.release, after.versions.release
    for field in fields(HostRelease):
        sides = getattr(old, field.name), getattr(new, field.name)
        if field.name == "is_known" or not isinstance(sides[0], bool) or sides[0] == sides[1]:
            continue
        habit = HABITS[field.name]
        words = habit.words(after)
        if words is not None:
            yield UpgradeChange(kind="habit", what=habit.title, before=words[sides[0]], after=words[sides[1]])


@dataclass(frozen=True, kw_only=True, slots=True)
class Habit:
    """A habit of the host in a user's words: without it, and with it."""

    title: str
    without: str
    with_it: str
    concerns: Callable[[Run], bool] = lambda _: True  #: whether it makes a difference to a run
    #: the same in numbers of a run's packs, or None where they show no difference
    in_numbers: Callable[[Run], tuple[str, str] | None] | None = None

    def words(self, run: Run) -> tuple[str, str] | None:
        """Return the words without the habit and with it, or None if it does not concern the run."""
        plain = self.without, self.with_it
        try:
            if not self.concerns(run):
                return None
            return plain if self.in_numbers is None else self.in_numbers(run)
        except CannotJudgeError:  # without packs
            return plain


def _trained_labels(run: Run) -> tuple[str, str] | None:
    counts = [(truth.num_after_eos, truth.num_trained_tokens) for truth in truths(run)]
    num_after_eos, num_trained = (sum(column) for column in zip(*counts, strict=True))
    if not num_after_eos:
        return None
    return f"trains {num_trained - num_after_eos:,} labels of the packs", f"trains {num_trained:,}"


def _evaluation_batches(run: Run) -> tuple[str, str] | None:
    packs, batch = num_packs(run, VALIDATION), run.eval_global_batch_size
    if batch < 1 or packs % batch == 0:
        return None
    return f"{packs // batch} batches of {batch} in {packs} packs", f"{packs // batch + 1}, the last filled up"


def _has_uneven_rest(run: Run) -> bool:
    is_single = run.text_or_none("dataset.dataloader_type") == "single"
    if not (run.packs_offline and is_single and run.stated_value("dataset.drop_last") is False):
        return False
    return num_packs(run, TRAIN) % (run.micro_batch_size * run.data_parallel_size) != 0


def _packs_for_experts(run: Run) -> bool:
    try:
        return run.is_packed and run.is_mixture_of_experts
    except CannotJudgeError:  # no model is known
        return False


def _recomputes_hybrid_under_adapters(run: Run) -> bool:
    is_recomputed = run.stated_value("model.recompute_granularity") is not None
    return (
        is_recomputed and bool(run.stated_value("model.hybrid_layer_pattern")) and run.stated_value("peft") is not None
    )


def _is_read_by_host(run: Run) -> bool:
    """Return whether the host reads conversations itself, and not packs on disk."""
    return not run.packs_offline


def _may_trim_thoughts(run: Run) -> bool:
    """Return whether the host masks chats itself, and does not train all of them."""
    if run.packs_offline or run.class_name("dataset.preprocessing") != "ChatSFTPreprocessingConfig":
        return False
    return str(run.value("dataset.preprocessing.loss_mode")) != "full"


def _completes_prompts(run: Run) -> bool:
    """Return whether the host makes rows of prompts and completions itself, and trains the completions alone."""
    if run.class_name("dataset.preprocessing") != "PromptCompletionSFTPreprocessingConfig":
        return False
    path = f"{SPECS}.packed_train_data_path"  # of a recipe without packs it is not stated
    reads_packs = run.packs_offline and not (run.is_stated(path) and run.value(path) is None)
    return not reads_packs and run.value("dataset.preprocessing.loss_mode") == "completion"


#: Field of `HostRelease` -> the habit.
HABITS: Mapping[str, Habit] = {
    "trains_after_eos": Habit(
        title="labels after an EOS",
        without="not trained",
        with_it="trained where the rows' mask says so (--artifact counts them)",
        concerns=lambda run: run.packs_offline,
        in_numbers=_trained_labels,
    ),
    "gives_padding_mask": Habit(
        title="padding in packs with experts",
        without="counts in the router's losses and the experts' loads",
        with_it="is left out of them",
        concerns=_packs_for_experts,
    ),
    "expands_brackets": Habit(
        title="a path to packs with brackets and without * and ?",
        without="is a file's name",
        with_it="is a pattern, unless a file has that name",
        concerns=lambda run: any(path.has_brackets_alone for path in explicit_paths(run)),
    ),
    "frees_hybrid_inputs": Habit(
        title="adapters in recomputed layers of a hybrid model",
        without="get no gradient up to the first layer that is not recomputed",
        with_it="get a gradient where recompute_method is set",
        concerns=_recomputes_hybrid_under_adapters,
    ),
    "empties_null_content": Habit(
        title="turns without content",
        without="reach the template as null",
        with_it="reach the template as an empty text",
        concerns=_is_read_by_host,
    ),
    "parses_call_arguments": Habit(
        title="arguments of calls as JSON text",
        without="reach the template as text",
        with_it="reach the template as objects",
        concerns=_is_read_by_host,
    ),
    "trims_thought_openings": Habit(
        title="<think></think>, or <think> with a line end, at the start of an answer, in templates such as Nemotron's",
        without="is trained",
        with_it="is not trained; packs with preprocessing.mask_generation_prompt: true train the same in both",
        concerns=_may_trim_thoughts,
    ),
    "refuses_untrained_completions": Habit(
        title="completions without a trained token, such as one that is cut away",
        without="reach the model, and nothing of them is trained",
        with_it="stop the run when it reads them; packs that bridgepack builds have no such rows",
        concerns=_completes_prompts,
    ),
    "loads_models_from_parts": Habit(
        title="checkpoints that the release saves of a model that is built from parts, such as Llama",
        without="cannot be loaded again, neither to go on nor to start from",
        with_it="can be loaded again",
        concerns=is_from_parts,
    ),
    "keeps_last_evaluation_batch": Habit(
        title="validation packs that fill no batch",
        without="left out",
        with_it="read",
        concerns=lambda run: run.packs_offline and run.evaluates,
        in_numbers=_evaluation_batches,
    ),
    "refuses_uneven_rest": Habit(
        title="packs that data-parallel ranks cannot share evenly, with dataloader_type single and drop_last false",
        without="training stops when it reads them",
        with_it="training does not start",
        concerns=_has_uneven_rest,
    ),
}
