"""Rules that judge packed artifacts and runs. Start at `engine.rule`, which defines a rule; `registry` collects all."""
