"""Settings beside packing that `validate()` refuses: routing, precision, offloading, logging, fusions.

In: a run. Out: findings with the field and the way out, where the host would stop at its first words.
Read first: `routing`.
"""
