"""Does it help? The experiments behind docs/results.md. `python -m study --help`."""
