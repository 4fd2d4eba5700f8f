"""How the tests read the page in a browser, and what it should show of the content made up for them."""

import io

import numpy as np
from PIL import Image

from tests.report.made_content import made_content

CONTENT = made_content()
LABELS = np.array([item.label for item in CONTENT.items])
BASE, OURS = CONTENT.runs


def queries(page) -> list[int]:
    """All queries of the gallery as it stands, page after page."""
    found = []
    while True:
        found += page.eval_on_selector_all(".card", "cards => cards.map(card => Number(card.dataset.query))")
        if not page.is_visible("#next") or page.is_disabled("#next"):
            return found
        page.click("#next")


def point(page, plot: str, place: int) -> tuple[float, float]:
    """Where on the screen a point of a plot is."""
    page.locator(f"#{plot}").scroll_into_view_if_needed()
    x, y = page.evaluate(
        """([plot, place]) => { const box = document.getElementById(plot), edge = box.getBoundingClientRect();
        const { xaxis, yaxis } = box._fullLayout;
        return [edge.x + xaxis._offset + xaxis.d2p(box.data[0].x[place]), edge.y + yaxis._offset + yaxis.d2p(box.data[0].y[place])]; }""",
        [plot, place],
    )
    return x, y


def lonely(run) -> int:
    """The item farthest from all others on a map: no other mark hides it."""
    distances = np.linalg.norm(run.map[:, None] - run.map, axis=2) + 1e9 * np.eye(len(run.map))
    return int(distances.min(axis=1).argmax())


def colours(picture: bytes) -> np.ndarray:
    return np.asarray(Image.open(io.BytesIO(picture)).convert("RGB")).reshape(-1, 3).astype(int)


def expected(name: str) -> list[int]:
    """The queries of each filter, from the content alone."""
    gain = np.array(OURS.per_class) - np.array(BASE.per_class)
    best = [label for label in np.argsort(-gain, kind="stable") if gain[label] > 0][:10]
    hardest = np.argsort(BASE.positive.cosines[:, 0], kind="stable")
    return {
        "all": list(range(len(LABELS))),
        "wins": np.flatnonzero(OURS.right & ~BASE.right).tolist(),
        "losses": np.flatnonzero(BASE.right & ~OURS.right).tolist(),
        "wrong": np.flatnonzero(~BASE.right & ~OURS.right).tolist(),
        "improved": [int(item) for label in best for item in np.flatnonzero(LABELS == label)],
        "cross": hardest[:12].tolist(),
        "local": CONTENT.local_queries.tolist(),
        "chosen": CONTENT.chosen_queries.tolist(),
    }[name]
