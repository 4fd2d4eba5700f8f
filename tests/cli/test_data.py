"""`obdsd data check`, on trees with everything that can be wrong."""

from PIL import Image

from obdsd import cli
from obdsd.data.folders import SUFFIXES
from tests.data.trees import picture


def test_a_good_collection_passes_and_a_bad_one_is_told_what_is_wrong(tmp_path, capsys):
    for number, name in enumerate(f"{folder}/{i}" for folder in ("train/a", "train/b", "test/c", "test/d") for i in range(2)):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        picture(number).save(tmp_path / f"{name}.png")
    assert cli.main(["data", "check", f"folder:{tmp_path}"]) == 0
    _, train, test, verdict = capsys.readouterr().out.splitlines()
    assert [train.split(), test.split(), verdict] == [["train", "2", "4", "0"], ["test", "2", "4", "0"], "no problem found"]
    (tmp_path / "train/a/0.png").write_bytes((tmp_path / "train/a/0.png").read_bytes()[:900])
    picture(3).save(tmp_path / "test/d/copy.bmp")
    assert cli.main(["data", "check", f"folder:{tmp_path}"]) == 2
    printed = capsys.readouterr()
    assert "unreadable: " in printed.out
    assert "same content in train and test: train/b/1.png = test/d/copy.bmp" in printed.out
    remedy = "--skip-unreadable leaves out what cannot be read"
    assert printed.err == f"obdsd: folder:{tmp_path}: training on it would be wrong; mend the 2 problems listed; {remedy}\n"
    (tmp_path / "test/d/copy.bmp").unlink()
    assert cli.main(["data", "check", f"folder:{tmp_path}"]) == 2
    assert capsys.readouterr().err.endswith(f": training on it would be wrong; mend the problem listed; {remedy}\n")
    assert cli.main(["data", "check", f"folder:{tmp_path}", "--skip-unreadable"]) == 0
    said = [f"remark: {tmp_path}: 1 of 8 images are left out, as they cannot be read: train/a/0.png", "no problem found"]
    assert capsys.readouterr().out.splitlines()[3:] == said


def test_remarks_are_no_reason_to_fail(tmp_path, capsys):
    for number, name in enumerate(f"{folder}/{i}" for folder in "abcd" for i in range(2)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        picture(number).save(tmp_path / f"{name}.png")
    picture(0).save(tmp_path / "a/again.png")
    (tmp_path / "a/notes.txt").touch()
    assert cli.main(["data", "check", f"folder:{tmp_path}"]) == 0
    first, second, verdict = capsys.readouterr().out.splitlines()[3:]
    assert first == f"remark: 1 .txt is not read; formats are {', '.join(SUFFIXES)}"
    assert second.endswith(": 1, a/0.png = a/again.png")
    assert verdict == "no problem found"


def test_an_incomplete_benchmark_is_named_with_all_else(tmp_path, capsys):
    for c in (1, 2, 101):
        (tmp_path / f"{c:03}.bird").mkdir()
        for i in range(2):
            Image.new("RGB", (8, 8), (c * i, 9, 9)).save(tmp_path / f"{c:03}.bird" / f"{i}.png")
    assert cli.main(["data", "check", f"cub200:{tmp_path}"]) == 2
    printed = capsys.readouterr().out
    problems = ("incomplete: cub200 at", "same content in train and test: ", "cannot be scored: cub200: test: there is one class only")
    assert all(problem in printed for problem in problems)
    assert cli.main(["data", "check", "cub200:/nowhere/at/all"]) == 2
    assert capsys.readouterr().out == ""


def test_names_of_files_do_not_steer_the_terminal(tmp_path, capsys):
    for number, name in enumerate(f"{folder}/{i}" for folder in ("train/a", "train/b", "test/c", "test/d") for i in range(2)):
        path = tmp_path / f"{name}\x1b]0;owned\a\nno problem found.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        picture(number % 7).save(path)  # the last is the first
    next(tmp_path.glob("train/b/1*")).write_bytes(b"")
    assert cli.main(["data", "check", f"folder:{tmp_path}"]) == 2
    printed = capsys.readouterr()
    unreadable, copied = printed.out.splitlines()[3:]
    assert r"b/1\x1b]0;owned\x07\nno problem found.png: cannot be read as an image" in unreadable
    assert r"test/d/1\x1b]0;owned\x07\nno problem found.png" in copied
    assert (printed.out + printed.err).replace("\n", "").isprintable()
