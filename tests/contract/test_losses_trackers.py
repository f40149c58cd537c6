"""Losses by source in the real W&B (offline), MLflow (a local store) and Comet (offline), where they are installed.

The test environment has none of them; `uv pip install wandb==0.29.0 mlflow-skinny sqlalchemy alembic comet-ml` adds
them. TensorBoard is asked in test_losses.py, in a real run. The host starts Comet online only; its object is the same.
"""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bridgepack.records.losses import SourceLoss
from bridgepack.running.losses.lines import tracker_names, tracker_values, write_to_trackers

#: Names of sources with what a tracker refuses.
NAMES = ("chats", "web/b", "é: 100%", "../up")
#: What they are called in W&B.
LABELS = {"chats": "chats", "web/b": "web/b", "é: 100%": "__ 100_", "../up": "up"}


def _write(state: dict[str, Any]) -> dict[tuple[str, int], float]:
    """Write losses of two steps and of an evaluation to trackers, and return (name in W&B, step) -> loss."""
    loggers = dict.fromkeys(("tensorboard_logger", "wandb_logger", "mlflow_logger", "comet_logger")) | state
    labels, written = tracker_names(NAMES, [4, 3, 2, 1]), {}
    assert labels == LABELS
    for split, step in (("training", 10), ("validation", 10), ("training", 20)):
        losses = [
            SourceLoss(
                step=step, first_step=1, split=split, source=name, loss_sum=step + place / 8, num_trained_tokens=8
            )
            for place, name in enumerate(NAMES)
        ]
        values = tracker_values(losses, labels)
        write_to_trackers(SimpleNamespace(**loggers), values, step)
        written |= {(name, step): value for name, value in values.items()}
    assert len(written) == 12
    return written


def test_wandb_gets_the_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="W&B is not in the test environment")
    records = pytest.importorskip("wandb.proto.wandb_internal_pb2")
    datastore = pytest.importorskip("wandb.sdk.internal.datastore")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    run = wandb.init(project="losses", dir=str(tmp_path))
    written = _write({"wandb_logger": wandb})
    wandb.finish()
    wandb.teardown()  # ends its process, too

    (file,) = Path(run.dir).parent.glob("*.wandb")
    store, values = datastore.DataStore(), {}
    store.open_for_scan(str(file))
    while (data := store.scan_data()) is not None:
        record = records.Record()
        record.ParseFromString(data)
        if record.WhichOneof("record_type") == "history":
            items = {item.key or item.nested_key[0]: float(item.value_json) for item in record.history.item}
            step = int(items["_step"])
            values |= {(name, step): value for name, value in items.items() if name.startswith("lm loss")}
    assert values == written


def test_mlflow_gets_the_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not in the test environment")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/mlflow.db")
    with mlflow.start_run() as run:
        written = _write({"mlflow_logger": mlflow})

    client = mlflow.MlflowClient()
    names = client.get_run(run.info.run_id).data.metrics
    values = {
        (name, metric.step): metric.value
        for name in names
        for metric in client.get_metric_history(run.info.run_id, name)
    }
    # the host writes `/` in names as `_`
    assert values == {
        ("lm loss/" + name.removeprefix("lm loss/").replace("/", "_"), step): value
        for (name, step), value in written.items()
    }


def test_comet_gets_the_losses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    comet = pytest.importorskip("comet_ml", reason="Comet is not in the test environment")
    monkeypatch.setenv("HOME", str(tmp_path))
    quiet = {"log_code": False, "log_env_details": False, "auto_metric_logging": False, "parse_args": False}
    experiment = comet.OfflineExperiment(project_name="losses", offline_directory=str(tmp_path), **quiet)
    written = _write({"comet_logger": experiment})
    experiment.end()

    (archive,) = tmp_path.glob("*.zip")
    with zipfile.ZipFile(archive) as files:
        messages = [json.loads(line)["payload"] for line in files.read("messages.json").splitlines()]
    metrics = [message["metric"] for message in messages if "lm loss" in str(message.get("metric"))]
    assert {(metric["metricName"], metric["step"]): metric["metricValue"] for metric in metrics} == written
