"""Rules on kernels over packs: attention, its exchange between ranks, rotary embeddings, FP8, CUDA graphs."""
