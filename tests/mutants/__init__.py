"""Deliberate faults in the source: what the tests of each room must notice. `run` applies them to copies."""
