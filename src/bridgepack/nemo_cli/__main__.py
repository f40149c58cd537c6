"""`python -m bridgepack.nemo_cli`."""

from bridgepack.nemo_cli import main

main()
