"""Rules on the data of a run: packs, raw data, caches, preprocessing and tokens."""
