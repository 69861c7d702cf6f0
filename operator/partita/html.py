"""Tables and text as HTML, for notebooks."""

from html import escape

from rich.table import Table


def html_table(table: Table) -> str:
    """A table whose cells are text."""
    columns = [[escape(str(cell)) for cell in column.cells] for column in table.columns]
    head = "".join(f"<th>{escape(str(column.header))}</th>" for column in table.columns)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>" for cells in zip(*columns, strict=True))
    title = f"<caption>{escape(str(table.title))}</caption>" if table.title else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def html_lines(text: str) -> str:
    """A paragraph that keeps its lines."""
    return f"<p>{'<br>'.join(escape(line) for line in text.splitlines())}</p>"
