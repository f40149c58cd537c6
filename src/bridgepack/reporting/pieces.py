"""Lines of a summary about rows that became several sequences, or lost history on purpose."""

from bridgepack.records import LostKind, SplitRecord, SplitStatistics
from bridgepack.records.words import counted


def added_line(numbers: SplitStatistics) -> dict[str, str]:
    """Return the line about what splitting conversations costs, if any was split."""
    if not numbers.num_added_tokens:
        return {}
    return {"of split chats": _added_text(numbers.num_added_tokens, numbers.num_tokens)}


def cut_history_line(split: SplitRecord) -> dict[str, str]:
    """Return the line about history that was left out on purpose, if any was."""
    num_rows, numbers = split.lost_content.get(LostKind.CUT_HISTORY, 0), split.statistics
    if not num_rows:
        return {}
    what = (
        f"{counted(numbers.num_cut_exchanges, 'exchange')}, "
        f"{counted(numbers.num_cut_turns, 'turn')} of {num_rows:,} rows"
    )
    return {"cut on purpose": f"{what} (preprocessing.over_long)"}


def _added_text(num_added: float, num_tokens: float) -> str:
    """Return what splitting conversations costs, in words."""
    share = num_added / max(num_tokens - num_added, 1)
    return f"{num_added:,.0f} tokens show earlier turns again, {share:.0%} more than one sequence per row"
