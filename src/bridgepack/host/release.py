"""One release of Megatron-Bridge: its versions, names, habits and facts. Data; nothing of the host is imported."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from bridgepack.host import roots
from bridgepack.host.facts import ReleaseFacts, facts_in

BRIDGE, CORE, ENGINE = "megatron-bridge", "megatron-core", "transformer-engine"


@dataclass(frozen=True, kw_only=True, eq=False)
class HostRelease:
    """One release of Megatron-Bridge. Canonical names are those of 0.6; a habit is one field with one reader."""

    name: str  #: as users call it, e.g. `0.6`
    versions: str  #: its versions as a specifier, e.g. `>=0.6,<0.7`
    bridge: str  #: the version of megatron-bridge that its facts were read from
    core: str  #: version of megatron-core that this version resolves to
    engine: str  #: version of transformer-engine that it was released with
    bases: Path  #: the file of its facts; `scripts/host_facts` writes it
    root: str = roots.CANONICAL  #: the package that its modules are imported from
    core_works: str  #: versions of megatron-core that work with it
    core_released: str  #: versions of megatron-core of the series that it was released with
    python: str  #: versions of Python that it can be installed for
    transformers: str  #: versions of transformers that its metadata allow
    needs: tuple[str, ...]  #: distributions that it does not start without, by their names in a listing
    withdrawn: tuple[str, ...] = ()  #: its versions that the authors withdrew
    is_known: bool = True  #: False for a version newer than every release here, which is treated like the newest
    #: architectures of the hub of which AutoBridge makes a config that is built from parts; of others, a provider
    built_from_parts: frozenset[str] = frozenset()
    #: canonical path of a setting -> its path in this release; a path stands for all below it
    renames: Mapping[str, str] = field(default_factory=dict)
    #: canonical dotted name of a class -> its name in this release, with the canonical package, too
    classes: Mapping[str, str] = field(default_factory=dict)
    #: canonical path of a setting -> its value in this release -> the canonical value
    values: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: class of the model section -> fields of `TextPacks` that differ from 0.6, by their names
    text_packs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    #: class of the model section -> where its language model is, as in `modules.LANGUAGE_MODEL`, of those that moved
    language_models: Mapping[str, str] = field(default_factory=dict)
    attention_variants: frozenset[str]  #: values of `model.experimental_attention_variant` that its core can build
    #: labels whose input is EOS are trained where the rows' mask says so; without it their mask is cleared
    trains_after_eos: bool = False
    gives_padding_mask: bool = False  #: packed batches tell the router of experts which tokens are padding
    #: the loader `batch` of evaluations keeps packs that fill no batch, and completes it with fillers
    keeps_last_evaluation_batch: bool = False
    #: the loader `single` with `drop_last` false refuses packs that give some data-parallel ranks fewer than others
    refuses_uneven_rest: bool = False
    #: under adapters the input of a hybrid model's layers requires a gradient where `recompute_method` is set
    frees_hybrid_inputs: bool = True
    expands_brackets: bool = False  #: a path to packs with brackets alone, `shard-[0-3].parquet`, is a pattern
    empties_null_content: bool = False  #: null content of a turn becomes an empty text before the template sees it
    #: JSON text of a call's arguments becomes an object before the template sees it; other text is refused
    parses_call_arguments: bool = False
    #: `<think></think>` and `<think>` with a line end are not trained where a turn begins with them, in chats of known
    #: families whose template reads `truncate_history_thinking`
    trims_thought_openings: bool = False
    #: a row of prompt and completion whose completion leaves no trained label stops the run; else nothing of it is
    #: trained
    refuses_untrained_completions: bool = False
    #: a checkpoint that it saved of a model that is built from parts can be loaded again
    loads_models_from_parts: bool = True

    def __contains__(self, text: str) -> bool:
        """Return whether a version is of this release; 0.6.2rc1 and 0.6.2+abc count as 0.6.2."""
        return SpecifierSet(self.versions).contains(Version(text).base_version, prereleases=True)

    @cached_property
    def facts(self) -> ReleaseFacts:
        """Its configs, classes and types, read once from its file."""
        return facts_in(self.bases)

    @property
    def companions(self) -> dict[str, str]:
        """Distribution -> version, of the release and the two that it comes with."""
        return {BRIDGE: self.bridge, CORE: self.core, ENGINE: self.engine}
