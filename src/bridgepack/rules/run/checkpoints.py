"""Rules on the checkpoints that a run starts from: whether the host finds them, and takes them."""

import json
import re
import shlex

from bridgepack.host.checkpoints import HF_CONFIG, IMPORT, IMPORT_PAGE, IMPORT_SCRIPT, MARKERS, checkpoint_kind
from bridgepack.records.messages import say
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ADVICE, ERROR, EXECUTED, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import Run
from bridgepack.rules.judging.tokenizers import short_name
from bridgepack.rules.run.reading import fine_tunes

_PRETRAINED, _LOAD = "checkpoint.pretrained_checkpoint", "checkpoint.load"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
#: Folders for weights that people name; `checkpoints/llama` is no id of the hub.
_FOLDERS = frozenset(
    {
        *("artifacts", "checkpoint", "checkpoints", "ckpt", "ckpts", "data", "experiments", "models", "output"),
        *("outputs", "results", "runs", "scratch", "tmp", "weights", "work", "workspace"),
    }
)
#: Stands in a command for a model whose id the settings do not say.
_ANY_MODEL = "MODEL"
_CURRENT = {BRIDGE: ">=0.6"}
_IS_ONE = f"a checkpoint: a folder with one of {', '.join(MARKERS)}, or with {HF_CONFIG} and weights of Hugging Face"


def _local(run: Run, path: str) -> str | None:
    """Return a path that this machine's files can be asked for, or None."""
    text = run.text_or_none(path) if run.is_stated(path) else None
    return None if text is None or "://" in text or not text.strip() else text


@rule("BP860", ERROR, "bridge/training/config.py:591", versions=_CURRENT, noticed="validate()", evidence=EXECUTED)
def pretrained_checkpoint_is_a_hub_id(run: Run) -> Found:
    """checkpoint.pretrained_checkpoint is an id of the Hugging Face hub, and no folder of that name exists.

    Why: Crash at start: validate() refuses a path that does not exist. The host reads a folder; it fetches nothing.
    Bad: pretrained_checkpoint Qwen/Qwen3-8B, and no such folder. Good: the folder that import_ckpt wrote.
    Fix: Import the model with AutoBridge.import_ckpt and set its folder, or check with --no-files if it is elsewhere.
    """
    path = _local(run, _PRETRAINED)
    if path is not None and _is_hub_id(run, path) and not run.require_files().exists(path):
        fix = (
            f"Import the model, {IMPORT.format(path)} of {run.versions.release.root}, and set that folder; or check "
            "with --no-files if such a folder is on another machine."
        )
        yield wrong(_PRETRAINED, f"{path}, an id of the hub; none is fetched", _IS_ONE, fix=fix)


def _is_hub_id(run: Run, path: str) -> bool:
    is_models = run.is_stated("model.hf_model_id") and run.value("model.hf_model_id") == path
    return is_models or (bool(_HUB_ID.fullmatch(path)) and path.partition("/")[0].lower() not in _FOLDERS)


@rule("BP861", WARNING, "bridge/training/config.py:591", versions=_CURRENT, noticed="validate()", evidence=EXECUTED)
def pretrained_checkpoint_not_there(run: Run) -> Found:
    """checkpoint.pretrained_checkpoint does not exist on this machine.

    Why: Crash at start, if the nodes do not have it either: validate() refuses a path that does not exist.
    Bad: pretrained_checkpoint /checkpoints/llama, and no such folder. Good: the folder exists.
    Fix: Correct the path, import the weights as https://bridgepack.readthedocs.io/from-weights/ shows, or check with
        --no-files if they are on another machine.
    """
    path = _local(run, _PRETRAINED)
    if path is not None and not run.require_files().exists(path) and not _is_hub_id(run, path):
        model = _model_to_import(run, path)
        script = IMPORT_SCRIPT.format(
            root=run.versions.release.root, model=json.dumps(model or _ANY_MODEL), folder=json.dumps(path)
        )
        command = shlex.join(["python", "-c", script])
        for_model = "" if model else f", with the model's id on the hub, or its folder, for {_ANY_MODEL}"
        fix = (
            f"Correct the path. Or import the weights, where a GPU is{for_model}: {command} . "
            f"Or check with --no-files if they are on another machine. {IMPORT_PAGE} shows every step."
        )
        yield wrong(_PRETRAINED, f"{path}, which does not exist", _IS_ONE, fix=fix)


def _model_to_import(run: Run, folder: str) -> str | None:
    """Return the id of the model whose weights belong into a folder; None if the settings do not say it.

    The id of the architecture may be that of the base: `Llama-3.1-8B-Instruct` is no folder for `Llama-3.1-8B`.
    """
    tokenizer, model = (
        run.text_or_none(path) if run.is_stated(path) else None
        for path in ("tokenizer.tokenizer_model", "model.hf_model_id")
    )
    name = short_name(folder)
    ids = [text for text in (tokenizer, model) if text and _HUB_ID.fullmatch(text)]
    namesake = next((text for text in ids if short_name(text) == name), None)
    is_variant = model is not None and name.startswith(short_name(model))
    return namesake or (None if is_variant else model)


