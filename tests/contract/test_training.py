"""megatron-bridge's own training loop learns from the packed artifacts: pretrain() and finetune(), THD, on CPU."""

from statistics import mean
from typing import Any

import pytest

from tests.support.processes import ONE_RANK, asked
from tests.support.small_artifact import build_counting_artifact, write_counting_chats, write_counting_tokenizer
from tests.support.training_run import NUM_LAYERS, TrainingRequest

pytestmark = [pytest.mark.bridge, pytest.mark.full]

PACKED_SEQUENCE_SIZE = 128
CASES: dict[str, dict[str, Any]] = {
    "unaligned": {"pad_seq_to_mult": 1},
    "aligned-to-8": {"pad_seq_to_mult": 8},
    "unaligned-fixed-cu-seqlens": {"pad_seq_to_mult": 1, "pad_cu_seqlens": True},
    "aligned-to-8-fixed-cu-seqlens": {"pad_seq_to_mult": 8, "pad_cu_seqlens": True},
}
RUNS = [(case, entry_point) for case in CASES for entry_point in ("pretrain", "finetune")]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return what each case's runs saw; all cases run in one process of their own."""
    folder = tmp_path_factory.mktemp("training")
    chats = write_counting_chats(folder / "chats.jsonl", num_chats=50)
    tokenizer = write_counting_tokenizer(folder / "tokenizer", chats)
    requests = []
    for name, options in CASES.items():
        artifact = build_counting_artifact(
            folder / name,
            tokenizer,
            packed_sequence_size=PACKED_SEQUENCE_SIZE,
            pad_seq_to_mult=options["pad_seq_to_mult"],
        )
        requests.append(
            TrainingRequest(
                artifact=str(artifact),
                tokenizer=str(tokenizer),
                work=str(folder / name),
                packed_sequence_size=PACKED_SEQUENCE_SIZE,
                **options,
            )
        )
    results = asked("tests.support.training_run", requests, folder, **ONE_RANK)
    return dict(zip(CASES, results, strict=True))


@pytest.mark.parametrize(("case", "entry_point"), RUNS)
def test_loss_falls(results: dict[str, Any], case: str, entry_point: str) -> None:
    run = results[case][entry_point]

    assert len(run["losses"]) >= 10
    assert run["num_skipped_steps"] == 0
    assert mean(run["losses"][-4:]) < 0.75 * mean(run["losses"][:4])
    assert min(run["eval_losses"]) < run["losses"][0]


@pytest.mark.parametrize(("case", "entry_point"), RUNS)
def test_every_attention_call_is_packed(results: dict[str, Any], case: str, entry_point: str) -> None:
    run = results[case][entry_point]
    num_packs_per_step = 4
    num_batches = len(run["losses"]) + len(run["eval_losses"])

    assert run["num_dense_calls"] == 0
    assert run["num_thd_calls"] == NUM_LAYERS * num_packs_per_step * num_batches


@pytest.mark.parametrize("case", CASES)
def test_finetuning_starts_where_pretraining_ended(results: dict[str, Any], case: str) -> None:
    last_eval_loss = results[case]["pretrain"]["eval_losses"][-1]

    assert results[case]["finetune"]["losses"][0] == pytest.approx(last_eval_loss, abs=0.1)


@pytest.mark.parametrize("case", ["unaligned", "aligned-to-8"])
def test_fixed_cu_seqlens_change_no_loss(results: dict[str, Any], case: str) -> None:
    ragged, fixed = results[case], results[f"{case}-fixed-cu-seqlens"]

    assert ragged["pretrain"]["losses"] == pytest.approx(fixed["pretrain"]["losses"], abs=1e-5)
