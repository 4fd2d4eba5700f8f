"""`python -m obdsd` is `obdsd`."""

from obdsd.cli import run_and_exit

run_and_exit()
