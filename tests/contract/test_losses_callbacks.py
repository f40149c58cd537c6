"""Losses by source as a callback: which micro batches count, when it reports, and that it never ends a run."""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from bridgepack.config.recipe.training import LossesConfig
from bridgepack.data.artifact.artifact import Artifact
from bridgepack.records.guarded import GroupSizes, RankPlace
from bridgepack.replay.collate import CollateSettings, padding_row, predict_batch
from bridgepack.running.guard.report import Notice
from bridgepack.running.losses import callback as callback_module
from bridgepack.running.losses import following as losses_module
from bridgepack.running.losses.callback import Losses
from tests.support import small_builds as small
from tests.support.installed_host import host_release

pytestmark = pytest.mark.bridge

NUM_MICRO_BATCHES = 2
#: Loss of each token of a row, by what it is: the one of source `b` is 3.
LOSS = {"a": 1.0, "b": 3.0}
#: A micro batch of which nothing is trained, as the host fills up the last batch of an epoch.
FILLER = -1


@pytest.fixture
def alone(bridge: ModuleType, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Make this process the only rank of a run with two micro batches a step."""
    import torch.distributed as dist
    from megatron.core import num_microbatches_calculator as calculator

    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    calculator.init_num_microbatches_calculator(0, None, NUM_MICRO_BATCHES, 1, 1)
    groups = SimpleNamespace(dp_cp=None, cp=SimpleNamespace(size=lambda: 1))
    monkeypatch.setattr(losses_module, "place_and_sizes", lambda model: (RankPlace(rank=0), GroupSizes()))
    for module in (losses_module, callback_module):
        monkeypatch.setattr(module, "groups_of", lambda model: groups)
    monkeypatch.setattr(
        losses_module,
        "config_of_container",
        lambda cfg, place: SimpleNamespace(values={"dataset": {"enable_offline_packing": cfg.is_packed}}),
    )
    yield
    calculator.destroy_num_microbatches_calculator()
    dist.destroy_process_group()


@pytest.fixture
def artifact(tmp_path: Path, chatml_tokenizer: Path) -> Path:
    """Return an artifact whose packs each hold a sequence of 7 trained tokens of `a`, and one of 3 of `b`."""
    rows = {"a": [range(10 + n, 18 + n) for n in range(8)], "b": [range(50 + n, 54 + n) for n in range(8)]}
    sources = [
        {"path": str(small.write_json_lines(tmp_path / f"{name}.jsonl", [small.tokenized_row(*ids) for ids in some])),
         "name": name}
        for name, some in rows.items()
    ]  # fmt: skip
    recipe = small.tokenized_recipe(sources, chatml_tokenizer, packing__packed_sequence_size=10)
    small.build(recipe.override({"data.validation": sources}), tmp_path / "packs")
    return tmp_path / "packs"


class Board(dict[tuple[str, int], float]):
    """A tracker of the host's."""

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self[name, step] = value


class Run:
    """A training loop of the host that reads the packs of an artifact in any order."""

    def __init__(self, losses: Losses, artifact: Path, **cfg: Any) -> None:
        specs = SimpleNamespace(
            packed_train_data_path=str(artifact / "training"), packed_val_data_path=str(artifact / "validation")
        )
        model = SimpleNamespace(cuda_graph_impl="none", cuda_graph_warmup_steps=0, **cfg.pop("model", {}))
        values: dict[str, Any] = {
            "model": model,
            "is_packed": True,
            "dataset": SimpleNamespace(offline_packing_specs=specs),
            "logger": SimpleNamespace(log_interval=2),
            "checkpoint": SimpleNamespace(save=None, save_interval=None),
            **cfg,
        }
        self.board = Board()
        self.state = SimpleNamespace(
            cfg=SimpleNamespace(**values),
            train_state=SimpleNamespace(step=0),
            tensorboard_logger=self.board,
            **dict.fromkeys(("wandb_logger", "mlflow_logger", "comet_logger")),
        )
        self.model = [torch.nn.Linear(1, 1)]
        self.losses, self.packs = losses, Artifact(artifact)
        self.forward_step = losses.watching(self._step)
        self.loss_function: Any = None

    def batch(self, split: str, pack: int) -> dict[str, Any]:
        settings = CollateSettings(
            release=host_release(),
            packed_sequence_size=10,
            pad_seq_to_mult=1,
            eos_token_id=int(self.packs.manifest.tokenizer["eos_token_id"]),
            pad_to_max_length=True,
        )
        row = self.packs.row(split, max(pack, 0))
        batch = predict_batch([padding_row(row) if pack == FILLER else row], settings)
        names = ("tokens", "loss_mask", "cu_seqlens")
        return {name: torch.from_numpy(getattr(batch, name)) for name in names}

    def _step(self, data_iterator: Any, model: Any) -> Any:
        from megatron.bridge.training.losses import masked_next_token_loss

        batch = next(data_iterator)
        output = torch.where(batch["tokens"] < 50, LOSS["a"], LOSS["b"])
        return output, self.loss_function or partial(masked_next_token_loss, batch["loss_mask"].float())

    def read(self, split: str, packs: list[int]) -> None:
        batches = iter([self.batch(split, pack) for pack in packs])
        for _ in packs:
            output, loss_function = self.forward_step(self.state, batches, self.model[0])
            loss_function(output)

    def context(self, **values: Any) -> Any:
        return SimpleNamespace(state=self.state, model=self.model, loss_dict={"lm loss": 1}, **values)

    def train(self, *steps: list[int], skips: tuple[int, ...] = ()) -> None:
        for number, packs in enumerate(steps, 1):
            self.losses.on_train_step_start(self.context())
            self.read("training", packs)
            self.losses.on_train_step_end(self.context(skipped_iter=number in skips))
            self.state.train_state.step += 1

    def evaluate(self, *steps: list[int]) -> None:
        self.losses.on_eval_start(self.context())
        for packs in steps:
            self.read("validation", packs)
            self.losses.on_eval_step_end(self.context())
        self.losses.on_eval_end(self.context())


@pytest.fixture
def notices() -> list[Notice]:
    return []


@pytest.fixture
def losses(tmp_path: Path, artifact: Path, notices: list[Notice]) -> Losses:
    return Losses(artifact=artifact, folder=tmp_path / "losses", on_notice=notices.append)


def _lines(tmp_path: Path) -> list[dict[str, Any]]:
    path = tmp_path / "losses" / "by-source.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _tokens(tmp_path: Path) -> dict[tuple[str, int, int, str | None], tuple[float, int]]:
    return {
        (line["split"], line["first_step"], line["step"], line["source"]): (
            line["loss_sum"],
            line["num_trained_tokens"],
        )
        for line in _lines(tmp_path)
    }


def _of_packs(split: str, first_step: int, step: int, num_packs: int) -> Mapping[Any, tuple[float, int]]:
    return {
        (split, first_step, step, "a"): (7.0 * num_packs, 7 * num_packs),
        (split, first_step, step, "b"): (9.0 * num_packs, 3 * num_packs),
    }


@pytest.mark.usefixtures("alone")
def test_intervals_end_with_the_host_s_at_checkpoints_and_at_the_end(
    losses: Losses, artifact: Path, tmp_path: Path, notices: list[Notice]
) -> None:
    run = Run(losses, artifact, checkpoint=SimpleNamespace(save="there", save_interval=3))
    losses.on_train_start(run.context())
    run.train(*[[0, 1]] * 5)
    losses.on_train_end(run.context())

    spans = [(1, 2), (3, 3), (4, 4), (5, 5)]
    expected = [_of_packs("training", first, last, 2 * (last - first + 1)) for first, last in spans]
    assert _tokens(tmp_path) == {key: value for part in expected for key, value in part.items()}
    assert run.board == {(f"lm loss/{name}", last): LOSS[name] for _, last in spans for name in LOSS}
    assert notices == []


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("async_save", [False, True])
def test_a_checkpoint_that_is_saved_at_once_ends_an_interval(
    losses: Losses, artifact: Path, tmp_path: Path, async_save: bool
) -> None:
    run = Run(losses, artifact, checkpoint=SimpleNamespace(save="there", save_interval=None, async_save=async_save))
    losses.on_train_start(run.context())
    run.train([0, 1])
    losses.on_checkpoint_save(run.context())

    assert _tokens(tmp_path) == ({} if async_save else _of_packs("training", 1, 1, 2))


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("packs", "num_packs"), [([0, 1, 0, 1, 0, 1], 4), ([0, FILLER, 0, FILLER], 3), ([FILLER, FILLER], 2)]
)
def test_the_last_run_of_a_step_counts(
    losses: Losses, artifact: Path, tmp_path: Path, packs: list[int], num_packs: int
) -> None:
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    run.train(packs, [2, 3])

    assert _tokens(tmp_path) == _of_packs("training", 1, 2, num_packs)


