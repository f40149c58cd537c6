"""Rules on packed artifacts."""
