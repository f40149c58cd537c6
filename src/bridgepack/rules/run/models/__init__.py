"""Rules on model families, and on models with their own kind of packing."""
