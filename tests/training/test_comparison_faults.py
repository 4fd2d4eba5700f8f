"""A comparison that is asked to end, then killed, with runs of it under way: each run ends as a training that was left alone."""

import os
import signal
import time

from tests.training.reading import assert_same_end
from tests.training.starting import epochs_done, start, start_comparison, wait_for_epochs
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
