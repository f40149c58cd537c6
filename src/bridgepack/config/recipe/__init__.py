"""The sections of a recipe.

In: plain values. Out: an `SFTRecipe`, and from `resolve()` the derived values with reasons.
Read first: `recipe`.
"""
