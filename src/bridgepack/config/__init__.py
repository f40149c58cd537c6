"""What a user writes: frozen pydantic sections, how they are loaded, overridden and resolved."""
