"""The load report as a table for the terminal."""

from rich.table import Table

from partita_runtime.load.report import LoadReport


def report_table(report: LoadReport) -> Table:
    """The report as a table of two columns."""
    table = Table(title="Load", show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(justify="right")
    table.add_row("Requests", f"{report.requests} in {report.duration_s:.0f} s")
    table.add_row("Offered", f"{report.offered_rate:.1f} requests/s")
    table.add_row("Goodput", f"{report.goodput:.1f} requests/s")
    table.add_row("Attainment", f"{report.attainment:.2%} within {report.slo_ms:.0f} ms")
    for name, value in (("p50", report.p50_ms), ("p90", report.p90_ms), ("p99", report.p99_ms)):
        table.add_row(f"Latency {name}", "no answer" if value is None else f"{value:.1f} ms")
    for outcome, count in report.outcomes.items():
        table.add_row(f"Outcome {outcome}", str(count))
    return table
