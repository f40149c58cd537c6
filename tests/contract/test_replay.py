"""Every replayed step holds the packs that the real loaders give the real training loop."""

import functools
import os
import random
from collections import Counter
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from bridgepack.bridge.replay_settings import evaluation_schedule, replay_settings
from bridgepack.data.shards.row_groups import iter_row_groups
from bridgepack.errors import ConfigError
from bridgepack.geometry import IntArray
from bridgepack.records import TRAIN, VALIDATION, PackedRow, RunConfig
from bridgepack.replay.collate import CollateSettings, predict_batch
from bridgepack.replay.order import FILLER, PackOrder
from bridgepack.replay.samplers import torch_permutation
from bridgepack.replay.settings import ReplaySettings, Topology
from tests.support.host_datasets import host_dataset_config, open_host_dataset
from tests.support.installed_host import host_release, host_version
from tests.support.packed_rows import EOS_TOKEN_ID, write_shards

pytestmark = [pytest.mark.bridge, pytest.mark.usefixtures("bridge")]

INSTALLED = host_version()
#: Generated runs; `BRIDGEPACK_REPLAY_CASES=400` for a longer comparison.
NUM_CASES = int(os.environ.get("BRIDGEPACK_REPLAY_CASES", "60"))
SIZE, NUM_ID_TOKENS = 24, 4
COLLATE = CollateSettings(
    release=host_release(),
    packed_sequence_size=SIZE,
    pad_seq_to_mult=1,
    eos_token_id=EOS_TOKEN_ID,
    pad_to_max_length=True,
)
#: Token ids that a pack's number is written in; neither EOS nor 0.
FIRST_DIGIT, BASE = 3, 9
#: Of a step: rank -> micro batch -> packs, and the tokens that it trains.
Step = tuple[list[list[list[int]]], int]
#: What the host raises where it stops.
STOPS = (AssertionError, StopIteration, RuntimeError, ZeroDivisionError, ValueError, IndexError)


@pytest.fixture(scope="module", autouse=True)
def _one_thread(bridge: ModuleType) -> Iterator[None]:
    """Let torch compute on one thread: its operations are small here, and threads wait for each other."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def _row(index: int, rng: np.random.Generator) -> PackedRow:
    """Return a pack that begins with its number, trains its first token, and may hold EOS."""
    digits = [FIRST_DIGIT + index // BASE**place % BASE for place in range(NUM_ID_TOKENS)]
    first = np.array([*digits, *rng.integers(0, 12, size=rng.integers(1, 8))])
    second = rng.integers(0, 12, size=rng.integers(2, 8))
    mask = rng.integers(0, 2, size=len(first) + len(second))
    mask[0] = 1
    return PackedRow(
        input_ids=np.concatenate((first, second)).astype(np.int32),
        loss_mask=mask.astype(np.int8),
        seq_start_id=np.array([0, len(first)], dtype=np.int32),
    )


def _write_packs(folder: Path, num_packs: int, seed: int) -> IntArray:
    """Write packs in up to three shards and return the tokens that each trains."""
    rng = np.random.default_rng(seed)
    rows = [_row(index, rng) for index in range(num_packs)]
    write_shards(folder, rows, num_shards=min(3, num_packs), row_group_size=16)
    shards = sorted(folder.iterdir())
    batches = [batch for shard in shards for batch in iter_row_groups(shard, shard.name, max_tokens=50)]
    stored = [batch.row(index) for batch in batches for index in range(batch.num_rows)]
    return predict_batch(stored, COLLATE).loss_mask.sum(axis=1)


def _packs_in(batch: dict[str, Any]) -> tuple[list[int], int]:
    """Return the packs that a batch of the host holds, and the tokens that it trains."""
    digits = batch["tokens"][:, :NUM_ID_TOKENS].numpy() - FIRST_DIGIT
    packs = (digits * BASE ** np.arange(NUM_ID_TOKENS)).sum(axis=1)
    trained = batch["loss_mask"].sum(dim=1).numpy()
    return np.where(trained == 0, FILLER, packs).tolist(), int(trained.sum())


class _NotForever:
    """A loader that cannot be asked for ever: it stops where it would give nothing again and again."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        num_batches = 0
        for batch in self._loader:
            num_batches += 1
            yield batch
        if num_batches == 0:
            raise RuntimeError("the host waits forever")


