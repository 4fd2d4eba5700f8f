"""`obdsd verify`: what agrees and what does not, a line each, and an exit code for scripts."""

import json
import shutil


def test_a_run_is_verified_from_its_folder_alone(obdsd, trained, tmp_path):
    code, printed, _ = obdsd("verify", trained.folder, "--device", "cpu")
    assert (code, {line.split()[0] for line in printed.splitlines()}) == (0, {"agrees"})
    run = shutil.copytree(trained.folder, tmp_path / "run")
    classes = json.loads((run / "per_class.json").read_text())
    classes["recall@1"] = [1.5] * len(classes["recall@1"])
    (run / "per_class.json").write_text(json.dumps(classes))
    code, printed, told = obdsd("verify", run, "--device", "cpu")
    *lines, last = printed.splitlines()
    assert (code, lines[3], last) == (2, "differs  the scores are those of the rows", "         and 3 more")
    assert lines[4].startswith(f"         {classes['labels'][0]}: recall@1 of per_class.json 1.5, computed again ")
    assert len(lines) == 4 + 5
    assert told == f"obdsd: {run}: 1 of 4 checks found differences; restore the files, or train again\n"


def test_a_comparison_is_its_runs_and_tables(obdsd, rows, tmp_path):
    small = ["--epochs", "1", "--batch-size", "12", "--dim", "5", "--device", "cpu", "--no-report"]
    assert obdsd("compare", rows, "--presets", "ms,ms+psd", "--seeds", 1, "--out", tmp_path / "made", *small)[0] == 0
    out = shutil.copytree(tmp_path / "made", tmp_path / "moved")
    code, printed, _ = obdsd("verify", out)
    assert (code, printed.count("agrees"), printed.count("differs")) == (0, 1 + 2 * 4, 0)
    for name in ("comparison.csv", "comparison.md", "comparison.json"):
        content = (out / name).read_bytes()
        (out / name).write_bytes(content.replace(b"0", b"1", 1))
        code, printed, _ = obdsd("verify", out)
        first, second, *_ = printed.splitlines()
        assert (code, first, second.strip()) == (2, "differs  the tables follow from the runs", f"{name} is not what the runs say")
        (out / name).write_bytes(content)
    (out / "ms" / "seed-0" / "model" / "model.safetensors").unlink()
    assert obdsd("verify", out)[::2] == (2, f"obdsd: {out}/ms/seed-0/model/model.safetensors: No such file or directory\n")
