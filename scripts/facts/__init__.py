"""What the file of a release holds, made from the host itself; scripts/host_facts writes it, contract tests compare."""
