"""Rules on trained answers that a server shows differently, from the sample in an artifact's manifest."""

from bridgepack.records import TRAIN, ServedKind
from bridgepack.rules.artifact.contents import place_of
from bridgepack.rules.judging.context import CannotJudgeError
from bridgepack.rules.judging.facts import MANIFEST_FILE, ArtifactFacts
from bridgepack.rules.judging.rule import WARNING, Found, artifact_rule, wrong

_SAMPLE = "executed, with a sample of answers at build time"


@artifact_rule("BP555", WARNING, "bridgepack manifest", noticed="never", evidence=_SAMPLE)
def context_not_as_served(facts: ArtifactFacts) -> Found:
    """Trained answers follow another text than a server sends for the turns before them.

    Why: Silent: the model is trained with a context that it never sees, e.g. with earlier thoughts that the template
        strips, without the `<think>` that the prompt begins, or with another system prompt.
    Bad: served has 6 equal answers and 4 whose context differs. Good: served has 10 equal answers.
    Fix: Set the same switch of the template in training and in serving,
        preprocessing.split_conversations, or the section serving. `bridgepack prove served` shows the texts.
    """
    return _sample_size(facts, ServedKind.CONTEXT)


@artifact_rule("BP556", WARNING, "bridgepack manifest", noticed="never", evidence=_SAMPLE)
def answer_not_as_served(facts: ArtifactFacts) -> Found:
    """Trained answers are not what the model must write when it is served.

    Why: Silent: the model is trained to answer without its thought, to end otherwise, or not to end.
    Bad: served has 6 equal answers and 4 that differ. Good: served has 10 equal answers.
    Fix: Set the same switch of the template in training and in serving,
        preprocessing.split_conversations, or loss_mode last_turn. `bridgepack prove served` shows the texts.
    """
    return _sample_size(facts, ServedKind.ANSWER)


@artifact_rule("BP557", WARNING, "bridgepack manifest", noticed="never", evidence=_SAMPLE)
def boundary_not_as_served(facts: ArtifactFacts) -> Found:
    """Trained tokens do not begin where the server's prompt ends.

    Why: Silent: the model is trained to write what the server writes, such as a header or `<think>`, or is not trained
        to write the first tokens of its answer.
    Bad: served has 6 equal answers and 4 whose boundary differs. Good: served has 10 equal answers.
    Fix: Set preprocessing.mask_generation_prompt to true. `bridgepack prove served` shows the tokens.
    """
    return _sample_size(facts, ServedKind.BOUNDARY)


@artifact_rule("BP558", WARNING, "bridgepack manifest", noticed="never", evidence=_SAMPLE)
def answers_refused_when_served(facts: ArtifactFacts) -> Found:
    """The chat template rejects the turns before trained answers when a server sends them.

    Why: Silent: the rows train answers to requests that the server refuses.
    Bad: served has 6 equal answers and 4 that are refused. Good: served has 10 equal answers.
    Fix: Correct the rows, or set tokenizer.chat_template to another template, in training and serving alike.
    """
    return _sample_size(facts, ServedKind.REFUSED)


def _sample_size(facts: ArtifactFacts, kind: ServedKind) -> Found:
    """Yield a finding if answers of the sample are of a kind: their share, the first, and the cure.

    Raises:
        CannotJudgeError: the manifest has no sample.
    """
    manifest = facts.require_manifest()
    record, split = manifest.served, manifest.split(TRAIN)
    if record is None or not record.num_answers:
        raise CannotJudgeError("the manifest has no sample of answers compared with what is served")
    count = next((count for count in record.counts if count.kind == kind), None)
    if count is None:
        return
    place = "" if split is None else place_of(split, count.file_index, count.row)
    if not count.is_row_exact:
        place = place.replace(" row ", " row ~")
    text = (
        f"{record.share(kind):.1%} of {record.num_answers} sampled answers: {kind}, e.g.{place} turn {count.turn}: "
        f"{count.detail}"
    )
    cure = record.cure(kind)
    yield wrong(f"{MANIFEST_FILE} served.{kind}", text, "none", fix=f"{cure[0].upper()}{cure[1:]}.")
