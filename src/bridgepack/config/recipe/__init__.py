"""The sections of a recipe.

In: plain values. Out: an `SFTRecipe`, and by `resolve()` what follows from it, with reasons.
Read first: `recipe`.
"""
