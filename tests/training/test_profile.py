import gzip
import json
import re
from pathlib import Path

from obdsd.training import train
from tests.training.reading import model_bytes


def test_a_profile_names_the_stages_and_changes_nothing(image_options, tmp_path):
    plain, looked_at = (image_options("ms+obd-sd", epochs=2, weight=5.0, out=str(tmp_path / name)) for name in ("plain", "looked-at"))
    train(plain, show=False)
    train(looked_at.replace(profile=True), show=False)
    assert model_bytes(plain.out) == model_bytes(looked_at.out)
    table = (tmp_path / "looked-at" / "profile.md").read_text()
    shares = {name: int(share) for name, share in re.findall(r"^\| (\w+) \| [\d.]+ \| (\d+) % \|", table, re.MULTILINE)}
    assert [*shares] == ["data", "teacher", "forward", "loss", "targets", "backward", "optimiser"]
    assert 50 < sum(shares.values()) - shares["targets"] <= 102  # `loss` includes it; rounded
    assert "An evaluation takes" in table
    trace = json.loads(gzip.decompress((tmp_path / "looked-at" / "profile.json.gz").read_bytes()))
    assert {f"obdsd: {name}" for name in shares} <= {event["name"] for event in trace["traceEvents"]}
    assert not (tmp_path / "plain" / "profile.md").exists()


def test_a_single_epoch_is_looked_at_too(image_options):
    chosen = image_options("ms", epochs=1, profile=True)
    train(chosen, show=False)
    assert "| backward |" in Path(chosen.out, "profile.md").read_text()
