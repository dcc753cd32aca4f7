"""`python -m fedse`."""

from fedse.cli import main

main()
