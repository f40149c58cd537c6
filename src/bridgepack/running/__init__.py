"""The programs that run inside the jobs of a launch.

In: an assignment. Out: the run's folder, an artifact, a checked recipe, a training run under its guard.
Read first: `assignment`, then `train`.
"""
