"""Rules on runs, one module per subject; each ends with its tuple `RULES`."""
