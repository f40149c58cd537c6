"""What a user writes: frozen pydantic sections, how they are loaded, overridden and resolved.

In: YAML, TOML or Python. Out: an `SFTRecipe` or a `Cluster`, or an error that names the field.
Read first: `recipe/recipe`, then `load`.
"""
