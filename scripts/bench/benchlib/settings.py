"""What both sides are told, so that they do the same work."""

PACKED_SEQUENCE_SIZE = 4096
PAD_SEQ_TO_MULT = 1
LOSS_MODE = "assistant"
SEED = 1234
#: Megatron-Bridge's own algorithm: with the same seed the rows of both sides are the same.
FIRST_FIT_SHUFFLE = "first_fit_shuffle"
FIRST_FIT_DECREASING = "first_fit_decreasing"
#: bridgepack's default.
BEST_FIT_DECREASING = "best_fit_decreasing"
