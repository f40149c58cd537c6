"""`python -m bridgepack.launching.nemo_cli`."""

from bridgepack.launching.nemo_cli import main

main()
