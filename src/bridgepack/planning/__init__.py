"""Plans a run before anything is built: model size, topology and cost of a step.

In: a recipe, its rows or a model's name, and GPUs. Out: a preview, a plan, a recipe's text. Read `plan` first.
"""
