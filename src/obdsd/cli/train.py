"""Train an embedding: obdsd train DATA.

Without --preset you get what our own measurements advise for your data; what was chosen is printed, with the reason. --preset ms+obd-sd is
the paper's method with the paper's settings.

DATA is a benchmark (cub200:PATH), a folder of class folders (folder:PATH), a list (manifest:FILE), an embeddings file, or glyphs.

A PART is a name, with its settings in brackets: --loss "margin(beta=0.6)", --targets "batch-diffusion(omega=0.3)". The shell needs the
quotes. obdsd parts lists all parts and settings.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from obdsd.errors import FinishedError, Terminated
from obdsd.files import read_mapping
from obdsd.options import TrainOptions as Options
from obdsd.processes import first_process, processes

if TYPE_CHECKING:
    from obdsd.training import RunRecord

EPILOG = "Defaults are the paper's for CUB-200-2011. The preset and the data change many: --print-config shows what counts."
configuration = Options.kept


def complete(given: dict[str, Any]) -> dict[str, Any]:
    """A run that goes on knows its data and all its options."""
    from obdsd.presets import beyond_preset

    begun = Path(str(given.get("out", ""))).expanduser() / "config.yaml"
    if given.get("resume") and "out" in given and "data" not in given and begun.is_file():
        return {**beyond_preset(read_mapping(begun)), **given}
    return given


def look(given: dict[str, Any]) -> None:
    """What is seen to be wrong before anything is imported for it. A run that goes on knows where its data are."""
    from obdsd.data import check_there
    from obdsd.models.places import check_backbone

    if not given.get("resume") and processes() == 1:  # several must agree on what is wrong
        check_there(str(given["data"]))
        if "backbone" in given:
            check_backbone(str(given["backbone"]))


def make(given: dict[str, object]) -> Options:
    from obdsd.presets import resolve

    return resolve(given)


def run(options: Options) -> None:
    from obdsd.cli.report import write_at_the_end
    from obdsd.options import RECOMMENDED
    from obdsd.presets import recommended
    from obdsd.training.build import check_sources
    from obdsd.training.run_folder import RunFolder, RunRecord, as_begun, run_path

    folder = run_path(options)
    if processes() == 1:
        begun = RunFolder(folder, writes=False)
        begun.check_free(options)
        check_sources(as_begun(options, begun.began_with()).replace(data=begun.source(options.data)))
    from obdsd.training import train  # seconds of imports: what is wrong is told before

    notes = ["recommended for these data:", *(f"  {line}" for line in recommended(options))] if options.preset == RECOMMENDED else []
    try:
        record = train(options, notes=notes)
    except FinishedError:
        if first_process():
            print(f"{folder} is finished: nothing was left to do", file=sys.stderr)
            print(_summary(RunRecord.read(folder)))
        return
    except (KeyboardInterrupt, Terminated):
        if (folder / "config.yaml").exists() and first_process():
            print(f"stopped; {folder} keeps everything so far: the same command with --resume goes on from there", file=sys.stderr)
        elif first_process():
            print("stopped before the training began: no run was written", file=sys.stderr)
        raise
    if not first_process():
        return
    print(_summary(record))
    if options.report and record.scores:
        write_at_the_end(folder, options.device)


def _summary(record: RunRecord) -> str:
    """What the training came to, beside what was there before it."""
    from obdsd.evaluation.metrics import score_line
    from obdsd.training.interpolation import told

    options, kept = record.options, [f"model: {record.folder / 'model'}", f"scores: {record.folder / 'result.json'}"]
    if not record.scores:
        return f"epoch {record.epoch + 1} of {options.epochs}; nothing was scored\n{kept[0]}"
    lines = [f"{options.score} classes, {record.chosen_by} (epoch {record.epoch + 1} of {options.epochs}):"]
    if record.interpolation is not None:
        lines.append(f"  {told(record.interpolation)}")
    lines.append(f"  trained: {score_line(record.scores)}")
    lines += [f"  re-ranked by {name} (transductive): {score_line(scores)}" for name, scores in record.reranked.items()]
    lines += [f"  {name}, untrained: {score_line(scores)}" for name, scores in record.reference.items()]
    untrained = max((scores["recall@1"] or 0.0 for scores in record.reference.values()), default=0.0)
    lost = untrained - (record.scores["recall@1"] or 0.0)
    if lost > 0:
        lines += _advice(record, lost)
    return "\n".join([*lines, *kept])


def _advice(record: RunRecord, lost: float) -> list[str]:
    """What to do about a Recall@1 that the training has lowered, though it may have raised others."""
    options, best = record.options, max(scores["map@r"] or 0.0 for scores in record.reference.values())
    gained = (record.scores["map@r"] or 0.0) - best
    beside = f", MAP@R {100 * gained:.1f} points above" if gained > 0 else ""
    lines = [f"  Recall@1 is {100 * lost:.1f} points below what was there untrained{beside}"]
    if options.head != "none" and options.head_init == "random":
        lines.append("  begin with --head linear --head-init projection")
    else:
        lines.append("  let held-out classes choose the epoch: --val-fraction 0.3 --select best")
    if options.backbone != "features" and options.pretrained and options.init is None:
        source = shlex.quote(f"{options.backbone}:{options.pretrained}")
        data = " ".join([shlex.quote(options.data), *_seen_alike(options)])
        lines.append(f"  or take the untrained features: obdsd index {source} {data} --out photos.index")
        lines.append(f"  or as a file: obdsd embed {source} {data} --out rows.parquet")
    return lines


def _seen_alike(options: Options) -> list[str]:
    """The flags by which untrained features are those that the run was compared with."""
    flags = ["--size", str(options.size)] if options.size else []
    return flags if options.pooling == "avg" else [*flags, "--pooling", options.pooling]
