"""What a run's losses say: of each source over its steps, and of each row.

In: the files that a run leaves in its folder, and its artifact. Out: a `LossReport`.
Read first: `losses`.
"""