@rule("BP862", ERROR, versions=_CURRENT, noticed="setup of the model", evidence="executed with the real 0.6.2")
def checkpoint_without_weights(run: Run) -> Found:
    """The folder to start from exists, but the host finds no checkpoint in it.

    Why: Crash after the model is built: the host raises FileNotFoundError, or for adapters says "Invalid pretrained
        checkpoint directory found". {checkpoint.load} takes no model of Hugging Face.
    Bad: pretrained_checkpoint with a tokenizer alone. Good: a folder with latest_checkpointed_iteration.txt.
    Fix: Set the folder that import_ckpt or a training run wrote.
    Source: bridge/training/setup.py:174,614; bridge/training/checkpointing.py:2304,2670
    """
    path = _local(run, _PRETRAINED)
    resumes = _local(run, _LOAD)
    if path is None and resumes is None:
        return
    files = run.require_files()
    is_resumed = resumes is not None and checkpoint_kind(files.names(resumes)) == "megatron"
    is_read = path is not None and files.exists(path) and not (is_resumed and run.value("peft") is None)
    if path is not None and is_read and checkpoint_kind(files.names(path)) is None:
        yield wrong(_PRETRAINED, f"{path}, without a checkpoint in it", _IS_ONE)
    if resumes is not None and checkpoint_kind(files.names(resumes)) == "hugging_face":
        fix = say(
            "Set it as {checkpoint.pretrained_checkpoint}, and {checkpoint.load} to the folder of this run's own "
            "checkpoints."
        )
        actual = f"{resumes}, a model of Hugging Face"
        yield wrong(_LOAD, actual, "checkpoints of Megatron-Bridge", fix=fix)


@rule("BP863", ADVICE, "bridge/training/setup.py:184", when=fine_tunes, versions=_CURRENT, noticed="setup of the model")
def nothing_to_resume_from(run: Run) -> Found:
    """checkpoint.load is the only source of weights, and it has no checkpoint.

    Why: Crash after the model is built: finetune() requires weights; pretrain() trains from random ones in silence.
    Bad: pretrained_checkpoint null, checkpoint.load ./results without checkpoints. Good: pretrained_checkpoint set.
    Fix: Set {checkpoint.pretrained_checkpoint}.
    """
    path = _local(run, _LOAD)
    if path is None or run.value(_PRETRAINED) is not None or run.value("peft") is not None:
        return
    if checkpoint_kind(run.require_files().names(path)) is None:
        yield wrong(
            _PRETRAINED, say("none, and {checkpoint.load} {path} holds no checkpoint", path=path), "a checkpoint"
        )


_EXPORT, _SOURCE, _HUB_MODEL = "checkpoint.also_save_hf_checkpoint", "checkpoint.hf_source_path", "model.hf_model_id"


def _exports_for_hugging_face(run: Run) -> bool:
    return run.is_on(_EXPORT) and not run.stated_value(_SOURCE)


@fixable_rule("BP867", WARNING, when=_exports_for_hugging_face, versions=_CURRENT, noticed="first checkpoint, or never")
def exported_with_config_of_tokenizer(run: Run) -> Found:
    """Checkpoints are also written for Hugging Face, with the tokenizer's name as the source of the model's config.

    Why: Crash at the first checkpoint, hours into the run, if the tokenizer's folder has no config.json. If it has one,
        there is no error, and the checkpoint may get the config of another model. The host looks for
        {model.hf_model_id}, a field that Llama models of 0.7 do not have.
    Bad: 0.7, Llama 3.1, also_save_hf_checkpoint true, a tokenizer of your own. Good: checkpoint.hf_source_path set.
    Fix: Set {checkpoint.hf_source_path} to the model's id or folder.
    Evidence: read in main of 2026-08-22. Source: bridge/training/checkpointing.py (_resolve_hf_source)
    """
    model = run.stated_value(_HUB_MODEL)
    tokenizer = run.stated_value("tokenizer.tokenizer_model")
    fields = run.release.facts.types_of(str(run.value("model._target_")))
    if model and fields and "hf_model_id" not in fields and tokenizer != model:
        actual = f"not set, so that the config is that of the tokenizer, {tokenizer}"
        yield wrong(_SOURCE, actual, str(model), to=model, because="the model has no field hf_model_id")


def is_from_parts(run: Run) -> bool:
    """Return whether the host makes the model of a config with a transformer in it, not by a provider."""
    return (run.class_name("model") or "").endswith("ModelConfig")


@rule("BP864", WARNING, "bridge/training/checkpointing.py:2831", noticed="setup of the model")
def checkpoint_from_parts_not_loaded(run: Run) -> Found:
    """The checkpoint is of a model built from parts, which this release cannot load.

    Why: Crash after the model is built: the host raises KeyError for 'tensor_model_parallel_size'. The release saves
        the parallel sizes of such a model in its transformer, and looks for them beside it. Checkpoints of 0.6 are not
        affected.
    Bad: BridgeGPTModelConfig of 0.7, and checkpoints in checkpoint.load. Good: a folder without checkpoints.
    Fix: Start from the weights of Hugging Face; in run_config.yaml of a checkpoint, copy tensor_model_parallel_size
        and pipeline_model_parallel_size from model.transformer to model.
    Evidence: executed with main of 2026-08-22, which resumes no Llama run.
    """
    if run.release.loads_models_from_parts or not is_from_parts(run):
        return
    for path in (_PRETRAINED, _LOAD):
        folder = _local(run, path)
        if folder is not None and checkpoint_kind(run.require_files().names(folder)) == "megatron":
            actual = f"{folder}, with checkpoints of a {run.class_name('model')}"
            yield wrong(path, actual, "weights of Hugging Face, or checkpoints of 0.6")
