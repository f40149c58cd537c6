"""Megatron-Bridge's own validation of a run, in a process of its own.

In: a recipe, a saved config or a live ConfigContainer. Out: what `runtime_config_update` and `validate` say of it.
Read first: `ask`, then `verdict`.
"""
