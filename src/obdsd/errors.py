"""The one error that stands for a caller's mistake."""


class InputError(ValueError):
    """A value that the caller can mend; the message names the field, the rule, the value and the remedy on one line.

    Library users catch it as a `ValueError`; the command line prints it as one line and exits with code 2.
    """
