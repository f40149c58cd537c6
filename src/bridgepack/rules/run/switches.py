"""Rules on the switches of packing: its kind, and the batch sizes it allows."""

from collections.abc import Iterator, Mapping
from typing import Any

from bridgepack.host.names import FORMER_FIELDS, FORMER_MODULES
from bridgepack.host.roots import CANONICAL, below
from bridgepack.records.messages import say, setting
from bridgepack.rules.judging.rule import ERROR, EXECUTED, VALIDATE, WARNING, Found, change, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_TEXT, PACKS_OFFLINE, SPECS, Run


@fixable_rule("BP001", ERROR, "PSB001; bridge/training/config.py:1155", when=PACKS_OFFLINE, noticed=VALIDATE)
def both_kinds_of_packing_on(run: Run) -> Found:
    """Offline packing and packing inside the batch are both on.

    Why: Crash at start: validate() refuses it, because packs cannot be packed again.
    Bad: enable_offline_packing true and enable_in_batch_packing true. Good: enable_offline_packing true alone.
    Fix: Keep offline packing for text, packing inside the batch for vision-language and direct Hugging Face data.
    """
    path = "dataset.enable_in_batch_packing"
    if run.packs_in_batch:
        changes = change(path, False, "text is packed offline") if run.is_text else ()
        yield wrong(path, "true, and enable_offline_packing is true", "one of them", changes=changes)


@rule("BP002", ERROR, "PSB002; bridge/training/config.py:1157, data/builders/gpt_sft.py:194", noticed=VALIDATE)
def packing_switch_without_specs(run: Run) -> Found:
    """Offline packing is on without offline_packing_specs, or off with them.

    Why: Crash at start: validate() refuses the one without the other.
    Bad: enable_offline_packing true, offline_packing_specs null. Good: both set. Fix: Set both, or neither.
    """
    if run.packs_offline and run.value(SPECS) is None:
        yield wrong(SPECS, "none", "PackedSequenceSpecs, because enable_offline_packing is true")
    elif not run.packs_offline and run.is_set(SPECS):
        yield wrong("dataset.enable_offline_packing", "off", "true, because offline_packing_specs is set")


@fixable_rule(
    "BP004",
    ERROR,
    "PSB004; bridge/training/config.py:1466",
    when=PACKS_OFFLINE,
    noticed=VALIDATE,
    evidence=EXECUTED,
)
def micro_batch_size_not_one(run: Run) -> Found:
    """Offline packing is on, but micro_batch_size is larger than 1.

    Why: Crash at start: validate() refuses it, because a pack already is a whole micro batch.
    Bad: enable_offline_packing true, train.micro_batch_size 2. Good: train.micro_batch_size 1.
    Fix: Set {train.micro_batch_size} to 1. To keep the tokens per step, raise
        {dataset.offline_packing_specs.packed_sequence_size & model.seq_length & dataset.seq_length}.
    """
    if run.micro_batch_size > 1:
        why = "a pack is a whole micro batch"
        yield wrong("train.micro_batch_size", str(run.micro_batch_size), "1 with offline packing", to=1, because=why)


@fixable_rule("BP005", ERROR, when=PACKS_OFFLINE, noticed="first evaluation")
def evaluation_micro_batch_size_not_one(run: Run) -> Found:
    """Offline packing is on, but eval_micro_batch_size is larger than 1.

    Why: Crash at the first evaluation, perhaps hours into the run: a forward pass takes the boundaries of one pack.
    Bad: enable_offline_packing true, eval_micro_batch_size 4. Good: eval_micro_batch_size 1 or not set.
    Fix: Set {validation.eval_micro_batch_size} to 1.
    Evidence: shapes executed with the real 0.6.2; the failure read in the source.
    Source: PSB005; bridge/training/utils/packed_seq_utils.py:241, training/gpt_step.py:98
    """
    path = "validation.eval_micro_batch_size"
    size = run.integer_or_none(path)
    if size is not None and size > 1 and run.evaluates:
        yield wrong(path, str(size), "1 with offline packing", to=1, because="a pack is a whole micro batch")


@rule("BP015", ERROR, "PSB015; bridge/data/builders/gpt_sft.py:104")
def attribute_name_of_old_version(run: Run) -> Found:
    """Packing is set under a name that megatron-bridge 0.6 does not read.

    Why: Silent: the dataset config ignores an unknown attribute, so the run trains without packing.
    Bad: dataset.packed_sequence_specs = PackedSequenceSpecs(...). Good: dataset.offline_packing_specs.
    Fix: Use {dataset.enable_offline_packing} with {dataset.offline_packing_specs}, or
        {dataset.enable_in_batch_packing}.
    """
    for name, replacement in FORMER_FIELDS.items():
        if run.stated_value(f"dataset.{name}"):
            yield wrong(f"dataset.{name}", "set", f"{replacement}, which replaced it in 0.6")


