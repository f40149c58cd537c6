"""Rules on tokens of packs that train nothing: empty ends of rows, and padding inside them."""

from __future__ import annotations

from bridgepack.rules.engine.rule import WARNING, Found, rule, wrong
from bridgepack.rules.engine.subject import Run
from bridgepack.rules.run.packed_artifact import packs_of

#: Rows of a split from which its fill says something about the packing, and the fill that is worth a look.
#: Source: rule catalogue PSB115.
_MIN_ROWS, _MIN_FILL_FRACTION = 64, 0.9
#: Share of alignment padding that is worth a look.
_MAX_ALIGNMENT_FRACTION = 0.1


@rule("BP115", WARNING, "PSB115; bridge/data/packing/algorithms.py:226, docs/training/packed-sequences.md")
def packs_poorly_filled(run: Run) -> Found:
    """Rows hold much less than packed_sequence_size, physically.

    Why: Slow: attention and matrix products run over the padding at the end of every row.
    Bad: 1000 rows of 3000 runtime tokens on average, packed_sequence_size 4096: 73 %.
    Good: 1000 rows of 4000 runtime tokens on average, packed_sequence_size 4096: 98 %.
    Fix: Raise packed_sequence_size; 8192 is the host's own first target. Sequences nearly as long as a pack cannot be
        combined in it.
    Noticed: never; the host logs it when it packs.
    Evidence: read in the source; splits of few rows are left out.
    """
    facts = packs_of(run)
    if facts is None:
        return
    size = run.packed_sequence_size
    for truth in facts.require_truths():
        fill = truth.mean_row_width / size if size > 0 else 1.0
        if truth.num_rows >= _MIN_ROWS and fill < _MIN_FILL_FRACTION:
            found = f"rows are filled to {fill:.0%}: {truth.mean_row_width:.0f} of {size} runtime tokens"
            yield wrong(truth.split, found, f"{_MIN_FILL_FRACTION:.0%} or more")


@rule("BP120", WARNING, "PSB115, PSB118", noticed="never; the host's packing_efficiency counts the padding as use")
def alignment_wastes_tokens(run: Run) -> Found:
    """A large share of the tokens in packs is padding to pad_seq_to_mult.

    Why: Slow: rows look full, but their useful fill is lower. Short sequences and a large multiple cost most.
    Bad: 1000 tokens, 200 of them padding inside sequences.
    Good: 1000 tokens, 20 of them padding inside sequences.
    Fix: Lower the multiple: 2 x context_parallel_size is enough with pad_to_max_length; or lower context parallelism.
    Evidence: inferred; the numbers are the manifest's.
    """
    facts = packs_of(run)
    if facts is None:
        return
    for split in facts.require_manifest().splits:
        statistics = split.statistics
        padding, physical = statistics.num_alignment_tokens, statistics.num_tokens + statistics.num_alignment_tokens
        if physical and padding / physical > _MAX_ALIGNMENT_FRACTION:
            useful = statistics.num_tokens / physical
            found = f"{padding} of {physical} tokens are alignment: {useful:.0%} useful"
            yield wrong(split.name, found, f"{1 - _MAX_ALIGNMENT_FRACTION:.0%} useful or more")
