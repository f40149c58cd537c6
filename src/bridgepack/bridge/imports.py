"""Imports modules of the installed Megatron-Bridge, by their paths below the package of its release."""

import gc
import importlib
from typing import Any

from bridgepack.bridge.import_on_cpu import install_import_hook
from bridgepack.config.installed import installed_root
from bridgepack.errors import ConfigError
from bridgepack.host import TARGET
from bridgepack.host.roots import CANONICAL, in_package


class HostImportError(ConfigError):
    """A module of Megatron-Bridge or Megatron-Core cannot be imported here; `reason` is the fact without the cure."""

    reason: str = ""


def import_host(path: str = "") -> Any:
    """Return a module of Megatron-Bridge.

    Args:
        path: below its package, such as `training.config`; empty for the package.

    Raises:
        HostImportError: it cannot be imported.
    """
    return import_by_name(f"{installed_root()}.{path}".rstrip("."))


def import_by_name(name: str) -> Any:
    """Return a module by its canonical name, or one of another package, such as `megatron.core`.

    Raises:
        HostImportError: it cannot be imported.
    """
    module = in_package(name, CANONICAL, installed_root())
    install_import_hook()
    is_collecting = gc.isenabled()
    gc.disable()  # repeated cycle collection over a million objects takes a fifth of the import's time
    try:
        return importlib.import_module(module)
    except ImportError as error:
        reason = f"{module} cannot be imported: {error}"
        refusal = HostImportError(
            f"{reason}. A ConfigContainer needs megatron-bridge {TARGET.bridge} here; "
            'in a clone of bridgepack: pip install -e ".[bridge]"'
        )
        refusal.reason = reason
        raise refusal from error
    finally:
        if is_collecting:
            gc.enable()
