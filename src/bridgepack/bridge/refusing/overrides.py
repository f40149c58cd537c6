"""Refusals of overrides: of fields that the host does not have, of values of the wrong type, of what it does not keep.

Source: bridge/writing/assign.py, which writes the same settings into a live config of the host.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from bridgepack.bridge.bases import is_left_out, new_section
from bridgepack.bridge.inherited import is_decided
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.wiring import OVERRIDES, Setting
from bridgepack.config.errors import did_you_mean, known_names, quoted
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host import HostRelease
from bridgepack.host.facts import CONTAINER, FUNCTION, HostFacts, as_plain, class_in, holds_mapping
from bridgepack.host.names import name_in
from bridgepack.host.overwritten import DECIDERS, DEPENDENT, OF_TOKENIZER, WORKED_OUT
from bridgepack.records import Change, Refusal

_PRECISION = "mixed_precision"
#: Likeness of two names, from 0 to 1, from which one is the other misspelt.
_BEYOND_DOUBT = 0.9
_MAX_NAMES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """An object of the host on the way to an override."""

    node: Any  #: its plain values
    kind: str  #: its class; empty if unknown
    above: str  #: its dotted path; empty for the whole config
    release: HostRelease  #: whose classes it has

    @property
    def title(self) -> str:
        """Name of the class, without its module."""
        return (self.kind or str(self.node.get("_target_", ""))).rpartition(".")[2]

    @property
    def fields(self) -> Mapping[str, Any]:
        """Declared fields of its class -> type; empty for an unknown class."""
        return self.release.facts.types_of(self.kind)

    def field_type(self, name: str) -> Any:
        """Return the type of a field; `any` if it is unknown."""
        return self.fields.get(name_in(self.release, self.below(name)).rpartition(".")[2], "any")

    def inner(self, node: Any, kind: str, path: str) -> "Place":
        """Return the place of an object in a field of this one."""
        return Place(node=node, kind=kind, above=path, release=self.release)

    def below(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.above}.{name}".removeprefix(".")


def refused_path(
    values: Mapping[str, Any], setting: Setting, settings: Mapping[str, Setting], recipe: SFTRecipe
) -> Refusal | None:
    """Return why an override cannot be written: its path leads nowhere, or its value does not fit; or None.

    Args:
        values: plain values of the config, before the override is written.
        setting: the override.
        settings: path -> every setting of the recipe.
        recipe: the recipe, for its host, and for the correction of a misspelt name.
    """
    release, written = recipe.release, recipe.bridge_overrides
    node = {**dict.fromkeys(release.facts.sections), **values}
    place = Place(node=node, kind=CONTAINER, above="", release=release)
    *sections, leaf = setting.path.split(".")
    for name in sections:
        found = _step(place, name, setting, settings, written)
        if not isinstance(found, Place):
            return found
        place = found
    if place.node is None:
        return None
    return _nowhere(place, leaf, settings, written) or _unfit(place, leaf, setting)


def _step(
    place: Place, name: str, setting: Setting, settings: Mapping[str, Setting], written: Mapping[str, Any]
) -> Place | Refusal | None:
    """Return the object at a field, a refusal, or None where nothing below is known."""
    lost = _nowhere(place, name, settings, written)
    if lost is not None:
        return lost
    node, path, declared = place.node.get(name), place.below(name), place.field_type(name)
    if path not in place.release.facts.sections and is_left_out(place.release, path):
        return None
    if path == _PRECISION and isinstance(node, str):
        facts = place.release.facts
        node = facts.registered_precision(node) or facts.precision_by_name("bf16_mixed")
    if node is None:
        return _object_for_null(place, name, setting, settings)
    if isinstance(node, Mapping):
        return place.inner(node, str(node.get("_target_", "")), path) if "_target_" in node else None
    if isinstance(node, (bool, int, float, str)):
        below, found = setting.path.removeprefix(f"{path}.").partition(".")[0], f"below {path}, a plain value"
        return _refusal(f"{path}.{below}", f"{found}, {quoted(node)}", "fields of objects", f"Set {path} as a whole.")
    return None if declared == "any" or isinstance(node, (list, tuple)) else place.inner({}, "", path)


def _object_for_null(
    place: Place, name: str, setting: Setting, settings: Mapping[str, Setting]
) -> Place | Refusal | None:
    """Return the object that the host makes of a field that is null, a refusal, or None for a mapping of any names."""
    declared, path = place.field_type(name), place.below(name)
    if place.above == "" and path == "model":
        return None
    if declared == "any" or holds_mapping(declared):
        return None
    kind, found = class_in(declared), f"below {path}, which is null"
    if path == "peft":
        return _refusal(setting.path, found, "with method.kind lora or dora", "Set method.kind, or remove it.")
    if kind is None:
        return _refusal(setting.path, found, f"with {path}", f"Set {path} first, or remove it.")
    missing = [field for field in place.release.facts.required_of(kind) if f"{path}.{field}" not in settings]
    if missing:
        names = ", ".join(f"{path}.{field}" for field in missing)
        fix = f"Set it, too, or take a base recipe that has {path}."
        return _refusal(setting.path, found, f"with {names}", fix)
    fields = place.release.facts.types_of(kind)
    return place.inner(new_section(place.release, path) or dict.fromkeys(fields), kind, path) if fields else None


def _nowhere(place: Place, name: str, settings: Mapping[str, Setting], written: Mapping[str, Any]) -> Refusal | None:
    """Return the refusal of a name that an object does not have, or None."""
    path = place.below(name)
    known = {field for field in (*place.node, *place.fields) if not field.startswith("_")}
    if name in known or (not name.startswith("_") and is_left_out(place.release, path)):
        return None
    if not place.kind:
        return None
    names = sorted(known)
    fix = did_you_mean(name, names, f"It has: {', '.join(names[:_MAX_NAMES])}.")
    change = _correction(place, name, names, settings, written)
    return _refusal(path, f"no field of {place.title}", "one of its fields", fix, change)


def _correction(
    place: Place, name: str, known: list[str], settings: Mapping[str, Setting], written: Mapping[str, Any]
) -> Change | None:
    meant = get_close_matches(name, known, n=2, cutoff=_BEYOND_DOUBT)
    section = value_at(written, place.above) if place.above else None
    if len(meant) != 1 or not isinstance(section, Mapping) or is_decided(f"{place.above}.{meant[0]}", settings):
        return None
    mended = {meant[0] if key == name else key: value for key, value in section.items()}
    return Change(path=place.above, value=mended, why=f"{name} is a misspelt {meant[0]}")


def _unfit(place: Place, name: str, setting: Setting) -> Refusal | None:
    """Return the refusal of a value of the wrong type, or None."""
    value, path, facts = setting.value, setting.path, place.release.facts
    if path == _PRECISION and isinstance(value, str):
        if facts.registered_precision(value) is not None:
            return None
        allowed, _, hint = known_names(value, facts.precision_names).removeprefix("allowed: ").partition(". ")
        return _refusal(path, quoted(value), allowed, hint, kind="unfit")
    is_kept = (value == {} and place.node.get(name) is not None) or (
        value is None and name in place.node and place.node[name] is None
    )
    declared = place.field_type(name)
    reason = None if is_kept else facts.why_unfit(value, declared)
    if reason is None:
        return None
    if place.kind == CONTAINER:
        reason = "a section with named fields" + (
            ", or null for none" if facts.why_unfit(None, declared) is None else ""
        )
    fix = "Set it on the ConfigContainer in Python." if FUNCTION in reason else "Use one of these."
    return _refusal(path, quoted(value), reason, fix, kind="unfit")


def _refusal(
    path: str, found: str, allowed: str, fix: str, change: Change | None = None, *, kind: Any = "nowhere"
) -> Refusal:
    return Refusal(kind=kind, path=path, found=found, allowed=allowed, fix=fix, change=change)


#: Makes the refusal of the override at hand: of what is allowed, and what to do.
type _Refuse = Callable[[str, str], Refusal]


def why_not_kept(
    values: Mapping[str, Any], setting: Setting, user_paths: Mapping[str, str], facts: HostFacts
) -> Refusal | None:
    """Return why the host would not keep an override when the run starts, or None.

    Args:
        values: plain values of the config, with every setting written.
        setting: the override.
        user_paths: path -> field of the recipe, for what to set instead.
        facts: of the host.
    """
    path, declared = setting.path, _declared_type(values, setting.path, facts)
    value = as_plain(value_at(values, path), declared)

    def advised(*paths: str) -> str:
        names = " and ".join(user_paths.get(one, f"{OVERRIDES}.{one}") for one in paths)
        return f"Set {names} instead."

    def refused(allowed: str, fix: str) -> Refusal:
        return _refusal(path, quoted(setting.value), allowed, fix, kind="not_kept")

    if path in WORKED_OUT:
        return refused("what Megatron-Bridge computes", advised(*WORKED_OUT[path]))
    other, without_effect = DEPENDENT.get(path, ("", None))
    if value and other and value_at(values, other) == without_effect:
        name = user_paths.get(other, other)
        return refused(f"none: it has no effect while {name} is {without_effect}", f"Remove it, or change {name}.")
    section, _, name = path.partition(".")
    for decider, sections in DECIDERS.items():
        decided = _deciding_fields(values, decider, facts).get(name, ...) if section in sections else ...
        if decided is not ... and decided != value:
            allowed = f"{_text(decided)}, which {decider} writes over it when the run starts"
            return refused(allowed, advised(f"{decider}.{name}"))
    return _recomputed_refusal(values, section, name, refused)


def _declared_type(values: Mapping[str, Any], path: str, facts: HostFacts) -> Any:
    section, _, name = path.rpartition(".")
    holder = value_at(values, section)
    return facts.types_of(str(holder.get("_target_", ""))).get(name, "any") if isinstance(holder, Mapping) else "any"


def _deciding_fields(values: Mapping[str, Any], decider: str, facts: HostFacts) -> Mapping[str, Any]:
    """Return the fields of a section that overwrites others."""
    source = values.get(decider)
    source = facts.registered_precision(source) if isinstance(source, str) else source
    return {name: value for name, value in (source or {}).items() if not name.startswith("_")}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("_name_") or value.get("_target_"))
    return quoted(value)


def _recomputed_refusal(values: Mapping[str, Any], section: str, name: str, refused: _Refuse) -> Refusal | None:
    """Return the refusal of a field that the class of its section computes or refuses when the run starts, or None.

    Source: megatron/bridge/training/config.py of 0.6.2, validate(): it runs `__post_init__` again if there is no
    `finalize`, so of the tokenizer, of megatron-core's own DistributedDataParallelConfig, and of DoRA.
    """
    held = values.get(section)
    if not isinstance(held, Mapping) or name not in held:
        return None
    kind = str(held.get("_target_", ""))
    if section == "tokenizer":
        return _tokenizer_refusal(held, name, refused)
    if section == "ddp" and kind.startswith("megatron.core."):
        return _gradients_refusal(held, name, refused)
    if section == "peft" and kind.endswith(".DoRA") and held.get("dropout_position") != "pre":
        return refused("dropout_position pre, which is all that DoRA takes", "Set it to pre, or use LoRA.")
    return None


def _tokenizer_refusal(held: Mapping[str, Any], name: str, refused: _Refuse) -> Refusal | None:
    if name == "pad_vocab_size":
        fix = "Remove it: Megatron-Bridge pads the vocabulary itself."
        return refused("False, to which TokenizerConfig sets it by itself", fix) if held[name] is not False else None
    if name not in OF_TOKENIZER:
        return None
    mapping, key, usual, is_negated = OF_TOKENIZER[name]
    stated = (held.get(mapping) or {}).get(key, usual)
    computed = not stated if is_negated else stated
    if held[name] == computed:
        return None
    fix = f"Remove it, and set {OVERRIDES}.tokenizer.{mapping}.{key}."
    return refused(f"{computed}, to which TokenizerConfig sets it by itself", fix)


def _gradients_refusal(held: Mapping[str, Any], name: str, refused: _Refuse) -> Refusal | None:
    """Source: megatron/core/distributed/distributed_data_parallel_config.py of 0.19.2, `__post_init__`."""
    buckets = held.get("num_buckets")
    if held.get("reuse_grad_buf_for_mxfp8_param_ag") and not held.get("fp8_param_gather"):
        return refused("reuse_grad_buf_for_mxfp8_param_ag only with fp8_param_gather", "Set both, or neither.")
    if held.get("param_name_patterns_for_fp32_local_accumulation") and held.get("grad_reduce_in_fp32"):
        allowed = "param_name_patterns_for_fp32_local_accumulation only without grad_reduce_in_fp32"
        return refused(allowed, "Set one of them.")
    if buckets is not None and (held.get("bucket_size") is not None or buckets <= 0):
        return refused("num_buckets above 0, and only without bucket_size", "Set one of them.")
    if name == "fsdp_double_buffer" and held.get("megatron_fsdp_max_pool_double_buffer") and not held[name]:
        fix = "Remove it, or set megatron_fsdp_max_pool_double_buffer to false."
        return refused("True, to which DistributedDataParallelConfig sets it by itself", fix)
    return None
