"""Rules on families of models, and on models that pack otherwise."""
