"""What tests share: the host on a CPU, small artifacts and tokenizers."""
