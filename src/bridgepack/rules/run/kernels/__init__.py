"""Rules on kernels over packed rows: attention, its exchange between ranks, rotary embeddings, FP8, CUDA graphs."""
