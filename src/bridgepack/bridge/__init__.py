"""Converts recipes and ConfigContainers into the settings that rules judge, and recipes into ConfigContainers.

In: a recipe, a live or saved ConfigContainer, an artifact. Out: settings under the host's paths, or a ConfigContainer.
Read first: `targets`, then `recipe` and `write`.
"""
