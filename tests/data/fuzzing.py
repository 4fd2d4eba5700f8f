"""Readers met with nonsense."""

from hypothesis import HealthCheck, settings

from obdsd.errors import InputError

fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])


def only_refuses(read, path):
    """A reader may read or refuse in one line; nothing else may come out."""
    try:
        read(path)
    except InputError as refusal:
        return "\n" not in str(refusal)
    return True
