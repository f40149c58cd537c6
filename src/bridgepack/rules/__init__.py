"""Rules that judge packed artifacts and runs. `judging.rule` says what a rule is; `registry` collects all."""
