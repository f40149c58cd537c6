"""What needs both an artifact's readers and the proofs: traces, verification, differences, masks, the canary."""