@rule("BP016", ERROR, "PSB016; bridge/data/packing/__init__.py", noticed="import")
def import_path_of_old_version(run: Run) -> Found:
    """The settings name classes in a module or a package that this release of megatron-bridge does not have.

    Why: Crash when the saved config is loaded: Python raises ModuleNotFoundError.
    Bad: _target_ megatron.bridge.data.datasets.packed_sequence.PackedSequenceSpecs.
    Good: _target_ megatron.bridge.data.packing.config.PackedSequenceSpecs.
    Fix: Use the class's new module; of another package, write this release's in every _target_, or check with the
        version that saved the config. Evidence: the module is not in 0.6.2.
    """
    root, package = run.versions.release.root, run.config.package
    if package not in (None, root):
        fix = f"Write {root} in place of {package} in every _target_, or check with the version that saved the config."
        yield wrong("model._target_", f"in the package {package}", f"a class of {root}", fix=fix)
    for path, target in _targets(run.config.values):
        module, _, name = below(target, CANONICAL).rpartition(".")
        if module in FORMER_MODULES:
            yield wrong(
                f"{path}._target_", f"{package or root}.{module}.{name}", f"{root}.{FORMER_MODULES[module]}.{name}"
            )


def _targets(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if name == "_target_" and isinstance(value, str):
            yield prefix.rstrip("."), value
        elif isinstance(value, Mapping):
            yield from _targets(value, f"{prefix}{name}.")


@fixable_rule("BP020", WARNING, "PSB020; bridge/training/config.py:1165, data/packing/gpt_sft.py:79", when=IS_TEXT)
def padding_switch_not_literally_true(run: Run) -> Found:
    """pad_to_max_length is set in a wrong place, or with a value that is not the literal true.

    Why: Silent or crash at start: validate() needs the literal true, the collate accepts any non-empty value, and
        GPTSFTDatasetConfig reads it from dataset_kwargs only.
    Bad: dataset_kwargs.pad_to_max_length "true". Good: dataset_kwargs.pad_to_max_length true.
    Fix: Set {dataset.dataset_kwargs.pad_to_max_length} to true.
    Noticed: never, or validate() with pad_cu_seqlens.
    """
    path, value = "dataset.dataset_kwargs.pad_to_max_length", run.dataset_kwargs.get("pad_to_max_length")
    beside = run.stated_value("dataset.pad_to_max_length")
    literal_true = change(path, True, "the host reads the literal true from dataset_kwargs")
    if value and value is not True:
        is_meant = value == 1 or str(value).lower() in ("true", "yes", "on")
        yield wrong(path, repr(value), "true or false", changes=literal_true if is_meant else ())
    elif beside and value is not True:
        changes = literal_true if beside is True and value is None else ()
        yield wrong(
            "dataset.pad_to_max_length",
            f"{beside!r} beside dataset_kwargs",
            say("{path} true", path=setting(path)),
            changes=changes,
        )


@rule("BP021", ERROR, "PSB021; bridge/data/packing/gpt_sft.py:52,279", when=PACKS_OFFLINE)
def boundaries_of_sequences_withheld(run: Run) -> Found:
    """return_cu_seqlen is false, so the dataset does not return the sequence boundaries.

    Why: Silent: every pack becomes one causal sequence. Crash at dataset build if the host has to make the packs.
    Bad: dataset_kwargs.return_cu_seqlen false. Good: return_cu_seqlen is not set. Fix: Remove
        {dataset.dataset_kwargs.return_cu_seqlen}.
    """
    value = run.dataset_kwargs.get("return_cu_seqlen", True)
    if not value:
        yield wrong("dataset.dataset_kwargs.return_cu_seqlen", repr(value), "not set")


@fixable_rule("BP025", ERROR, "PSB025; bridge/data/packing/gpt_sft.py:70", when=PACKS_OFFLINE, noticed="dataset build")
def virtual_tokens_with_packing(run: Run) -> Found:
    """Offline packing is on with virtual tokens for prompt tuning.

    Why: Crash at dataset build: packs do not support virtual tokens.
    Bad: dataset_kwargs.virtual_tokens 20. Good: virtual_tokens 0 or not set.
    Fix: Set {dataset.dataset_kwargs.virtual_tokens} to 0, or turn packing off.
    """
    path, number = "dataset.dataset_kwargs.virtual_tokens", run.dataset_kwargs.get("virtual_tokens")
    if number:
        why = "packs do not support virtual tokens"
        yield wrong(path, repr(number), "0 with offline packing", to=0, because=why)
