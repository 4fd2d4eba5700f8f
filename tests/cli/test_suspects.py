"""`obdsd data suspects`: its table, its files and its page, on photos of which one has a wrong label and two are the same."""

import csv
import re

import numpy as np
import pytest
from PIL import Image

from obdsd import cli
from obdsd.data.embeddings import Photos, Vectors, write_vectors
from obdsd.models import Embedder
from tests.refusing import mistakes

CLASSES = ("=1+1", "<script>alert(1)</script>", "wren", "owl")
FORMULA = "=HYPERLINK(1).png"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """Photos of four colours, one in the folder of another, and one there twice; their rows; an untrained model."""
    folder = tmp_path_factory.mktemp("suspects")
    rng, names, rows, labels = np.random.default_rng(0), [], [], []
    (folder / "photos").mkdir()
    for number, label in enumerate(CLASSES):
        for i in range(8):
            tint = number if (number, i) != (2, 5) else 3  # an owl among the wrens
            row = 4 * np.eye(4)[tint] + 0.5 * rng.standard_normal(4)
            name = FORMULA if (number, i) == (0, 0) else f"{'nested' if number == 1 else 'photo'}-{number}-{i}.png"
            pixels = np.full((20, 30, 3), 60 * tint, dtype=np.uint8) + rng.integers(0, 50, (20, 30, 3)).astype(np.uint8)
            Image.fromarray(pixels).save(folder / "photos" / name)
            names, rows, labels = [*names, name], [*rows, row], [*labels, label]
    rows[9] = rows[8]
    np.savez(folder / "plain.npz", embeddings=np.float32(rows), labels=labels)
    np.savez(folder / "one.npz", embeddings=np.float32(rows), labels=["wren"] * 32)
    np.savez(folder / "unlabelled.npz", embeddings=np.float32(rows))
    lines = [f'{name},"{label}"' for name, label in zip(names, labels, strict=True)]
    (folder / "photos" / "list.csv").write_text("\n".join(["path,label", *lines]) + "\n")
    photos = Photos(f"manifest:{folder / 'photos' / 'list.csv'}")
    write_vectors(folder / "rows.npz", Vectors(np.float32(rows), np.array(labels), names=np.array(names), photos=photos))
    write_vectors(folder / "gone.npz", Vectors(np.float32(rows), np.array(labels), names=np.array(names), photos=Photos("folder:/nowhere")))
    Embedder("tiny-conv", dim=8, seed=3).save(folder / "tiny")
    return folder


