"""How the tests read the page in a browser, and what it should show of the content made up for them."""

import numpy as np

from tests.report.made_content import made_content, right

CONTENT = made_content()
LABELS = CONTENT.labels
BASE, OURS = CONTENT.runs


def queries(page) -> list[int]:
    """All queries of the gallery as it stands, page after page."""
    found = []
    while True:
        found += page.eval_on_selector_all(".card", "cards => cards.map(card => Number(card.dataset.query))")
        if not page.is_visible("#next") or page.is_disabled("#next"):
            return found
        page.click("#next")


def expected(name: str) -> list[int]:
    """The queries of each filter, from the content alone."""
    base, ours = right(BASE, LABELS), right(OURS, LABELS)
    gain = np.array(OURS.per_class) - np.array(BASE.per_class)
    best = [label for label in np.argsort(-gain, kind="stable") if gain[label] > 0][:10]
    return {
        "all": list(range(len(LABELS))),
        "wins": np.flatnonzero(ours & ~base).tolist(),
        "losses": np.flatnonzero(base & ~ours).tolist(),
        "wrong": np.flatnonzero(~base & ~ours).tolist(),
        "improved": [int(item) for label in best for item in np.flatnonzero(LABELS == label)],
        "cross": np.argsort(BASE.positive.cosines[:, 0], kind="stable")[:12].tolist(),
        "local": CONTENT.local_queries.tolist(),
        "chosen": CONTENT.chosen_queries.tolist(),
    }[name]
