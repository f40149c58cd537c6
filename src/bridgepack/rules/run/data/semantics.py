"""Rules on preprocessing, templates, masks, special tokens and over-long examples."""

from collections.abc import Mapping
from typing import Any

from bridgepack.records.messages import say
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.environment import BRIDGE
from bridgepack.rules.judging.rule import ADVICE, ERROR, EXECUTED, WARNING, Found, fixable_rule, rule, wrong
from bridgepack.rules.judging.subject import IS_TEXT, PACKS_OFFLINE, SPECS, TEXT_DATASETS, Run

CHAT, PROMPT_COMPLETION, LEGACY = "chat", "prompt_completion", "legacy"
_KINDS = {"ChatSFTPreprocessingConfig": CHAT, "PromptCompletionSFTPreprocessingConfig": PROMPT_COMPLETION}


def host_packs(run: Run) -> bool:
    """Return whether the host packs training rows itself, because no explicit path is set."""
    return run.packs_offline and run.value(f"{SPECS}.packed_train_data_path") is None


def preprocessing_kind(run: Run) -> str:
    """Return `chat`, `prompt_completion`, or `legacy` for prompts set by `dataset_kwargs`.

    Source: megatron/bridge/data/builders/gpt_sft.py, resolve_gpt_sft_preprocessing.
    """
    if run.dataset_kind not in TEXT_DATASETS:
        raise CannotJudgeError(f"the dataset is a {run.dataset_kind}")
    name = run.class_name("dataset.preprocessing")
    if name is not None:
        return _KINDS.get(name, name)
    if run.value("dataset.hf_dataset") is not None:
        return CHAT
    return CHAT if run.dataset_kwargs.get("chat") else LEGACY


def prompt_completion(run: Run) -> Mapping[str, Any]:
    """Return the settings of the run's prompt-completion preprocessing; empty if the run does not use it."""
    if not host_packs(run) or preprocessing_kind(run) != PROMPT_COMPLETION:
        return {}
    return run.mapping("dataset.preprocessing")


_KWARGS, _ADD_BOS = "dataset.dataset_kwargs", "dataset.preprocessing.add_bos"
#: Families whose tokenizers have no BOS token, and families whose tokenizers begin every text with BOS.
_WITHOUT_BOS = ("qwen2", "qwen3")
_BEGIN_WITH_BOS = ("llama", "gemma", "mistral", "ministral3")


@fixable_rule("BP502", ERROR, "PSB502; bridge/data/packing/gpt_sft.py:131", when=PACKS_OFFLINE, evidence=EXECUTED)
def stored_mask_ignored(run: Run) -> Found:
    """dataset_kwargs.answer_only_loss is false, so the host ignores the loss mask in the packs.

    Why: Silent: everything except EOS inputs is trained: prompts, system turns, tool outputs, padding rows of a batch.
    Bad: dataset_kwargs {answer_only_loss: false} with offline packing. Good: dataset_kwargs without it.
    Fix: Remove {dataset.dataset_kwargs.answer_only_loss}; to train everything, pack with
        {dataset.preprocessing.loss_mode} full.
    Noticed: never; `validate()` refuses it only with an explicit preprocessing.
    """
    value = run.dataset_kwargs.get("answer_only_loss", True)
    if not value:
        why = "the mask in the packs is then used"
        yield wrong(f"{_KWARGS}.answer_only_loss", str(value), "true, or not set", to=True, because=why)


@fixable_rule("BP505", WARNING, "PSB505; bridge/data/sft_processing.py:406", when=host_packs)
def completions_without_eos(run: Run) -> Found:
    """The host packs completions without EOS at their end.

    Why: Silent: the model never learns to stop. Bad: preprocessing.add_eos false. Good: preprocessing.add_eos true.
    Fix: Set {dataset.preprocessing.add_eos} to true, unless the completions already end with a stop token.
    """
    is_legacy = preprocessing_kind(run) == LEGACY
    settings = run.dataset_kwargs if is_legacy else prompt_completion(run)
    if settings.get("add_eos") is False:
        path = f"{_KWARGS if is_legacy else 'dataset.preprocessing'}.add_eos"
        yield wrong(path, "False", "true", to=True, because="the model learns to stop", needs_repack=True)


@rule("BP507", ERROR, when=IS_TEXT, noticed="dataset build", evidence=EXECUTED)
def chat_template_in_dataset_kwargs(run: Run) -> Found:
    """dataset_kwargs has a chat_template.

    Why: Crash at dataset init on every rank that does not pack, and on all ranks once packs exist: the host raises
        TypeError for the unexpected keyword argument 'chat_template'.
    Bad: dataset_kwargs {chat_template: "..."}. Good: tokenizer.chat_template or tokenizer.chat_template_path.
    Fix: Move the template to {tokenizer.chat_template} and remove {dataset.dataset_kwargs.chat_template}.
    Source: PSB507; bridge/data/packing/offline.py:159, data/builders/gpt_sft.py:515
    """
    if "chat_template" in run.dataset_kwargs:
        yield wrong(f"{_KWARGS}.chat_template", "set", say("not set; {tokenizer.chat_template}"))


