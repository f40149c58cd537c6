"""Faults as changes of a line: the text that stands once in a file of `src/bridgepack`, and what stands there instead.

The lines are arithmetic and comparisons, which are rarely rewritten. Where a line is rewritten, say the same fault of
the new one, and run it (`python -m tests.mutants.run NAME`).
"""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Edit:
    """One changed line."""

    name: str
    room: str
    file: str  #: below src/bridgepack
    old: str  #: stands once in the file
    new: str
    fault: str  #: what is wrong then


_MIXTURE, _BEST_FIT, _PLAN = "data/stages/mixture.py", "data/packing/best_fit.py", "data/packing/plan.py"
_BALANCE, _COLLATE, _SAMPLERS = "data/packing/balance.py", "replay/collate.py", "replay/samplers.py"
_CONVERSATION = "data/sequences/conversation.py"
_ROWS, _SIZES, _VALUES = "rules/artifact/rows.py", "rules/run/sizes.py", "data/layouts/values.py"


def _edit(name: str, file: str, old: str, new: str, fault: str) -> Edit:
    room, _, _ = name.partition(":")
    return Edit(name=name, room=room, file=file, old=old, new=new, fault=fault)


EDITS = (
    _edit(
        "mixture:max-rows-of-a-part",
        _MIXTURE,
        "return num_aside if is_aside else max_rows - num_aside",
        "return num_aside if is_aside else max_rows",
        "max_rows of a source counts twice: in training and in the part set aside for validation",
    ),
    _edit(
        "mixture:same-choice-as-validation",
        _MIXTURE,
        "seed + _SEED_OFFSET",
        "seed",
        "the rows of a source are chosen by the hash that chooses validation rows",
    ),
    _edit(
        "mixture:stored-tokens",
        _MIXTURE,
        'split.sequences["stored_length"] - np.int32(1)',
        'split.sequences["stored_length"]',
        "shares of tokens count stored tokens instead of runtime tokens",
    ),
    _edit(
        "mixture:largest-source",
        _MIXTURE,
        "return sum(weights) * min(",
        "return sum(weights) * max(",
        "the total without repetition is that of the most plentiful source",
    ),
    _edit(
        "mixture:nested-epochs",
        _MIXTURE,
        "    epochs *= node.epochs\n",
        "    epochs = node.epochs\n",
        "the epochs of the mixture around a source are ignored",
    ),
    _edit(
        "mixture:nearest-row",
        _MIXTURE,
        "after - remainder <= remainder - before and remainder > 0",
        "remainder > 0",
        "a part of a pass always ends behind the row that reaches the target, never before it",
    ),
    _edit(
        "mixture:passes",
        _MIXTURE,
        'return indices[np.argsort(passes, kind="stable")]',
        "return indices",
        "a repeated row stands beside its copy instead of one pass later",
    ),
    _edit(
        "mixture:num-repeated",
        _MIXTURE,
        "num_repeated=len(indices) - num_kept",
        "num_repeated=len(indices) - len(counts)",
        "the number of repeated sequences is too low by those that are left out",
    ),
    _edit(
        "packing:cap",
        _BEST_FIT,
        "per_pack = min(room // length, cap - already)",
        "per_pack = min(room // length, cap)",
        "best fit ignores the sequences that a pack already has",
    ),
    _edit(
        "packing:exact-room",
        _BEST_FIT,
        "bisect_left(self._keys, (length, 0))",
        "bisect_left(self._keys, (length + 1, 0))",
        "a sequence that fits exactly opens a new pack",
    ),
    _edit(
        "packing:even-cost",
        _BEST_FIT,
        "(cost + length * length, pack)",
        "(cost + length, pack)",
        "equal_cost evens out tokens instead of attention",
    ),
    _edit(
        "packing:next-fit",
        _PLAN,
        'side="right")), first + cap))',
        'side="right")), first + cap + 1))',
        "sequential packing puts one sequence too many into a pack",
    ),
    _edit(
        "packing:first-fit-cap",
        _PLAN,
        "if counts[leaf] < cap else 0",
        "if counts[leaf] <= cap else 0",
        "first fit puts one sequence too many into a pack",
    ),
    _edit(
        "packing:like-the-host",
        _PLAN,
        "order[slots[start:stop]] = members[::-1]",
        "order[slots[start:stop]] = members",
        "first_fit_shuffle takes sequences of one length from the other end than the host",
    ),
    _edit(
        "packing:tail-cost",
        _BALANCE,
        "_pairs(tails * has_tail, windows)",
        "_pairs(tails, windows)",
        "the empty end of a row costs attention where the host skips it",
    ),
    _edit(
        "packing:window-cost",
        _BALANCE,
        "np.maximum(lengths - window, 0) ** 2",
        "np.maximum(lengths - window, 0)",
        "a sliding window saves too little",
    ),
    _edit(
        "packing:dearest-to-cheapest",
        _BALANCE,
        'ranks = np.argsort(loads, axis=1, kind="stable")',
        'ranks = np.argsort(-loads, axis=1, kind="stable")',
        "the most expensive pack goes to the most expensive rank",
    ),
    _edit(
        "replay:content-length",
        _COLLATE,
        "np.arange(1, len(tokens) + 1), 0)",
        "np.arange(len(tokens)), 0)",
        "the logical length of a sequence is short by one token",
    ),
    _edit(
        "replay:padding-mask",
        _COLLATE,
        "return places >= token_count[:, None]",
        "return places > token_count[:, None]",
        "the first token of the tail is no padding",
    ),
    _edit(
        "replay:static-max-seqlen",
        _COLLATE,
        "max(metadata.dataset_max_seqlen, width - metadata.min_packed_seqlen)",
        "metadata.dataset_max_seqlen",
        "the constant max_seqlen forgets the longest tail",
    ),
    _edit(
        "replay:labels",
        _COLLATE,
        "is_label[starts] = False",
        "is_label[starts + runtime_lengths] = False",
        "labels are the inputs, not the tokens after them",
    ),
    _edit(
        "replay:epoch-seed",
        _SAMPLERS,
        "self._settings.num_samples, self._settings.seed + epoch)",
        "self._settings.num_samples, self._settings.seed)",
        "every epoch is shuffled alike",
    ),
    _edit(
        "replay:resumed-epoch",
        _SAMPLERS,
        "order[len(order) - num_left :]",
        "order[:num_left]",
        "a resumed epoch begins with the packs that it has already read",
    ),
    _edit(
        "replay:first-step",
        "replay/order.py",
        "return self.settings.resume_step + 1",
        "return self.settings.resume_step or 1",
        "the first step after a checkpoint has the checkpoint's number",
    ),
    _edit(
        "replay:rank-of-data",
        "replay/settings.py",
        "return group % self.data_parallel_size",
        "return group // self.pipeline_model_parallel_size",
        "pipeline stages are inside the data-parallel ranks",
    ),
    _edit(
        "replay:second-chunk",
        "replay/slicing.py",
        "2 * (context_parallel_size - 1) - ranks",
        "context_parallel_size - 1 + ranks",
        "the second half of each sequence is dealt in ascending order, not as a zigzag",
    ),
    _edit(
        "wiring:zigzag",
        "geometry.py",
        "zigzag = 2 * size if size > 1 else 1",
        "zigzag = size",
        "sequences are padded to a multiple of CP instead of 2 * CP",
    ),
    _edit(
        "layouts:between-pieces",
        _VALUES,
        '_BETWEEN = "\\n\\n"',
        '_BETWEEN = "\\n"',
        "the pieces of a text are joined by one line break",
    ),
    _edit(
        "layouts:null-variable",
        "data/layouts/makers.py",
        "for name, value in values.items() if value is not None}",
        "for name, value in values.items()}",
        "a null variable reaches the chat template",
    ),
    _edit(
        "rules:aligned",
        _ROWS,
        "rows.runtime_lengths % multiple != 0",
        "(rows.runtime_lengths + 1) % multiple != 0",
        "alignment is judged by stored lengths",
    ),
    _edit(
        "rules:full-pack",
        _ROWS,
        "rows.row_widths > size,",
        "rows.row_widths >= size,",
        "a full pack is reported as too wide",
    ),
    _edit(
        "rules:last-token-of-the-vocabulary",
        _ROWS,
        "if ids.min() >= 0 and ids.max() < limit:",
        "if ids.min() >= 0 and ids.max() <= limit:",
        "the first token beyond the vocabulary passes",
    ),
    _edit(
        "rules:sequence-of-one-token",
        _ROWS,
        "is_bad = (rows.gaps < 2)",
        "is_bad = (rows.gaps < 1)",
        "a sequence without runtime tokens passes",
    ),
    _edit(
        "rules:cleared-labels",
        "rules/judging/rows.py",
        "return self.trained_per_sequence - num_cleared",
        "return self.trained_per_sequence",
        "labels that the host clears count as trained",
    ),
    _edit(
        "rules:evaluation-context",
        "rules/run/batches.py",
        "return eval_context if eval_context is not None and eval_context > 0 else run.context_parallel_size",
        "return run.context_parallel_size",
        "evaluation is judged by the context parallelism of training",
    ),
    _edit(
        "rules:scaled-positions",
        _SIZES,
        "max_positions = int(positions.most * (1 if is_own else scaling / positions.factor))",
        "max_positions = int(positions.most * (1 if is_own else scaling))",
        "a model's own scaling of its positions counts twice",
    ),
    _edit(
        "rules:group-of-one-pack",
        "rules/artifact/shards.py",
        "if tokens > MAX_ROW_GROUP_TOKENS and rows > 1]",
        "if tokens > MAX_ROW_GROUP_TOKENS]",
        "a row group of one long pack is reported",
    ),
    _edit(
        "proof:weights-ignored",
        _CONVERSATION,
        "            positions.add(index)\n",
        "            pass\n",
        "the weight of a turn is read and does nothing",
    ),
    _edit(
        "proof:weights-inverted",
        _CONVERSATION,
        "if any(flag == 0 for flag in flags.values())",
        "if any(flag == 1 for flag in flags.values())",
        "turns of weight 1 are left out, and those of weight 0 trained",
    ),
    _edit(
        "proof:system-replaced",
        _CONVERSATION,
        '{"role": "system", "content": system}, "system")',
        '{"role": "system", "content": "You are a helpful assistant."}, "system")',
        "the text of a system column is replaced by a usual one",
    ),
    _edit(
        "proof:speakers-swapped",
        "config/layouts/roles.py",
        '(("user", "human", "prompter"), "user")',
        '(("user", "human", "prompter"), "assistant")',
        "human is taken for the assistant",
    ),
    _edit(
        "proof:thoughts-trained",
        "data/sequences/thoughts.py",
        "if not self._keeps_empty if item.blanks else not self._only_empty:",
        "if item.blanks:",
        "reasoning_loss masks empty thoughts alone",
    ),
    _edit(
        "proof:closing-marker-untrained",
        "data/sequences/thoughts.py",
        "        return Thoughts(first, stop, 0)\n    end",
        "        return Thoughts(first, stop + len(closing), 0)\n    end",
        "the end of a thought, which the model must write, is masked with it",
    ),
    _edit(
        "proof:last-turn-mode",
        "data/sequences/trained.py",
        "if self._takes_last_turn:\n            segments",
        "if self._takes_last_turn is None:\n            segments",
        "loss_mode last_turn trains every answer",
    ),
    _edit(
        "proof:prompt-not-masked",
        "data/sequences/generation_prompts.py",
        "[(turn, start, stop) for turn, start, (_, stop) in edges]",
        "[(turn, first, stop) for turn, _, (first, stop) in edges]",
        "mask_generation_prompt does nothing",
    ),
    _edit(
        "proof:control-tokens-trained",
        "data/sequences/encoding.py",
        "        mask[input_ids == token] = 0\n",
        "        pass\n",
        "control tokens that are never trained are trained",
    ),
)
