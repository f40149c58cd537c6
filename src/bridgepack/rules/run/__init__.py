"""Rules on runs, one module per subject.

In: a run, its settings in the host's paths with what is known of its files and artifact. Out: what is wrong with it.
Read first: `switches`.
"""