@pytest.mark.usefixtures("alone")
def test_a_skipped_step_does_not_count(losses: Losses, artifact: Path, tmp_path: Path) -> None:
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    run.train([0, 1], [2, 3], skips=(1,))

    assert _tokens(tmp_path) == _of_packs("training", 2, 2, 2)


@pytest.mark.usefixtures("alone")
def test_evaluations_stand_beside_training(losses: Losses, artifact: Path, tmp_path: Path) -> None:
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    run.train([0, 1])
    # the sets have packs of their own: 8 of `a`, of one sequence each, and 3 of `b`
    run.evaluate([*range(6)], [*range(6, 11)])
    run.train([2, 3])
    losses.on_train_end(run.context())
    run.evaluate([*range(11)])

    assert _tokens(tmp_path) == {
        **_of_packs("validation", 1, 1, 8),
        **_of_packs("training", 1, 2, 4),
        **_of_packs("validation", 2, 2, 8),
    }
    assert run.board["lm loss/b validation", 2] == LOSS["b"]


@pytest.mark.usefixtures("alone")
def test_what_a_test_reads_counts_nowhere(
    losses: Losses, artifact: Path, tmp_path: Path, notices: list[Notice]
) -> None:
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    run.train([0, 1])
    losses.on_test_start(run.context())
    run.read("training", [2, 3, 0])
    losses.on_test_end(run.context())
    run.train([2, 3])

    assert _tokens(tmp_path) == _of_packs("training", 1, 2, 4)
    assert notices == []


