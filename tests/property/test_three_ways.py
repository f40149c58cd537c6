"""Three ways to a mask agree on drawn rows of every served family: a scan, marks in the conversation, and the proof.

Marks are forced by saying of every row that a text of it has markers, so that no scan counts as certain.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from bridgepack.data.sequences.chat_answers import ChatAnswers
from bridgepack.data.sequences.encoding import Encoded, encode_examples
from bridgepack.errors import RowError
from tests.property.test_second_truth import KINDS, rows
from tests.support.judged_masks import Judged
from tests.zoo.families import Family, write_tokenizer
from tests.zoo.prompted import BLOCKS, PROMPTED_FAMILIES

#: One family's template marks the answers itself, without their ends.
FAMILIES = [family for family in PROMPTED_FAMILIES if family is not BLOCKS]
#: Rows of each kind, and of these how many the proof judges, which is slow; multiples of the profile's examples.
NUM_ROWS = max(settings.default.max_examples // 12, 5)
NUM_JUDGED = max(NUM_ROWS // 5, 2)
_TWO_ANSWERS = [
    [{"role": "user", "content": "Go."}, {"role": "assistant", "content": text}, {"role": "assistant", "content": "B."}]
    for text in ("A.", " A\n", "a\n\nb")
]


@dataclass
class _Ways:
    """Rows of one family, encoded as a build does and by marks alone."""

    usual: Sequence[Encoded | RowError] = ()
    by_marks: Sequence[Encoded | RowError] = ()
    scans: set[int] = field(default_factory=set)  #: rows whose answers a scan finds


def _both_ways(judged: Judged, drawn: Sequence[dict[str, Any]], patch: pytest.MonkeyPatch) -> _Ways:
    ways, original = _Ways(), ChatAnswers._by_marks
    marked_texts: set[str] = set()

    def by_marks(answers: ChatAnswers, row: int, chat: Any, flat: Any) -> Any:
        marked_texts.add(chat.text)
        return original(answers, row, chat, flat)

    patch.setattr(ChatAnswers, "_by_marks", by_marks)
    ways.usual = encode_examples(judged.encoder, drawn)
    texts = [judged.tokenizer.decode(made.ids) if isinstance(made, Encoded) else "" for made in ways.usual]
    ways.scans = {index for index, text in enumerate(texts) if text and text not in marked_texts}
    patch.setattr(ChatAnswers, "_has_any", lambda *_: True)
    ways.by_marks = encode_examples(judged.encoder, drawn)
    return ways


@pytest.mark.full
@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_scan_marks_and_proof_agree(tmp_path: Path, family: Family, monkeypatch: pytest.MonkeyPatch) -> None:
    judged = Judged.of_tokenizer(
        write_tokenizer(tmp_path / "tokenizer", family), kind="chat", **{**family.preprocessing}
    )
    drawn = [row for kind in KINDS for row in rows(kind)[:NUM_ROWS]] + [{"messages": turns} for turns in _TWO_ANSWERS]
    with monkeypatch.context() as patch:
        ways = _both_ways(judged, drawn, patch)
    num = Counter[str]()
    for index, (made, marked) in enumerate(zip(ways.usual, ways.by_marks, strict=True)):
        if isinstance(made, Encoded) and isinstance(marked, Encoded):
            assert (made.ids, made.mask) == (marked.ids, marked.mask), drawn[index]
            num["scan and marks"] += index in ways.scans
        is_chosen = index % NUM_ROWS < NUM_JUDGED
        for name, way in (("scan", made), ("marks", marked)) if is_chosen else ():
            if isinstance(way, Encoded) and (name == "marks" or index in ways.scans):
                verdict = judged.judge_encoded(drawn[index], way)
                assert verdict.findings == (), (drawn[index], verdict.findings)
                num[f"{name} and proof"] += verdict.num_judges > 0
    assert num["scan and marks"] >= NUM_ROWS
    assert min(num["scan and proof"], num["marks and proof"]) >= NUM_JUDGED
