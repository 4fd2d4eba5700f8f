"""What counts as a training's time, on a clock that the steps themselves move."""

import pytest

from obdsd.experiments import timing
from obdsd.presets import preset
from obdsd.training import Trainer
from tests.made_up import write_rows

SMALL = {"epochs": 3, "batch_size": 12, "dim": 5, "head": "two-layer", "hidden": 8, "device": "cpu"}
CHANGES = {"ms+global": {"targets": "global-diffusion(neighbours=5)"}, "ms+s2sd-msd": {"system": "s2sd(widths=[8, 16], pooling=avg)"}}
PLAIN, TAUGHT, WALK = 2.0, 3.0, 8.0  # seconds


@pytest.fixture
def data(tmp_path):
    return write_rows(tmp_path / "rows.npz", 20, 6, 12)


@pytest.fixture
def clock(monkeypatch):
    """A real step is taken, and takes as long as its system should."""
    now, step, begin = [0.0], Trainer.step, Trainer.begin_epoch

    def slow_step(trainer, *batch):
        now[0] += TAUGHT if trainer.options.distils else PLAIN
        return step(trainer, *batch)

    def slow_begin(trainer):
        now[0] += WALK if trainer.options.targets.name == "global-diffusion" else 0.0
        begin(trainer)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(Trainer, "step", slow_step)
    monkeypatch.setattr(Trainer, "begin_epoch", slow_begin)


def options_of(name, data):
    return preset(name, data, **SMALL, **CHANGES.get(name, {}))


def relative(data, own, other):
    return timing.relative_time(options_of(own, data), options_of(other, data), turns=3)


def test_a_step_with_a_teacher_beside_one_without(data, clock, tmp_path):
    before = sorted(tmp_path.rglob("*"))
    assert relative(data, "ms+psd", "ms") == TAUGHT / PLAIN
    assert relative(data, "ms", "ms+psd") == PLAIN / TAUGHT
    assert sorted(tmp_path.rglob("*")) == before  # nothing is written


def test_born_again_pays_for_two_generations(data, clock):
    assert relative(data, "ms+bar", "ms") == (TAUGHT + PLAIN) / PLAIN
    assert relative(data, "ms+bar+obdp", "ms+bar") == 1


def test_a_walk_is_spread_over_the_steps_of_its_epoch(data, clock):
    steps = len(timing.Pace(options_of("ms", data)).trainer.batches)
    assert steps == 5  # 10 classes of 6 items train, 12 in a batch
    assert relative(data, "ms+global", "ms") == pytest.approx((TAUGHT + WALK / steps) / PLAIN)


@pytest.mark.parametrize("name", ["ms+obd-sd", "ms+s2sd-msd", "proxy-anchor+proxy-diffusion"])
def test_real_time_of_real_steps(data, name):
    assert relative(data, name, "ms") > 0


def test_the_memory_has_something_to_say(data):
    """Else its steps would be those of the plain loss."""
    pace = timing.Pace(preset("ms+psd", data, teacher="memory", **SMALL))
    assert float(pace.trainer.step(*pace.batch)["distillation"]) > 0
