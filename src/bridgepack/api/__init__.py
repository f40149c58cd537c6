"""The Python API: a function for each command, plus conversion to and from Megatron-Bridge configs.

In: recipes, artifacts and options as values. Out: results with `to_dict` and `to_pandas`. Each function is imported
when it is first used, because what one command needs takes seconds to import for another.
Read first: `builds`, then `checks`.
"""

from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bridgepack.api.artifacts import inspect as inspect
    from bridgepack.api.artifacts import trace as trace
    from bridgepack.api.builds import build as build
    from bridgepack.api.builds import plan_build as plan_build
    from bridgepack.api.builds import plan_repack as plan_repack
    from bridgepack.api.builds import repack as repack
    from bridgepack.api.checks import check as check
    from bridgepack.api.checks import explain as explain
    from bridgepack.api.checks import fix as fix
    from bridgepack.api.configs import forward_step_for as forward_step_for
    from bridgepack.api.configs import pack_for as pack_for
    from bridgepack.api.configs import to_bridge as to_bridge
    from bridgepack.api.files import check_report_path as check_report_path
    from bridgepack.api.files import staged_report as staged_report
    from bridgepack.api.launches import LaunchInterrupt as LaunchInterrupt
    from bridgepack.api.launches import launch as launch
    from bridgepack.api.launches import plan_launch as plan_launch
    from bridgepack.api.launches import preview_launch as preview_launch
    from bridgepack.api.launches import require_nemo_run as require_nemo_run
    from bridgepack.api.launches import submit_launch as submit_launch
    from bridgepack.api.layouts import list_layouts as list_layouts
    from bridgepack.api.parts import prove as prove
    from bridgepack.api.plans import plan as plan
    from bridgepack.api.plans import preview as preview
    from bridgepack.api.process import collect_rarely as collect_rarely
    from bridgepack.api.process import import_transformers as import_transformers
    from bridgepack.api.process import start_workers as start_workers
    from bridgepack.api.proofs import diff as diff
    from bridgepack.api.recipes import list_recipes as list_recipes
    from bridgepack.api.recipes import load_recipe as load_recipe
    from bridgepack.api.recipes import new_recipe as new_recipe
    from bridgepack.api.recipes import recipe_schema as recipe_schema
    from bridgepack.api.recipes import recipes_like as recipes_like
    from bridgepack.api.recipes import resolve_recipe as resolve_recipe
    from bridgepack.api.recipes import show_recipe as show_recipe
    from bridgepack.api.reports import report as report
    from bridgepack.api.runs import losses as losses
    from bridgepack.api.stores import list_store as list_store
    from bridgepack.api.stores import prune_store as prune_store
    from bridgepack.api.stores import verify_store as verify_store
    from bridgepack.api.targets import recipe_target as recipe_target
    from bridgepack.api.words import nearest_name as nearest_name
    from bridgepack.api.words import note_of_newer as note_of_newer
    from bridgepack.api.words import parse_given as parse_given
    from bridgepack.api.words import parse_overrides as parse_overrides
    from bridgepack.api.words import recipe_fields as recipe_fields

#: Module of this room -> the names that it has.
_NAMES = MappingProxyType(
    {
        "builds": "build plan_build repack plan_repack",
        "plans": "preview plan",
        "configs": "to_bridge pack_for forward_step_for",
        "checks": "check fix explain",
        "reports": "report",
        "files": "staged_report check_report_path",
        "artifacts": "inspect trace",
        "runs": "losses",
        "parts": "prove",
        "proofs": "diff",
        "recipes": "load_recipe list_recipes show_recipe resolve_recipe new_recipe recipes_like recipe_schema",
        "layouts": "list_layouts",
        "stores": "list_store prune_store verify_store",
        "launches": "launch plan_launch preview_launch submit_launch require_nemo_run LaunchInterrupt",
        "targets": "recipe_target",
        "words": "nearest_name note_of_newer parse_given parse_overrides recipe_fields",
        "process": "collect_rarely import_transformers start_workers",
    }
)
#: Name -> the module of this room that has it.
_HOMES = MappingProxyType({name: home for home, names in _NAMES.items() for name in names.split()})


def __dir__() -> list[str]:
    """Return the names, those that are not imported yet among them."""
    return [*_HOMES]


def __getattr__(name: str) -> Any:
    """Import what has the name.

    Raises:
        AttributeError: nothing has it.
    """
    if name not in _HOMES:
        raise AttributeError(f"module 'bridgepack.api' has no attribute {name!r}")
    return getattr(import_module(f"bridgepack.api.{_HOMES[name]}"), name)
