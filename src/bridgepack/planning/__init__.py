"""What a run will need, told before anything is built: the size of its model, its topology, what a step costs.

In come a recipe, its rows or a model's name, and GPUs; out come a preview, a plan, a recipe's text. Read `plan` first.
"""
