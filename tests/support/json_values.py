"""Results as JSON prints them, and JSON without what differs from run to run."""

import json
from typing import Any


def as_printed(result: Any) -> Any:
    plain = result.to_dict() if hasattr(result, "to_dict") else result
    return json.loads(json.dumps(plain, default=str))


def without(value: Any, names: set[str]) -> Any:
    """Return a JSON value without the keys of some names, at any depth."""
    if isinstance(value, dict):
        return {name: without(item, names) for name, item in value.items() if name not in names}
    return [without(item, names) for item in value] if isinstance(value, list) else value
