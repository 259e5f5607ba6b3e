from ._comparison import (
    comparison_html as comparison_html,
    write_comparison as write_comparison,
)
from ._numbers import (
    numbers_json as numbers_json,
)
from ._page import (
    draw_again as draw_again,
    draw_figures as draw_figures,
    report_html as report_html,
    write_report as write_report,
)
from ._snippet import (
    comparison_snippet as comparison_snippet,
    snippet_html as snippet_html,
)
