"""The page from weights to a served model: what it marks as run on a CPU runs here, with a model of two layers.

It alone finds that the weights of a trained run reach transformers: imported, trained, resumed and exported by the
host's own code, in forks that have it imported.
"""

import json
import os
import re
import shlex
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from bridgepack.canaries.cpu import ENVIRONMENT
from bridgepack.examples import train_chatml_tokenizer
from tests.support import host_forks
from tests.support.docs_blocks import PROJECT
from tests.support.tiny_recipes import ON_CPU

pytestmark = pytest.mark.full
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n+(?:!!! (\w+) \"([^\"]*)\")?", re.MULTILINE | re.DOTALL)
_MARK = ("success", "Run on a CPU")
MODEL = "Qwen/Qwen3-8B"
_PACK = 256
_TURNS = {
    "What is a pack?": "One row with several sequences, laid one after the other.",
    "What is a loss mask?": "One number for each token: 1 where the model is trained on it.",
    "What is cu_seqlens?": "Where each sequence of a pack begins, so that attention stays within it.",
}
#: What a machine without GPUs takes instead: the programs, and one process in place of 64 GPUs.
_INSTEAD = {
    "torchrun --nproc-per-node 8 scripts/train.py": "python -m bridgepack.running.on_cpu",
    "--num-gpus 64 --seq-length 8192": f"--num-gpus 1 --seq-length {_PACK}",
}
_SETTINGS: Mapping[str, Any] = {
    "data": {"train": "data/chats.jsonl", "validation_fraction": 0.1},
    "batch": {"global_batch_size": 2},
    "schedule": {"train_iters": 5, "eval_iters": 1, "eval_interval": 5},
    "optimizer": {"lr": 1e-2},
    "bridge_overrides": {
        **ON_CPU,
        "dataset": {"num_workers": 0, "persistent_workers": False},
        # core/optimizer/distrib_optimizer.py:839 does not resume without TransformerEngine
        "optimizer": {"use_distributed_optimizer": False},
        "ddp": {"use_distributed_optimizer": False},
    },
    "ignore": {"BP984": "trained on CPU", "BP916": "trained on CPU"},
}


def _blocks() -> list[tuple[str, str, bool]]:
    """Return (language, text, is marked as run) of the page's blocks."""
    text = (PROJECT / "docs/from-weights.md").read_text(encoding="utf-8")
    return [(language, block, (kind, mark) == _MARK) for language, block, kind, mark in _BLOCK.findall(text)]


