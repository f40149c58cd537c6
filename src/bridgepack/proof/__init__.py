"""Proof of an artifact: replays of what the host will feed the model, and comparisons with the truth."""
