"""A backbone and a head that was trained on its embeddings: one model for images, which knows what it has seen."""

import numpy as np
import pytest

from obdsd.models import Embedder, open_model

SMALL = ["--epochs", "2", "--batch-size", "4", "--dim", "5", "--device", "cpu", "--evaluate-every", "0", "--no-report"]


@pytest.fixture(scope="module")
def parts(made, tmp_path_factory):
    """A bare backbone with its embeddings of list.csv, and the run of a head on them."""
    from obdsd import cli

    folder = tmp_path_factory.mktemp("parts")
    Embedder("tiny-conv", head="none", pretrained="none", seed=4).save(folder / "bare")
    assert (
        cli.main(["embed", str(folder / "bare"), f"manifest:{made / 'list.csv'}", "--out", str(folder / "rows.npz"), "--device", "cpu"])
        == 0
    )
    assert cli.main(["train", str(folder / "rows.npz"), "--out", str(folder / "head"), *SMALL]) == 0
    return folder


def test_the_joined_model_gives_the_rows_that_the_head_gives(obdsd, parts, tmp_path):
    code, printed, told = obdsd("join", parts / "bare", parts / "head", "--out", tmp_path / "whole")
    assert (code, printed) == (0, f"model: {tmp_path / 'whole'}, images to rows of length 5\n")
    assert told == "the model knows its training classes, but not their images; --data DATA tells it\n"
    for model, data, out in ((tmp_path / "whole", "manifest:list.csv", "one.npz"), (parts / "head", parts / "rows.npz", "two.npz")):
        assert obdsd("embed", model, data, "--out", tmp_path / out, "--device", "cpu")[0] == 0
    one, two = (np.load(tmp_path / name) for name in ("one.npz", "two.npz"))
    assert (one["names"] == two["names"]).all()
    np.testing.assert_allclose(one["embeddings"], two["embeddings"], atol=1e-5)


def test_a_backbone_at_another_size_is_joined_as_its_embeddings_were_made(obdsd, tmp_path):
    Embedder("features", features=128, dim=5).save(tmp_path / "head")
    seen = ("--size", "20", "--resize", "30", "--pooling", "avg+max")
    assert obdsd("join", "tiny-conv:none", tmp_path / "head", "--out", tmp_path / "whole", *seen)[0] == 0
    assert obdsd("embed", "tiny-conv:none", "manifest:list.csv", "--out", tmp_path / "rows.npz", *seen)[0] == 0
    for model, data, out in ((tmp_path / "whole", "manifest:list.csv", "one.npz"), (tmp_path / "head", tmp_path / "rows.npz", "two.npz")):
        assert obdsd("embed", model, data, "--out", tmp_path / out, "--device", "cpu")[0] == 0
    one, two = (np.load(tmp_path / name)["embeddings"] for name in ("one.npz", "two.npz"))
    np.testing.assert_allclose(one, two, atol=1e-5)


@pytest.mark.parametrize("suffix", ["npz", "parquet"])
def test_a_head_knows_how_its_embeddings_were_made(obdsd, refused, tmp_path, suffix):
    """The backbone is joined so by default, another size is refused; a head that does not know says so."""
    rows, head, whole = tmp_path / f"rows.{suffix}", tmp_path / "head", tmp_path / "whole"
    seen = ("--size", "20", "--resize", "30", "--pooling", "avg+max")
    assert obdsd("embed", "tiny-conv:none", "manifest:list.csv", "--out", rows, *seen, "--device", "cpu")[0] == 0
    assert obdsd("train", rows, "--out", head, *SMALL)[0] == 0
    code, _, told = obdsd("join", "tiny-conv:none", head, "--out", whole)
    assert (code, "cannot be checked" in told) == (0, False)
    assert open_model(str(whole)).how_it_sees() == {
        "backbone": "tiny-conv", "pooling": "avg+max", "size": 20, "resize": 30,
    }  # fmt: skip
    for name, value, made in (("size", "24", 20), ("resize", "28", 30), ("pooling", "avg", "avg+max")):
        line = refused("join", "tiny-conv:none", head, "--out", whole, f"--{name}", value)
        assert line == f"--{name} {value} is not the {made} that the embeddings of HEAD {head} were made with; leave it out"
    model = Embedder.load(head / "model")
    model.made_by = None
    model.save(tmp_path / "unknowing")
    told = obdsd("join", "tiny-conv:none", tmp_path / "unknowing", "--out", whole)[2]
    assert "the head does not say how its embeddings were made; whether the backbone sees images so cannot be checked\n" in told


def test_told_of_its_images_it_refuses_to_be_scored_on_them(obdsd, parts, made, tmp_path):
    joined = tmp_path / "whole"
    assert obdsd("join", parts / "bare", parts / "head", "--out", joined, "--data", "manifest:list.csv") == (
        0, f"model: {joined}, images to rows of length 5\n", "",
    )  # fmt: skip
    assert len(open_model(str(joined)).trained_on.items["train"].split()) == 16
    turned = (made / "list.csv").read_text().replace(",train,", ",test,").replace(",query,", ",train,").replace(",gallery,", ",train,")
    (made / "turned.csv").write_text(turned)
    code, _, told = obdsd("evaluate", joined, "manifest:turned.csv", "--device", "cpu", "--ks", "1")
    assert code == 2
    assert "was trained on 16 of the 16 items of test" in told


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("tiny", "parts/head"), "BACKBONE tiny-conv must give its pooled features as they are"),
        (("parts/bare", "tiny"), "HEAD tiny-conv is a model for images, not a head"),
        (("parts/bare", "head"), "BACKBONE tiny-conv gives 128 features, the head takes 6"),
        (("parts/bare", "parts/head", "--data", "glyphs"), "--data glyphs holds none of the classes that the head was trained on"),
        (("parts/bare", "nowhere"), "model='nowhere' does not exist"),
        (("parts/bare", "parts/head", "--size", "48"), "--size 48 is for BACKBONE:WEIGHTS, model="),
    ],
)
def test_what_cannot_be_joined_is_one_line(refused, parts, tmp_path, words, message):
    words = [word.replace("parts/", f"{parts}/") for word in words]
    assert message in refused("join", *words, "--out", tmp_path / "whole")
    assert not (tmp_path / "whole").exists()
