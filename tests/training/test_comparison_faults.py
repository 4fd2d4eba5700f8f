"""A comparison that is asked to end, then killed, with runs of it under way: each run ends as a training that was left alone."""

import json
import os
import signal
import time

import pytest

from tests.training.reading import assert_same_end
from tests.training.starting import epochs_done, run_command, start, start_comparison, wait_for_epochs
from tests.training.test_faults import KILLS, long_training

EPOCHS = 16


def test_a_comparison_goes_on_after_anything(features, tmp_path):
    rows = {"ms": long_training(features, "", "ms", epochs=EPOCHS), "ours": long_training(features, "", epochs=EPOCHS)}
    plan = [(name, seed) for name in rows for seed in (0, 1)]
    alone = [rows[name].replace(seed=seed, out=str(tmp_path / "alone" / f"{name}-{seed}")) for name, seed in plan]
    trainings = start(*alone, threads=max(1, (os.cpu_count() or 1) // 2))

    asked = start_comparison(rows, [0, 1], tmp_path / "all")
    while len(list(tmp_path.glob("all/*/*/metrics.jsonl"))) < 2:  # an epoch of each is done
        assert asked.is_alive()
        time.sleep(0.01)
    os.kill(asked.pid, signal.SIGTERM)
    asked.join(60)
    assert asked.exitcode == 75
    ended = epochs_done(tmp_path / "all")
    time.sleep(0.5)
    assert epochs_done(tmp_path / "all") == ended < 2 * EPOCHS  # it took its runs along: nobody trains on

    kills = max(1, KILLS // 4)
    for number in range(1, kills + 1):  # spread over what is left
        killed = start_comparison(rows, [0, 1], tmp_path / "all")
        assert wait_for_epochs(killed, tmp_path / "all", ended + (4 * EPOCHS - ended) * number // (kills + 1))
        killed.kill()
        killed.join()

    last = start_comparison(rows, [0, 1], tmp_path / "all")
    last.join()
    trainings.join()
    assert (last.exitcode, trainings.exitcode) == (0, 0)
    for (name, seed), options in zip(plan, alone, strict=True):
        assert_same_end(options.out, tmp_path / "all" / name / f"seed-{seed}")


@pytest.mark.parametrize(
    ("how", "more", "code", "line"),
    [
        ("error", [], 1, "RuntimeError: out/dying/seed-0: ZeroDivisionError: nobody expected this (its traceback is above); the same"),
        ("kill", [], 2, "obdsd: out/dying/seed-0: its process was ended by SIGKILL; if memory ran out, give fewer jobs or workers or a"),
        ("kill", ["--keep-going"], 2, "obdsd: out/dying/seed-0: its process was ended by SIGKILL; if memory ran out"),
    ],
)
def test_a_run_that_dies_is_named_and_the_same_command_goes_on(features, tmp_path, how, more, code, line):
    """It takes the others along with their state, or they go on to the end; exit code 75 would have a scheduler try for ever."""
    mended, file = tmp_path / "mended", tmp_path / "rows.yaml"
    dying = f"dying(mended={mended}, how={how}, after=out/long/seed-0/metrics.jsonl)"
    slow = {} if more else {"loss": f"dying(mended={mended}, how=slow)"}  # not finished before the other is dead
    rows = {
        "long": {"preset": "ms", "epochs": 300, **slow},
        "dying": {"preset": "ms", "loss": dying},
        "waiting": {"preset": "ms", "lr": 0.01},
    }
    file.write_text(json.dumps(rows))
    words = f"compare {features} --rows {file} --seeds 1 --out out --jobs 2 --no-report --epochs 10 --batch-size 16 --dim 6".split()
    words += ["--evaluate-every", "0", "--device", "cpu", *more]
    for name in ("broken", "whole"):
        (tmp_path / name).mkdir()
    died, said = run_command(words, tmp_path / "broken")
    assert (died, line in said) == (code, True), said
    assert ("Traceback" in said) == (how == "error")
    out = tmp_path / "broken" / "out"
    assert [(out / name / "seed-0" / "result.json").exists() for name in rows] == [bool(more), False, bool(more)]
    if not more:
        assert (out / "long" / "seed-0" / "checkpoints" / "last.pt").exists()
    mended.touch()
    for name in ("broken", "whole"):
        assert run_command(words, tmp_path / name)[0] == 0
    for name in rows:
        assert_same_end(tmp_path / "whole" / "out" / name / "seed-0", out / name / "seed-0")