def test_the_wrong_label_and_the_copy_are_told_first(here, capsys):
    assert cli.main(["data", "suspects", str(here / "plain.npz"), "--most", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"{here / 'plain.npz'}: 32 items, 4 classes"
    assert re.fullmatch(r"about \d+\.\d % of the labels look wrong", lines[1])
    assert lines[2] == "labels that another class fits better: 2"
    assert re.fullmatch(r"     1  +\d\.\d{3}  row 21 +wren → owl", lines[3])
    assert lines[5] == "near-copies across classes: 0"
    assert lines[6].startswith("near-copies inside a class: ")
    assert lines[7].split() == ["1", "1.000", "row", "8", "=", "row", "9"]


def test_the_csv_file_has_all_and_no_formula(here, tmp_path, capsys):
    out = tmp_path / "suspects.csv"
    assert cli.main(["data", "suspects", str(here / "rows.npz"), "--most", "32", "--out", str(out)]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == f"written: {out}"
    header, *rows = csv.reader(out.read_text().splitlines())
    assert header == ["kind", "rank", "score", "item", "label", "other_label", "other_item"]
    labels = [row for row in rows if row[0] == "label"]
    assert [row[1] for row in labels] == [str(rank) for rank in range(1, 33)]
    assert labels[0][3:6] == ["photo-2-5.png", "wren", "owl"]
    assert labels[0][6].startswith("photo-3-")
    assert all(not cell.startswith(("=", "+", "@")) for row in rows for cell in row)
    assert {f"'{FORMULA}", "'=1+1"} <= {cell for row in rows for cell in row}
    first = next(row for row in rows if row[0] == "copy inside a class")
    assert first[2:] == ["1.0000", "nested-1-0.png", CLASSES[1], CLASSES[1], "nested-1-1.png"]


def test_the_page_shows_the_pictures_and_runs_nothing(here, tmp_path, capsys):
    out = tmp_path / "suspects.html"
    assert cli.main(["data", "suspects", str(here / "rows.npz"), "--most", "3", "--out", f"{out},{tmp_path / 'suspects.csv'}"]) == 0
    assert (tmp_path / "suspects.csv").exists()
    page = out.read_text()
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert re.search(r"labelled wren, looks like <em>owl</em>", page)
    assert page.count("data:image/webp;base64,") >= 3 * 7 + 2
    assert not re.search(r"(?:src|href)=\"(?!data:)", page)
    assert "default-src 'none'" in page
    capsys.readouterr()
    assert cli.main(["data", "suspects", str(here / "gone.npz"), "--out", str(out)]) == 0
    assert "none, the images that were embedded are not there any more (/nowhere" in out.read_text()
    assert cli.main(["data", "suspects", str(here / "plain.npz"), "--out", str(out)]) == 0
    page = out.read_text()
    assert "the file does not say where its images are; obdsd data suspects MODEL DATA shows them" in page
    assert "no picture" in page


def test_a_model_embeds_the_photos_first(here, tmp_path, capsys):
    out = tmp_path / "suspects.html"
    data = f"manifest:{here / 'photos' / 'list.csv'}"
    words = ["data", "suspects", str(here / "tiny"), data, "--most", "1", "--out", str(out), "--workers", "0", "--device", "cpu"]
    assert cli.main(words) == 0
    assert "labels that another class fits better: 1" in capsys.readouterr().out
    assert "data:image/webp;base64," in out.read_text()


def test_rows_without_labels_are_looked_at_for_copies(here, tmp_path, capsys):
    out = tmp_path / "suspects.html"
    assert cli.main(["data", "suspects", str(here / "unlabelled.npz"), "--out", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.err.endswith("; without labels only near-copies are looked for\n")
    title, first = printed.out.splitlines()[1:3]
    assert title.startswith("near-copies: ")
    assert first.split() == ["1", "1.000", "row", "8", "=", "row", "9"]
    assert "look wrong" not in out.read_text()


def test_a_model_that_was_trained_on_the_items_is_told(trained, rows, capsys):
    assert cli.main(["data", "suspects", str(trained.folder), rows, "--device", "cpu"]) == 0
    told = capsys.readouterr().err
    assert re.search(r"was trained on \d+ of these 120 items and may fit their wrong labels, too; an untrained model", told)


def test_a_full_disk_leaves_the_old_file(here, tmp_path, capsys, full_disk):
    out = tmp_path / "suspects.csv"
    out.write_text("old")
    assert cli.main(["data", "suspects", str(here / "rows.npz"), "--out", str(out)]) == 2
    assert "No space left on device" in capsys.readouterr().err
    assert out.read_text() == "old"


test_mistakes_are_one_line = mistakes(
    "data",
    [
        (["suspects", "plain.npz", "--out", "x.pdf"], "--out 'x.pdf' must end in .csv or .html; rename it"),
        (["suspects", "plain.npz", "--out", "tiny/none/x.csv,tiny"], "--out 'tiny' must end in .csv or .html; rename it"),
        (["suspects", "tiny"], "tiny: one word alone must be an embeddings file (.npz, "),
        (["suspects", "tiny", "a", "b"], "obdsd data suspects takes MODEL DATA, or an embeddings file, not 3 words: tiny a b"),
        (["check", "a", "b"], "obdsd data check takes one collection, not 2 words: a b"),
        (["suspects", "one.npz"], "one.npz: all items have one label ('wren'), so no other class can fit better; give 2 classes or more"),
        (["suspects", "plain.npz", "--size", "64"], "--size 64 is for a model and its data; leave it out for an embeddings file alone"),
        (["suspects", "plain.npz", "--to", "x"], "--to x is for obdsd data get; leave it out"),
        (["check", "plain.npz", "--most", "3"], "--most 3 is for obdsd data suspects; leave it out"),
        (["check", "plain.npz", "--out", "x.csv"], "--out x.csv is for obdsd data suspects; leave it out"),
        (["suspects", "plain.npz", "--split-seed", "3"], "--split-seed 3 is for obdsd data check; leave it out"),
    ],
)
