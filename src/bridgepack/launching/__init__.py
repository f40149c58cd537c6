"""Launches a run through nemo-run: executors, tasks, experiment. Beside `nemo_cli` the only room that imports nemo_run.

In: a recipe and a cluster. Out: a plan, nemo-run's own objects, and the results of the tasks.
Read first: `plan`, then `tasks` and `experiment`.
"""