def _iterators(dataset: Any, settings: ReplaySettings, consumed: int) -> list[Any]:
    """Return one iterator per data-parallel rank, as the host's loaders.py makes them."""
    from megatron.bridge.data.loaders import cyclic_iter
    from megatron.bridge.data.samplers import build_pretraining_data_loader

    iterators = []
    for rank in range(settings.topology.data_parallel_size):
        loader = build_pretraining_data_loader(
            dataset,
            consumed,
            settings.loader,
            settings.micro_batch_size,
            0,
            settings.data_sharding,
            collate_fn=dataset.collate_fn,
            pin_memory=False,
            data_parallel_rank=rank,
            data_parallel_size=settings.topology.data_parallel_size,
            global_batch_size=settings.global_batch_size,
            drop_last=settings.drop_last,
            seed=settings.seed,
        )
        iterators.append(iter(loader if settings.loader == "single" else cyclic_iter(_NotForever(loader))))
    return iterators


def _host_steps(dataset: Any, settings: ReplaySettings, consumed: int, num_steps: int) -> Iterator[Step]:
    from megatron.bridge.data.batch_utils import prepare_finetuning_batch

    num_micro_batches = settings.global_batch_size // settings.packs_per_pass
    iterators = _iterators(dataset, settings, consumed)
    for _ in range(num_steps):
        step, total = [], 0
        for iterator in iterators:
            batches = iterator
            if settings.loader == "batch":
                batches, _ = prepare_finetuning_batch(iterator, num_micro_batches, SIZE)
            read = [_packs_in(next(batches)) for _ in range(num_micro_batches)]
            step.append([packs for packs, _ in read])
            total += sum(tokens for _, tokens in read)
        yield step, total


def _own_steps(settings: ReplaySettings, trained_tokens: IntArray, num_steps: int) -> Iterator[Step]:
    order, ranks = PackOrder(settings), range(settings.topology.data_parallel_size)
    for step in range(order.first_step, order.first_step + num_steps):
        packs = np.concatenate([order.packs_at(step, rank) for rank in ranks])
        micro_batches = [[packs.tolist() for packs in order.micro_batches_at(step, rank)] for rank in ranks]
        yield micro_batches, int(trained_tokens[packs[packs != FILLER]].sum())


def _until_it_stops(steps: Iterator[Step], stops: tuple[type[Exception], ...]) -> tuple[list[Step], bool]:
    found = []
    try:
        for step in steps:
            found.append(step)
    except stops:
        return found, True
    return found, False


def _case(rng: random.Random) -> tuple[ReplaySettings, int]:
    """Draw a run and how many of its steps to compare: some three epochs."""
    topology = Topology(
        world_size=rng.choice((1, 2, 3, 4, 6, 8)) * (parallel := rng.choice((1, 1, 2))),
        pipeline_model_parallel_size=parallel,
    )
    micro_batch_size = rng.choice((1, 1, 1, 2, 3))
    global_batch_size = topology.data_parallel_size * micro_batch_size * rng.choice((1, 1, 2, 3))
    num_packs = rng.randint(1, 40)
    settings = ReplaySettings(
        version=INSTALLED,
        num_packs=num_packs,
        topology=topology,
        loader=rng.choice(("batch", "batch", "batch", "cyclic", "single")),
        micro_batch_size=micro_batch_size,
        global_batch_size=global_batch_size,
        seed=rng.choice((1234, 0, 7, 2**32 - 1)),
        drop_last=rng.random() < 0.6,
        data_sharding=rng.random() < 0.5,
        max_samples=rng.choice((None, None, rng.randint(2, 3 * num_packs + 1))),
        is_evaluation=True,  # loaders.py refuses training with few packs; its own test is below
        resume_step=rng.choice((0, 0, 0, 1, 2, 5)),
        consumed_packs=rng.choice((None, None, None, rng.randint(0, 2 * num_packs))),
    )
    return settings, min(3 * settings.num_samples // global_batch_size + 3, 60)


@pytest.mark.full
def test_generated_runs(host_tokenizer: Any, tmp_path: Path) -> None:
    rng = random.Random(20250)
    compared: Counter[str] = Counter()
    for index in range(NUM_CASES):
        settings, num_steps = _case(rng)
        folder = tmp_path / str(index)
        trained_tokens = _write_packs(folder, settings.num_packs, index)
        limits = {"max_num_samples": settings.max_samples, "seed": settings.seed}
        dataset = open_host_dataset(folder, host_tokenizer, COLLATE, **limits)
        consumed = settings.resume_step * settings.global_batch_size
        if settings.consumed_packs is not None:
            consumed = settings.consumed_packs
        own = _until_it_stops(_own_steps(settings, trained_tokens, num_steps), (ConfigError,))
        host = _host_steps(dataset, settings, consumed, num_steps)
        steps, has_stopped = _until_it_stops(host, STOPS)

        assert own == (steps, has_stopped), settings
        compared["steps"] += len(steps)
        compared["stopped"] += has_stopped
        compared[settings.loader] += len(steps)

    assert compared["steps"] > NUM_CASES * 5
    assert min(compared[loader] for loader in ("batch", "cyclic", "single")) > 0


def _in_ranks(monkeypatch: pytest.MonkeyPatch, data_parallel_size: int, rank: int) -> None:
    """Let the host's loaders believe that they run on one of several ranks, with GPUs."""
    tensor = torch.tensor
    monkeypatch.setattr(torch.distributed, "get_rank", lambda group=None: rank)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda group=None: data_parallel_size)
    monkeypatch.setattr(torch.distributed, "broadcast", lambda *_: None)
    monkeypatch.setattr(torch, "tensor", lambda *values, device=None, **options: tensor(*values, **options))


