"""The report: one HTML file that shows a team which ``max_tokens_per_mb`` to use, and why.

Notable:
- no script, no font, no picture from elsewhere: a content security policy in the file forbids it
- charts are drawn as SVG here, so that they print sharply and follow the reader's light or dark
- every figure says whether it is exact, measured or estimated
- text of the dataset is shown only where asked for; whatever comes from data is escaped
"""

from tuning.report.files import figures_of, write_figures, write_tables, zipped
from tuning.report.gpu import gpu_tables
from tuning.report.page import render_report
from tuning.report.tables import Table, tables_of

__all__ = [
    "Table",
    "figures_of",
    "gpu_tables",
    "render_report",
    "tables_of",
    "write_figures",
    "write_tables",
    "zipped",
]
