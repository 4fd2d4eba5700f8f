"""A made-up metric, in a module of its own."""

import obdsd

obdsd.register_metric(
    obdsd.Metric(
        name="second-hit",
        title="Second hit",
        sentence="Share of queries whose second nearest item has the same class. Higher is better.",
        percent=True,
        per_query=lambda ranking: (ranking.hit & (ranking.rank == 2)).any(axis=1),
        depth=2,
    )
)