def _host_config(
    artifact: Path, num_packs: dict[str, int], train: dict[str, Any], dataset: dict[str, Any]
) -> SimpleNamespace:
    """Write packs and return the host's config of a run over them."""
    from megatron.bridge.training.config import TrainingConfig, ValidationConfig

    for split, number in num_packs.items():
        _write_packs(artifact / split, number, number)
    (artifact / "bridge_metadata.json").write_text("[]")
    config = host_dataset_config(artifact, dataset_root=artifact, packed_sequence_size=SIZE)
    for name, value in {"pin_memory": False, "persistent_workers": False, **dataset}.items():
        setattr(config, name, value)
    return SimpleNamespace(
        model=SimpleNamespace(),
        dataset=config,
        train=TrainingConfig(**({"micro_batch_size": 1, "global_batch_size": 4} | train)),
        validation=ValidationConfig(eval_interval=2, eval_iters=2, eval_global_batch_size=2, eval_micro_batch_size=1),
        rng=SimpleNamespace(seed=99),
    )


def _host_iterators(config: Any, tokenizer: Any, **state: int) -> Any:
    """Return the iterators over training, validation and test data that the host's training reads."""
    from megatron.bridge.data import loaders
    from megatron.bridge.data.builders.gpt_sft import gpt_sft_train_valid_test_datasets_provider as provider
    from megatron.bridge.training.state import TrainState

    provided = functools.partial(provider, tokenizer=tokenizer)
    return loaders.build_train_valid_test_data_iterators(config, TrainState(**state), provided, dp_group=None)


