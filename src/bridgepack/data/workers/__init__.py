"""Processes and machines that run a build's tasks.

In: tasks, in order. Out: what became of each, in the same order, whatever died meanwhile.
Read first: `pool`.
"""