def _write_model(folder: Path) -> None:
    """Write a model of two layers as a folder of the hub has it; its vocabulary is no multiple of 128."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(1)
    sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16, "vocab_size": 400}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    config = Qwen3Config(**sizes, **heads, initializer_range=0.1, tie_word_embeddings=False, dtype="bfloat16")
    Qwen3ForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    train_chatml_tokenizer(folder, [*_TURNS, *_TURNS.values()], vocab_size=400)


def _run(module: str, arguments: list[str], folder: Path) -> str:
    variables = {
        **os.environ,
        **ENVIRONMENT,
        "HF_HOME": str(folder / "hf-home"),
        "MEGATRON_CONFIG_LOCK_DIR": str(folder),
    }
    with tempfile.TemporaryFile("w+") as log:
        code = host_forks.run_forked(module, arguments, variables, (log.fileno(), log.fileno()), limit_s=300)
        log.seek(0)
        printed = log.read()
    assert code == 0, f"{module} {arguments}\n{printed[-6000:]}"
    return printed


def _run_python(text: str, folder: Path) -> None:
    (folder / "block.py").write_text(f"from tests.support.train_on_cpu import run_on_cpu\nrun_on_cpu()\n{text}")
    _run("tests.support.forked_script", ["block.py"], folder)


def _run_commands(text: str, folder: Path, last: tuple[str, ...] = ()) -> str:
    """Return what the commands of a block print; `last` are arguments that a training gets in addition."""
    for words, instead in _INSTEAD.items():
        text = text.replace(words, instead)
    printed = ""
    for line in text.replace("\\\n", " ").splitlines():
        program, *arguments = shlex.split(line, comments=True)
        if program == "python":
            assert arguments[0] == "-m"
            printed += _run(arguments[1], [*arguments[2:], *last], folder)
        else:
            assert program == "bridgepack"
            printed += _run("tests.support.forked_command", arguments, folder)
    return printed


def _add_settings(path: Path, settings: Mapping[str, Any]) -> None:
    path.write_text(yaml.safe_dump({**yaml.safe_load(path.read_text()), **settings}, sort_keys=False))


@pytest.fixture(scope="module")
def page_run(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """Return the folder in which the page was followed, and the newest checkpoint after each block of training."""
    folder = tmp_path_factory.mktemp("weights")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        _write_model(folder / MODEL)
        rows = [
            {
                "messages": [
                    {"role": "user", "content": question},
                    {"role": "assistant", "content": f"{number}: {answer}"},
                ]
            }
            for number in range(40)
            for question, answer in _TURNS.items()
        ]
        (folder / "data").mkdir()
        (folder / "data/chats.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        newest: list[str] = []
        for language, text, is_run in _blocks():
            if not is_run:
                continue
            if language == "python":
                _run_python(text, folder)
            elif language == "yaml":
                _add_settings(folder / "mine.yaml", {**_SETTINGS, **yaml.safe_load(text)})
            elif "torchrun" in text:
                _run_commands(text, folder, () if newest else ("train.exit_interval=3",))
                newest.append((folder / "runs/mine/checkpoints/latest_checkpointed_iteration.txt").read_text())
            else:
                _run_commands(text, folder)
    return folder, newest


def test_each_block_says_whether_it_was_run() -> None:
    marks = [mark for *_, mark in _BLOCK.findall((PROJECT / "docs/from-weights.md").read_text(encoding="utf-8"))]
    assert set(marks) == {"Run on a CPU", "Not run"}


def test_run_stops_at_the_third_step_and_resumes_from_it(page_run: tuple[Path, list[str]]) -> None:
    folder, newest = page_run
    assert newest == ["3", "5"]
    assert len(list((folder / "runs/mine/records").glob("check-*.json"))) == 2


def test_import_and_export_without_training_keep_every_bit(
    page_run: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = page_run
    monkeypatch.chdir(folder)
    (export,) = [text for _, text, is_run in _blocks() if is_run and "export_ckpt" in text]
    places = '"runs/mine/checkpoints", "exported/mine"'
    assert places in export
    _run_python(export.replace(places, '"checkpoints/Qwen3-8B", "exported/untrained"'), folder)

    before, after = (_weights(folder / name) for name in (MODEL, "exported/untrained"))
    assert before.keys() == after.keys()
    assert [name for name, tensor in before.items() if not torch.equal(tensor, after[name])] == []
    assert len(before) > 20


_LOGITS = """
import torch
from megatron.bridge import AutoBridge
from megatron.bridge.training.model_load_save import temporary_distributed_context
from megatron.core.tensor_parallel import model_parallel_cuda_manual_seed
from megatron.core.utils import unwrap_model

with temporary_distributed_context(backend="gloo"), torch.no_grad():
    model_parallel_cuda_manual_seed(1)
    models = AutoBridge.from_hf_pretrained("Qwen/Qwen3-8B").load_megatron_model("runs/mine/checkpoints")
    (model,) = unwrap_model(models)
    tokens = torch.load("tokens.pt")
    positions = torch.arange(tokens.shape[1])[None]
    torch.save(model.float().eval()(tokens, positions, None), "logits.pt")
"""


def test_exported_model_is_the_trained_one(page_run: tuple[Path, list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = page_run
    monkeypatch.chdir(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder / "exported/mine")
    chat = [{"role": "user", "content": "What is a pack?"}]
    tokens = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)["input_ids"]
    torch.save(tokens, folder / "tokens.pt")
    _run_python(_LOGITS, folder)

    trained = torch.load(folder / "logits.pt")
    with torch.no_grad():
        before, after = (
            AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32)(tokens).logits
            for name in (MODEL, "exported/mine")
        )
    assert torch.allclose(after, trained[..., : after.shape[-1]], rtol=0, atol=1e-4)
    assert (after - before).abs().max() > 0.1


def _weights(folder: Path) -> dict[str, torch.Tensor]:
    return {name: tensor for path in folder.glob("*.safetensors") for name, tensor in load_file(path).items()}
