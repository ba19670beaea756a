"""`python -m prefixbench`."""

from prefixbench.cli.main import main

main()
