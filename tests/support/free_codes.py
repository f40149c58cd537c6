"""Prints the next free code of each group of rules.

usage: python -m tests.support.free_codes
"""

import sys

from bridgepack.rules.registry import ALL_RULES, GROUPS, RETIRED, group_of


def free_codes() -> dict[str, str]:
    """Return title of a group -> its lowest code that no rule has or had; a full group is left out."""
    taken = {rule.code for rule in ALL_RULES} | RETIRED
    free = {}
    for number in reversed(range(1000)):
        code = f"BP{number:03}"
        if number % 100 and code not in taken:  # numbers begin at 1
            free[group_of(code)] = code
    return {title: free[title] for _, title in sorted(GROUPS) if title in free}


if __name__ == "__main__":
    lines = [f"{code}  {title}\n" for title, code in free_codes().items()]
    sys.stdout.writelines(lines)
