"""Rules on what a run reads: packs, raw data, caches, and what its tokens mean."""
