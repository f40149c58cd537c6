"""Small pieces: references, Slurm's ways to write things, the schema."""

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from bridgepack.config.cluster import ClusterConfig
from bridgepack.config.cluster.values import hide_secrets, resolve_references
from bridgepack.config.write import CLUSTER_SCHEMA_URL, cluster_schema
from bridgepack.errors import ConfigError
from tests.support.full_clusters import EXECUTORS as FULL
from tests.support.full_clusters import full_cluster

VALIDATOR = Draft202012Validator(cluster_schema())


def test_references_are_resolved_at_any_depth() -> None:
    values = {"a": "${env:A}/x", "b": [{"c": "${env:A}${env:B}"}], "d": 1, "e": "$A ${A}"}
    resolved = {**values, "a": "1/x", "b": [{"c": "1${env:A}"}]}

    assert resolve_references(values, {"A": "1", "B": "${env:A}"}, "executor") == resolved
    with pytest.raises(ConfigError, match=r"executor.client_secret is '\$\{env:B\}'; .* no variable"):
        resolve_references({"client_secret": "${env:B}"}, {"A": "1"}, "executor")
    with pytest.raises(ConfigError, match=r"allowed: \$\{env:NAME\}"):
        resolve_references({"a": "${env:}"}, {}, "executor")


@pytest.mark.parametrize("name", ["HF_TOKEN", "WANDB_API_KEY", "client_secret", "DB_PASSWORD", "AWS_SECRET_ACCESS_KEY"])
def test_secrets_are_known_by_their_names(name: str) -> None:
    assert hide_secrets({"x": {name: "hush"}}) == {"x": {name: "***"}}
    assert hide_secrets({name: "${env:A}"}) == {name: "${env:A}"}
    variable = {"env_list": [{"name": name, "value": "hush"}]}  # as Kubernetes writes it
    assert hide_secrets(variable) == {"env_list": [{"name": name, "value": "***"}]}
    shown = {
        **dict.fromkeys(("TOKENIZERS_PARALLELISM", "image_pull_secrets", "KEY_FILE_SYSTEM"), "shown"),
        "env_list": [{"name": "A", "value": "1"}],
        **{"secret_vars": {name: "hub"}, "valueFrom": {"secretKeyRef": {"name": "hub", "key": "token"}}},
    }
    assert hide_secrets(shown) == shown


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("time", time) for time in ("60", 60, "60:30", "4:00:00", "1-0", "1-00:00", "1-00:00:00", "UNLIMITED")),
        *(("array", array) for array in ("0-9%1", "3", 3, "1,2,5-9:2%1")),
    ],
)
def test_texts_as_slurm_takes_them(field: str, value: Any) -> None:
    values = {"executor": {"kind": "slurm", "account": "a", field: value}, "workspace": "/shared"}

    assert ClusterConfig.from_mapping(values).model_dump()["executor"][field] == str(value)


def test_every_field_says_what_it_means() -> None:
    sections = cluster_schema()["$defs"].values()
    fields = [field for section in sections for name, field in section.get("properties", {}).items() if name != "kind"]

    assert len(fields) > 100
    assert all(field["description"].endswith((".", "`")) for field in fields)


def test_schema_is_valid_published_and_takes_full_files() -> None:
    schema = cluster_schema()

    Draft202012Validator.check_schema(schema)
    assert schema["$id"] == CLUSTER_SCHEMA_URL
    for name, section in {"ClusterConfig": schema, **schema["$defs"]}.items():
        assert section["additionalProperties"] is (name == "NemoRunExecutor"), name
        assert all("description" in field for field in section["properties"].values()), name
    assert [error for kind in FULL for error in VALIDATOR.iter_errors(full_cluster(kind))] == []


@pytest.mark.parametrize(
    "executor",
    [
        {"kind": "slurm"},
        {"kind": "slurm", "account": "a", "nods": 1},
        {"kind": "slurm", "account": "a", "nodes": 0},
        {"kind": "slurm", "account": "a", "tunnel": {"kind": "ssh"}},
        {"kind": "nemo_run", "class": "a b"},
    ],
)
def test_schema_refuses_what_the_sections_refuse(executor: dict[str, Any]) -> None:
    values = {"executor": executor, "workspace": "/shared"}

    assert not VALIDATOR.is_valid(values)
    with pytest.raises(ConfigError):
        ClusterConfig.from_mapping(values)