@pytest.mark.parametrize(
    ("train", "dataset", "resume_step"),
    [
        ({"train_iters": 7}, {}, 0),
        ({"train_iters": 7}, {}, 3),
        ({"num_epochs": 2.5}, {"seed": 5}, 0),
        ({"train_iters": 7}, {"max_train_samples": 17}, 0),
        ({"train_iters": 7, "global_batch_size": 6}, {"drop_last": False}, 0),
        ({"train_iters": 3}, {"dataloader_type": "cyclic", "data_sharding": False}, 0),
        ({"train_iters": 2}, {"dataloader_type": "single"}, 0),
    ],
)
def test_the_host_s_own_loaders_in_training_and_evaluation(
    monkeypatch: pytest.MonkeyPatch,
    host_tokenizer: Any,
    tmp_path: Path,
    train: dict[str, Any],
    dataset: dict[str, Any],
    resume_step: int,
) -> None:
    from megatron.bridge.training.config import ConfigContainer

    num_packs = {TRAIN: 13, VALIDATION: 5}
    config = _host_config(tmp_path, num_packs, train, dataset)
    run = _run_config(config)
    known: dict[str, Any] = {"num_packs": num_packs, "version": INSTALLED}
    training, evaluation = (
        PackOrder(replay_settings(run, world_size=2, split=split, resume_step=resume_step, **known))
        for split in (TRAIN, VALIDATION)
    )
    schedule = evaluation_schedule(run, **known)
    if config.train.num_epochs is not None:
        counted = SimpleNamespace(train=config.train, _calculate_scheduler_steps=lambda: None)
        ConfigContainer._resolve_num_epochs(counted, num_packs[TRAIN])
    assert training.settings.num_steps == config.train.train_iters

    consumed = {
        "consumed_train_samples": resume_step * config.train.global_batch_size,
        "consumed_valid_samples": schedule.batches_until(resume_step) * 2,
    }
    num_checked = 0
    for rank in range(2):
        _in_ranks(monkeypatch, 2, rank)
        train_iterator, valid_iterator, _ = _host_iterators(config, host_tokenizer, **consumed)
        per_step = 1 if config.dataset.dataloader_type == "batch" else config.train.global_batch_size // 2
        for step in range(training.first_step, config.train.train_iters + 1):
            read = [_packs_in(next(train_iterator))[0] for _ in range(per_step)]
            assert training.packs_at(step, rank).tolist() == list(chain.from_iterable(read))
            num_checked += 1
        for batch in range(evaluation.first_step, evaluation.first_step + 4):
            if config.dataset.dataloader_type == "single" and batch > 2:
                continue
            assert evaluation.packs_at(batch, rank).tolist() == _packs_in(next(valid_iterator))[0]
            num_checked += 1
    assert num_checked >= 2 * (2 + 2)


def test_the_host_needs_packs_for_a_batch(monkeypatch: pytest.MonkeyPatch, host_tokenizer: Any, tmp_path: Path) -> None:
    num_packs = {TRAIN: 3, VALIDATION: 3}
    config = _host_config(tmp_path, num_packs, {"train_iters": 1}, {"dataloader_type": "cyclic"})
    _in_ranks(monkeypatch, 2, 0)

    with pytest.raises(RuntimeError, match="Not enough train samples"):
        _host_iterators(config, host_tokenizer)
    settings = replay_settings(_run_config(config), num_packs=num_packs, world_size=2, version=INSTALLED)
    with pytest.raises(ConfigError, match=r"global_batch_size is 4; allowed: .* packs, 3"):
        PackOrder(settings)


def _run_config(config: Any) -> RunConfig:
    sections = {name: dict(vars(getattr(config, name))) for name in ("dataset", "train", "validation", "rng")}
    return RunConfig(values=sections, is_complete=False, place="the test's config")


def test_permutations_are_torch_s() -> None:
    for seed in (0, 1, 1234, 2**31, 2**32 - 1, 2**32, 2**40 + 7, -1):
        for size in (1, 2, 3, 17, 1000, 40_000):
            expected = torch.randperm(size, generator=torch.Generator().manual_seed(seed)).numpy()
            np.testing.assert_array_equal(torch_permutation(size, seed), expected)


@pytest.mark.parametrize("pipeline_before_data", [False, True])
def test_ranks_lie_as_megatron_core_lays_them(pipeline_before_data: bool) -> None:
    from megatron.core.hyper_comm_grid import HyperCommGrid
    from megatron.core.parallel_state import RankGenerator

    rng = random.Random(7)
    order = "tp-cp-ep-pp-dp" if pipeline_before_data else "tp-cp-ep-dp-pp"
    for _ in range(40):
        tensor, pipeline, context, data = (rng.choice((1, 2, 3, 4)) for _ in range(4))
        topology = Topology(
            world_size=tensor * pipeline * context * data,
            tensor_model_parallel_size=tensor,
            pipeline_model_parallel_size=pipeline,
            context_parallel_size=context,
            pipeline_before_data=pipeline_before_data,
        )
        groups = RankGenerator(tp=tensor, ep=1, dp=data, pp=pipeline, cp=context, order=order).get_ranks("dp")
        assert {rank: group.index(rank) for group in groups for rank in group} == {
            rank: topology.data_parallel_rank_of(rank) for rank in range(topology.world_size)
        }
        if not pipeline_before_data:
            grid = HyperCommGrid.__new__(HyperCommGrid)
            grid.shape, grid.dim_names = [tensor, context, data, pipeline], ["tp", "cp", "dp", "pp"]
            grid.rank_offset, grid.size = 0, topology.world_size
            assert sorted(map(tuple, grid._gen_rank_enum(["dp"]))) == sorted(map(tuple, groups))
