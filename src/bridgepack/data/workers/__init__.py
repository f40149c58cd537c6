"""Processes and machines that run a build's tasks.

In: tasks, in order. Out: their outcomes, in the same order, even if workers die.
Read first: `pool`.
"""
