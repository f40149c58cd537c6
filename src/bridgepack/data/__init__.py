"""Builds artifacts: reading, tokenisation, packing, assembly, writing."""
