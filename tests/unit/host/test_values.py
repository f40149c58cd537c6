"""A value that a release calls otherwise is read as its canonical one."""

from typing import Any

import pytest

from bridgepack.host import V06, V07
from bridgepack.host.names import in_canonical_names
from bridgepack.host.release import HostRelease

VARIANT = "experimental_attention_variant"


@pytest.mark.parametrize(
    ("release", "value", "expected"),
    [
        (V07, "gdn", "gated_delta_net"),
        (V07, "gated_delta_net", "gated_delta_net"),
        (V07, "gdn2", "gdn2"),
        (V07, None, None),
        (V06, "gdn", "gdn"),
    ],
)
def test_gated_delta_nets_have_one_name(release: HostRelease, value: Any, expected: Any) -> None:
    given = {"model": {VARIANT: value, "num_layers": 2}}
    values, moved = in_canonical_names(given, release)
    assert values["model"] == {VARIANT: expected, "num_layers": 2}
    assert moved == {}
    assert given["model"][VARIANT] == value
    assert in_canonical_names({"model": {}}, release)[0] == {"model": {}}
