"""Environment variables from outside a recipe, which win over its own: of a cluster file, or of this process."""

from collections.abc import Mapping
from dataclasses import replace

from bridgepack.host.variables import ENGINE_PREFIX
from bridgepack.records import RunConfig


def with_variables(config: RunConfig, variables: Mapping[str, str], *, place: str) -> RunConfig:
    """Return settings with the variables of TransformerEngine that the run's processes start with.

    Args:
        config: the settings.
        variables: name -> value; references to variables of another machine are left out.
        place: where they are set, for messages.
    """
    engine_variables = {
        name: value for name, value in variables.items() if name.startswith(ENGINE_PREFIX) and "${" not in value
    }
    if not engine_variables:
        return config
    environment = config.values.get("env_vars")
    values = {
        **config.values,
        "env_vars": {**(environment if isinstance(environment, Mapping) else {}), **engine_variables},
    }
    return replace(
        config,
        values=values,
        user_paths={**config.user_paths, **{f"env_vars.{name}": f"{place}.{name}" for name in engine_variables}},
    )
