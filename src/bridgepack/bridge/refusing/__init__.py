"""What `to_bridge` refuses of a recipe, from data: the same findings for `check` and every other command.

In: a recipe, its base and its settings as plain values. Out: refusals, which rules report.
Read first: `refusals`, then `overrides`.
"""
