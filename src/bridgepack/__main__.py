"""`python -m bridgepack`: the command `bridgepack`."""

from bridgepack.cli.main import main

main()
