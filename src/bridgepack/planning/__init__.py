"""What a run will need, told before anything is built: the size of its model, its topology, a recipe to start from.

In come a model's name, GPUs and a length; out come a topology and a recipe's text. Read `new` first.
"""
