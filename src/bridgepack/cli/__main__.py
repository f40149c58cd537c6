"""`python -m bridgepack.cli`: the same command."""

from bridgepack.cli.main import main

main()
