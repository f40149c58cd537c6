"""Refusals of overrides: of fields that the host does not have, of values of the wrong type, of what it does not keep.

Source: bridge/writing/assign.py, which writes the same settings into a live config of the host.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from bridgepack.bridge.bases import is_left_out, new_section
from bridgepack.bridge.inherited import is_decided
from bridgepack.bridge.plain import value_at
from bridgepack.bridge.wiring import Setting
from bridgepack.config.errors import did_you_mean, known_names, quote
from bridgepack.config.recipe.recipe import SFTRecipe
from bridgepack.host import HostRelease
from bridgepack.host.facts import CONTAINER, FUNCTION, ReleaseFacts, as_plain, class_in, holds_mapping
from bridgepack.host.names import name_in
from bridgepack.host.overwritten import DECIDERS, DEPENDENT, OF_TOKENIZER, WORKED_OUT
from bridgepack.records import Change, Refusal
from bridgepack.records.messages import join, say, setting

_PRECISION = "mixed_precision"
#: Likeness of two names, from 0 to 1, from which one is the other misspelt.
_BEYOND_DOUBT = 0.9
_MAX_NAMES = 20


@dataclass(frozen=True, kw_only=True, slots=True)
class HostObject:
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

    def inner(self, node: Any, kind: str, path: str) -> "HostObject":
        """Return the place of an object in a field of this one."""
        return HostObject(node=node, kind=kind, above=path, release=self.release)

    def below(self, name: str) -> str:
        """Return the path of a field."""
        return f"{self.above}.{name}".removeprefix(".")


def refused_path(
    values: Mapping[str, Any], override: Setting, settings: Mapping[str, Setting], recipe: SFTRecipe
) -> Refusal | None:
    """Return why an override cannot be written: its path leads nowhere, or its value does not fit; or None.

    Args:
        values: plain values of the config, before the override is written.
        override: the override.
        settings: path -> every setting of the recipe.
        recipe: the recipe, for its host, and for the correction of a misspelt name.
    """
    release, overrides = recipe.release, recipe.bridge_overrides
    node = {**dict.fromkeys(release.facts.sections), **values}
    owner = HostObject(node=node, kind=CONTAINER, above="", release=release)
    *sections, leaf = override.path.split(".")
    for name in sections:
        step = _step(owner, name, override, settings, overrides)
        if not isinstance(step, HostObject):
            return step
        owner = step
    if owner.node is None:
        return None
    return _nowhere(owner, leaf, settings, overrides) or _unfit(owner, leaf, override)


def _step(
    owner: HostObject, name: str, override: Setting, settings: Mapping[str, Setting], overrides: Mapping[str, Any]
) -> HostObject | Refusal | None:
    """Return the object at a field, a refusal, or None where nothing below is known."""
    refusal = _nowhere(owner, name, settings, overrides)
    if refusal is not None:
        return refusal
    node, path, field_type = owner.node.get(name), owner.below(name), owner.field_type(name)
    if path not in owner.release.facts.sections and is_left_out(owner.release, path):
        return None
    if path == _PRECISION and isinstance(node, str):
        facts = owner.release.facts
        node = facts.registered_precision(node) or facts.precision_by_name("bf16_mixed")
    if node is None:
        return _object_for_null(owner, name, override, settings)
    if isinstance(node, Mapping):
        return owner.inner(node, str(node.get("_target_", "")), path) if "_target_" in node else None
    if isinstance(node, (bool, int, float, str)):
        below, position = override.path.removeprefix(f"{path}.").partition(".")[0], f"below {path}, a plain value"
        fix = say("Set {path} as a whole.", path=setting(path))
        return _refusal(f"{path}.{below}", f"{position}, {quote(node)}", "fields of objects", fix)
    return None if field_type == "any" or isinstance(node, (list, tuple)) else owner.inner({}, "", path)


def _object_for_null(
    owner: HostObject, name: str, override: Setting, settings: Mapping[str, Setting]
) -> HostObject | Refusal | None:
    """Return the object that the host makes of a field that is null, a refusal, or None for a mapping of any names."""
    field_type, path = owner.field_type(name), owner.below(name)
    if owner.above == "" and path == "model":
        return None
    if field_type == "any" or holds_mapping(field_type):
        return None
    kind, position = class_in(field_type), f"below {path}, which is null"
    if path == "peft":
        return _refusal(override.path, position, "with method.kind lora or dora", "Set method.kind, or remove it.")
    if kind is None:
        fix = say("Set {path} first, or remove it.", path=setting(path))
        return _refusal(override.path, position, say("with {path}", path=setting(path)), fix)
    missing = [field for field in owner.release.facts.required_of(kind) if f"{path}.{field}" not in settings]
    if missing:
        names = join(setting(f"{path}.{field}") for field in missing)
        cure = f"Set it, too, or take a base recipe that has {path}."
        return _refusal(override.path, position, say("with {names}", names=names), cure)
    fields = owner.release.facts.types_of(kind)
    return owner.inner(new_section(owner.release, path) or dict.fromkeys(fields), kind, path) if fields else None


def _nowhere(
    owner: HostObject, name: str, settings: Mapping[str, Setting], overrides: Mapping[str, Any]
) -> Refusal | None:
    """Return the refusal of a name that an object does not have, or None."""
    path, is_public = owner.below(name), not name.startswith("_")
    if is_public and (name in owner.node or name in owner.fields or is_left_out(owner.release, path)):
        return None
    if not owner.kind:
        return None
    names = sorted({field for field in (*owner.node, *owner.fields) if not field.startswith("_")})
    fix = did_you_mean(name, names, f"It has: {', '.join(names[:_MAX_NAMES])}.")
    change = _correction(owner, name, names, settings, overrides)
    refusal = _refusal(path, f"no field of {owner.title}", "one of its fields", fix, change)
    return replace(refusal, owner=owner.kind)


def _correction(
    owner: HostObject, name: str, names: list[str], settings: Mapping[str, Setting], overrides: Mapping[str, Any]
) -> Change | None:
    matches = get_close_matches(name, names, n=2, cutoff=_BEYOND_DOUBT)
    section = value_at(overrides, owner.above) if owner.above else None
    if len(matches) != 1 or not isinstance(section, Mapping) or is_decided(f"{owner.above}.{matches[0]}", settings):
        return None
    correction = {matches[0] if key == name else key: value for key, value in section.items()}
    return Change(path=owner.above, value=correction, why=f"{name} is a misspelt {matches[0]}")


def _unfit(owner: HostObject, name: str, override: Setting) -> Refusal | None:
    """Return the refusal of a value of the wrong type, or None."""
    value, path, facts = override.value, override.path, owner.release.facts
    if path == _PRECISION and isinstance(value, str):
        if facts.registered_precision(value) is not None:
            return None
        allowed_values, _, hint = known_names(value, facts.precision_names).removeprefix("allowed: ").partition(". ")
        return _refusal(path, quote(value), allowed_values, hint, kind="unfit")
    is_kept = (value == {} and owner.node.get(name) is not None) or (
        value is None and name in owner.node and owner.node[name] is None
    )
    field_type = owner.field_type(name)
    reason = None if is_kept else facts.why_unfit(value, field_type)
    if reason is None:
        return None
    if owner.kind == CONTAINER:
        reason = "a section with named fields" + (
            ", or null for none" if facts.why_unfit(None, field_type) is None else ""
        )
    fix = "Set it on the ConfigContainer in Python." if FUNCTION in reason else "Use one of these."
    return _refusal(path, quote(value), reason, fix, kind="unfit")


def _refusal(
    path: str, text: str, allowed_values: str, fix: str, change: Change | None = None, *, kind: Any = "nowhere"
) -> Refusal:
    return Refusal(kind=kind, path=path, found=text, allowed=allowed_values, fix=fix, change=change)


#: Makes the refusal of the override at hand: of what is allowed, and what to do.
type _Refuse = Callable[[str, str], Refusal]


def why_not_kept(values: Mapping[str, Any], override: Setting, facts: ReleaseFacts) -> Refusal | None:
    """Return why the host would not keep an override when the run starts, or None.

    Args:
        values: plain values of the config, with every setting written.
        override: the override.
        facts: of the host.
    """
    path, field_type = override.path, _declared_type(values, override.path, facts)
    value = as_plain(value_at(values, path), field_type)

    def advice(*paths: str) -> str:
        return say("Set {paths} instead.", paths=setting(*paths))

    def refusal(allowed_values: str, fix: str) -> Refusal:
        return _refusal(path, quote(override.value), allowed_values, fix, kind="not_kept")

    if path in WORKED_OUT:
        return refusal("what Megatron-Bridge computes", advice(*WORKED_OUT[path]))
    switch, without_effect = DEPENDENT.get(path, ("", None))
    if value and switch and value_at(values, switch) == without_effect:
        at = setting(switch)
        allowed_values = say("none: it has no effect while {path} is {value}", path=at, value=without_effect)
        return refusal(allowed_values, say("Remove it, or change {path}.", path=at))
    section, _, name = path.partition(".")
    for decider, sections in DECIDERS.items():
        final = _deciding_fields(values, decider, facts).get(name, ...) if section in sections else ...
        if final is not ... and final != value:
            written_over = f"{_text(final)}, which {decider} writes over it when the run starts"
            return refusal(written_over, advice(f"{decider}.{name}"))
    return _recomputed_refusal(values, section, name, refusal)


def _declared_type(values: Mapping[str, Any], path: str, facts: ReleaseFacts) -> Any:
    section, _, name = path.rpartition(".")
    holder = value_at(values, section)
    return facts.types_of(str(holder.get("_target_", ""))).get(name, "any") if isinstance(holder, Mapping) else "any"


def _deciding_fields(values: Mapping[str, Any], decider: str, facts: ReleaseFacts) -> Mapping[str, Any]:
    """Return the fields of a section that overwrites others."""
    source = values.get(decider)
    source = facts.registered_precision(source) if isinstance(source, str) else source
    return {name: value for name, value in (source or {}).items() if not name.startswith("_")}


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("_name_") or value.get("_target_"))
    return quote(value)


def _recomputed_refusal(values: Mapping[str, Any], section: str, name: str, refusal: _Refuse) -> Refusal | None:
    """Return the refusal of a field that the class of its section computes or refuses when the run starts, or None.

    Source: megatron/bridge/training/config.py of 0.6.2, validate(): it runs `__post_init__` again if there is no
    `finalize`, so of the tokenizer, of megatron-core's own DistributedDataParallelConfig, and of DoRA.
    """
    node = values.get(section)
    if not isinstance(node, Mapping) or name not in node:
        return None
    kind = str(node.get("_target_", ""))
    if section == "tokenizer":
        return _tokenizer_refusal(node, name, refusal)
    if section == "ddp" and kind.startswith("megatron.core."):
        return _gradients_refusal(node, name, refusal)
    if section == "peft" and kind.endswith(".DoRA") and node.get("dropout_position") != "pre":
        return refusal("dropout_position pre, which is all that DoRA takes", "Set it to pre, or use LoRA.")
    return None


def _tokenizer_refusal(node: Mapping[str, Any], name: str, refusal: _Refuse) -> Refusal | None:
    if name == "pad_vocab_size":
        fix = "Remove it: Megatron-Bridge pads the vocabulary itself."
        return refusal("False, to which TokenizerConfig sets it by itself", fix) if node[name] is not False else None
    if name not in OF_TOKENIZER:
        return None
    mapping, key, usual, is_negated = OF_TOKENIZER[name]
    value = (node.get(mapping) or {}).get(key, usual)
    result = not value if is_negated else value
    if node[name] == result:
        return None
    fix = say("Remove it, and set {path}.", path=setting(f"tokenizer.{mapping}.{key}"))
    return refusal(f"{result}, to which TokenizerConfig sets it by itself", fix)


def _gradients_refusal(node: Mapping[str, Any], name: str, refusal: _Refuse) -> Refusal | None:
    """Source: megatron/core/distributed/distributed_data_parallel_config.py of 0.19.2, `__post_init__`."""
    buckets = node.get("num_buckets")
    if node.get("reuse_grad_buf_for_mxfp8_param_ag") and not node.get("fp8_param_gather"):
        return refusal("reuse_grad_buf_for_mxfp8_param_ag only with fp8_param_gather", "Set both, or neither.")
    if node.get("param_name_patterns_for_fp32_local_accumulation") and node.get("grad_reduce_in_fp32"):
        allowed_values = "param_name_patterns_for_fp32_local_accumulation only without grad_reduce_in_fp32"
        return refusal(allowed_values, "Set one of them.")
    if buckets is not None and (node.get("bucket_size") is not None or buckets <= 0):
        return refusal("num_buckets above 0, and only without bucket_size", "Set one of them.")
    if name == "fsdp_double_buffer" and node.get("megatron_fsdp_max_pool_double_buffer") and not node[name]:
        fix = "Remove it, or set megatron_fsdp_max_pool_double_buffer to false."
        return refusal("True, to which DistributedDataParallelConfig sets it by itself", fix)
    return None
