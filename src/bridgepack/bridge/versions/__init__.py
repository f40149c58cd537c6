"""One adapter for all versions of Megatron-Bridge since 0.3: a recipe's settings under the names each of them has.

Example: `mapped = settings_for(host_settings(recipe, packs=packs), "0.5.1")`, then inside an environment that has this
version `configured(base, mapped)`, or `packing_objects(mapped)` for the dataset alone.
"""

from bridgepack.bridge.versions.mapping import LostSetting, VersionSettings, settings_for
from bridgepack.bridge.versions.objects import PackingObjects, configured, host_class, packing_objects
from bridgepack.releases import RELEASES, HostRelease, installed_host, release_of

__all__ = [
    "RELEASES",
    "HostRelease",
    "LostSetting",
    "PackingObjects",
    "VersionSettings",
    "configured",
    "host_class",
    "installed_host",
    "packing_objects",
    "release_of",
    "settings_for",
]