@rule("BP513", WARNING, "PSB513; bridge/data/packing/algorithms.py:286", when=host_packs)
def legacy_mask(run: Run) -> Found:
    """The host packs a local file without dataset.preprocessing, so it guesses the mask from one position.

    Why: Silent: everything from the answer's start on is trained, even the first padding token; truncation is ignored.
    Bad: dataset_root set, preprocessing null, no explicit packs. Good: ChatSFTPreprocessingConfig.
    Fix: Set {dataset.preprocessing} to the kind of the rows.
    """
    if preprocessing_kind(run) == LEGACY:
        yield wrong("dataset.preprocessing", "None", "chat or prompt-completion preprocessing")


@fixable_rule("BP515", WARNING, "PSB515; bridge/data/sft_processing.py:389")
def prompt_glued_to_completion(run: Run) -> Found:
    """The host packs prompts and completions without a separator.

    Why: Silent: words run together, with a token boundary that does not occur at inference.
    Bad: prompt_template "{prompt}", separator "". Good: separator " ".
    Fix: Set {dataset.preprocessing.separator} to a space, or end the prompt's template with a line end.
    """
    preprocessing, path = prompt_completion(run), "dataset.preprocessing.separator"
    is_closed = str(preprocessing.get("prompt_template", "")).endswith("}") and not preprocessing.get("add_sep")
    if is_closed and preprocessing.get("separator") == "":
        why = "the host's own recipes use it"
        yield wrong(path, "empty", "a space or a line end", to=" ", because=why, needs_repack=True)


@fixable_rule("BP516", ADVICE, "PSB516; bridge/data/sft_processing.py:393")
def prompts_without_bos(run: Run) -> Found:
    """The host packs prompts without BOS, but the tokenizers of this family begin every text with BOS.

    Why: Silent: inference begins with BOS, training does not; Gemma models degrade badly.
    Bad: preprocessing.add_bos false with a Gemma tokenizer. Good: preprocessing.add_bos true with a Gemma tokenizer.
    Fix: Set {dataset.preprocessing.add_bos} to true if inference adds BOS. Evidence: read in the source: add_bos is
        false by default.
    """
    if prompt_completion(run).get("add_bos") is False and run.family.name.startswith(_BEGIN_WITH_BOS):
        why = "the tokenizer begins every text with BOS"
        yield wrong(_ADD_BOS, f"False with {run.family.evidence}", "true", to=True, because=why, needs_repack=True)


@fixable_rule("BP517", WARNING, "PSB517; bridge/data/sft_processing.py:395", noticed="dataset build")
def bos_wanted_but_missing(run: Run) -> Found:
    """add_bos is true, but tokenizers of the model's family have no BOS token.

    Why: Crash at dataset build: the tokenizer has no BOS token.
    Bad: preprocessing.add_bos true with a Qwen3 tokenizer. Good: preprocessing.add_bos false with a Qwen3 tokenizer.
    Fix: Set {dataset.preprocessing.add_bos} to false. Evidence: read in the source; the tokenizers of Qwen2.5 and Qwen3
        were checked.
    """
    if prompt_completion(run).get("add_bos") is True and run.family.name.startswith(_WITHOUT_BOS):
        actual, why = f"True with {run.family.evidence}", "there is no BOS token"
        yield wrong(_ADD_BOS, actual, "false", to=False, because=why, needs_repack=True)


@rule("BP520", WARNING, when=host_packs, versions={BRIDGE: "<0.7"}, evidence="Bridge #5190, on main only")
def tokenizer_not_hugging_face(run: Run) -> Found:
    """The host packs rows with a tokenizer that is not from Hugging Face.

    Why: Crash at dataset build: preprocessing calls methods that only Hugging Face tokenizers have.
    Bad: SentencePieceTokenizer, chat preprocessing, no explicit packs. Good: HuggingFaceTokenizer.
    Fix: Use the Hugging Face form of the tokenizer, or build packs before the job.
    Noticed: dataset build. Source: PSB520; bridge/data/sft_processing.py:295, data/datasets/gpt_sft.py:739
    """
    kind = None if preprocessing_kind(run) == LEGACY else run.text_or_none("tokenizer.tokenizer_type")
    if preprocessing_kind(run) != LEGACY and kind != "HuggingFaceTokenizer":
        yield wrong("tokenizer.tokenizer_type", str(kind), "HuggingFaceTokenizer")


@rule("BP539", ADVICE, when=host_packs, evidence="executed with the real 0.6.2; Model-Optimizer #2113")
def host_drops_or_cuts_silently(run: Run) -> Found:
    """The host packs rows itself, and drops or cuts over-long rows depending on their kind and pad_seq_to_mult.

    Why: Silent: there is a line in the log at most. Chats are dropped with pad_seq_to_mult 1 and cut above it, so
        changing context parallelism changes the data; prompts lose their end first, and a cut completion still gets
        EOS.
    Bad: chat preprocessing, pad_seq_to_mult 4, no explicit packs. Good: explicit packs that have a drop ledger.
    Fix: Build packs before the job, and check the dropped rows.
    Source: PSB510, PSB511, PSB514; bridge/data/packing/offline.py:78, data/sft_processing.py:411
    """
    is_dropped = preprocessing_kind(run) == CHAT and run.pad_seq_to_mult == 1
    actual = f"over-long rows are {'dropped' if is_dropped else 'cut'}"
    yield wrong("dataset.offline_packing_specs", actual, "packs built with a drop ledger")
