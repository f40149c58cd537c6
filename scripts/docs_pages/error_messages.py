"""The index of error messages: what Megatron-Bridge and its libraries say, with the rule that explains it."""

import re
from collections.abc import Iterator, Sequence

from bridgepack.rules.judging.rule import Rule

from .rules import literal, page_of

#: A message between double quotes, or an exception by its name, in a rule's reason.
_SAID = re.compile(r'"([^"]{8,})"|\b([A-Z]\w*(?:Error|Exception)\b)')
_INTRODUCTION = """\
# Error messages

Search this page for the words of your error message. The first table has messages of Megatron-Bridge, Megatron-Core,
TransformerEngine, PyTorch and pyarrow. The second has messages of bridgepack itself. If there is a symptom but no
message, look into [troubleshooting](troubleshooting.md).

## Messages of a training run

`bridgepack check mine.yaml --artifact packed/mine` finds each of these before the run.
"""
_KINDS = """\
## Exceptions without a text of their own

| exception | when | rule |
|---|---|---|
"""
#: Beginning or part of a message of bridgepack -> what it means, and what to do.
MESSAGES = {
    "only one can be set. Remove one.": "The recipe says one quantity in two ways. Keep one of the two fields.",
    "there is no assistant turn": "A conversation has nothing to train, so its row is dropped. See [why a row was "
    "dropped](dropped-rows.md).",
    "another build is writing to": "Two builds have the same output. Wait, or give another `--output`.",
    "already exists; allowed: a new file": "`new` never overwrites a recipe. Choose another name.",
    "launching needs nemo-run, which is not installed": "Install the [extra](install.md#extras) `launch`.",
    "Fetch or compress it again.": "A compressed file of your data ends too early. Its copy is probably incomplete.",
    "this bridgepack reads": "Two versions of bridgepack were used for one run. See the [upgrade notes](upgrades.md).",
}


def error_messages_page(rules: Sequence[Rule]) -> str:
    """Return the page as Markdown."""
    rows = sorted(_rows(rules), key=lambda row: row[0].lower())
    texts = [
        f"| `{_cell(said)}` | {_cell(literal(summary))} | {link} |" for said, summary, link, is_text in rows if is_text
    ]
    kinds = [
        f"| `{said}` | {_cell(literal(summary))} | {link} |" for said, summary, link, is_text in rows if not is_text
    ]
    ours = [f"| {text} | {meaning} |" for text, meaning in MESSAGES.items()]
    blocks = [
        _INTRODUCTION,
        "\n".join(["| message | because | rule |", "|---|---|---|", *texts]),
        _KINDS + "\n".join(kinds),
        "## Messages of bridgepack\n\nEach says which field is wrong, its value, what is allowed and what to do. "
        "The exit code is 2.",
        "\n".join(["| message | what it means |", "|---|---|", *ours]),
    ]
    return page_of(blocks)


def _rows(rules: Sequence[Rule]) -> Iterator[tuple[str, str, str, bool]]:
    """Yield what is said, the rule's summary, a link to the rule, and whether it is a text."""
    for rule in rules:
        said = {match[1] or match[2]: bool(match[1]) for match in _SAID.finditer(rule.why)}
        for text, is_text in said.items():
            yield text, rule.summary, f"[{rule.code}](rules/{rule.code}.md)", is_text


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
