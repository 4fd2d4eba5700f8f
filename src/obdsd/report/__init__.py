"""The report: finished runs as one page. `gather` reads them and looks at them from all sides, `render` draws what was gathered."""

from obdsd.errors import explain_missing

with explain_missing():
    from obdsd.report.gathering import gather
    from obdsd.report.page import render

__all__ = ["gather", "render"]
