"""What a run will need, told before anything is built: the size of its model, its topology, what a step costs.

In come a recipe or a model's name, GPUs and a length; out come a topology, FLOPs and a recipe's text. Read `new` first.
"""