@pytest.mark.usefixtures("alone")
def test_an_evaluation_on_other_context_ranks_than_its_groups_say_is_not_guessed(
    losses: Losses, artifact: Path, tmp_path: Path, notices: list[Notice], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host evaluates on other ranks only where the caller swaps its groups; here they say 2, and rows are whole."""
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    run.train([0, 1])
    groups = SimpleNamespace(dp_cp=None, cp=SimpleNamespace(size=lambda: 2))
    with monkeypatch.context() as patch:
        patch.setattr(callback_module, "groups_of", lambda model: groups)
        losses.on_eval_start(run.context())
    run.read("validation", [*range(11)])
    losses.on_eval_step_end(run.context())
    losses.on_eval_end(run.context())
    run.train([2, 3])

    assert _tokens(tmp_path)["validation", 1, 1, None] == (56.0 + 72.0, 80)
    assert {key[3] for key in _tokens(tmp_path) if key[0] == "validation"} == {None}
    assert _tokens(tmp_path)["training", 1, 2, "a"] == (28.0, 28)
    assert [notice.kind for notice in notices] == ["doubt"]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("reports", [True, False])
def test_losses_of_a_function_of_the_user_s_own_belong_to_no_source(
    losses: Losses, artifact: Path, tmp_path: Path, notices: list[Notice], reports: bool
) -> None:
    run = Run(losses, artifact)
    report = {"lm loss": torch.tensor([8.0, 5.0])} if reports else {}
    run.loss_function = lambda output: (output.sum(), torch.tensor(5), report)
    losses.on_train_start(run.context())
    run.train([0, 1], [2, 3])

    assert _tokens(tmp_path) == ({("training", 1, 2, None): (32.0, 20)} if reports else {})
    assert run.board == {}
    assert [notice.kind for notice in notices] == ["doubt"]


@pytest.mark.usefixtures("alone")
def test_packs_of_another_artifact_belong_to_no_source(
    losses: Losses, artifact: Path, tmp_path: Path, notices: list[Notice]
) -> None:
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    batch = run.batch("training", 0)
    batch["tokens"][0, 1] += 1
    run.batch = lambda split, pack: batch  # type: ignore[method-assign]
    run.train([0, 1], [2, 3])

    assert _tokens(tmp_path) == {("training", 1, 2, None): (4 * 16.0, 40)}
    assert [line["unattributed"] for line in _lines(tmp_path)] == [40]
    assert [notice.kind for notice in notices] == ["doubt"]


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize(
    ("cfg", "settings", "kinds"),
    [
        ({"is_packed": False}, {"by_source": True}, ["unseen"]),
        ({"model": {"cuda_graph_impl": "full_iteration"}}, {}, ["unseen"]),
        ({}, {"by_source": False}, []),
    ],
    ids=["no packs", "a graph of whole steps", "switched off"],
)
def test_what_cannot_be_followed_is_told_once_and_changes_nothing(
    artifact: Path, tmp_path: Path, notices: list[Notice], cfg: Any, settings: Any, kinds: list[str]
) -> None:
    options: Any = {"settings": LossesConfig(**settings), "on_notice": notices.append}
    losses = Losses(artifact=artifact, folder=tmp_path / "losses", **options)
    run = Run(losses, artifact, **{**cfg, "model": {}})
    vars(run.state.cfg.model).update(cfg.get("model", {}))
    losses.on_train_start(run.context())
    run.train([0, 1], [2, 3])
    run.evaluate([0, 1])

    assert [notice.kind for notice in notices] == kinds
    assert not (tmp_path / "losses").exists()


@pytest.mark.usefixtures("alone")
def test_a_folder_that_cannot_be_written_ends_the_reports_alone(
    losses: Losses, artifact: Path, tmp_path: Path, notices: list[Notice]
) -> None:
    (tmp_path / "losses").write_text("a file")
    run = Run(losses, artifact)
    losses.on_train_start(run.context())
    run.train([0, 1], [2, 3], [0, 1], [2, 3])

    assert [notice.kind for notice in notices] == ["failed", "incomplete"]
    assert run.board == {}


@pytest.mark.usefixtures("alone")
def test_one_source_is_followed_only_where_it_is_asked_for(
    artifact: Path, tmp_path: Path, chatml_tokenizer: Path, notices: list[Notice]
) -> None:
    train = small.write_json_lines(tmp_path / "c.jsonl", [small.tokenized_row(*range(10, 18))])
    small.build(small.tokenized_recipe(train, chatml_tokenizer, packing__packed_sequence_size=10), tmp_path / "single")
    for by_source in (None, True):
        settings = LossesConfig(by_source=by_source, every_steps=1)
        losses = Losses(
            artifact=tmp_path / "single", folder=tmp_path / "losses", settings=settings, on_notice=notices.append
        )
        run = Run(losses, tmp_path / "single")
        losses.on_train_start(run.context())
        run.train([0, 0])

    assert [(line["step"], line["num_trained_tokens"]) for line in _lines(tmp_path)] == [(1, 14)]
    assert [notice.kind for notice in notices] == ["unseen"]
