"""Recipes and ConfigContainers as the settings that rules judge, and the way back.

In: a recipe, a live or saved ConfigContainer, an artifact. Out: settings in the host's paths, or a ConfigContainer.
Read first: `targets`, then `recipe` and `write`.
"""
