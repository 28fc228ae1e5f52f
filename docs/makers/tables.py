"""The page that shows any table of docs/results, sorted as its reader likes, and the data that it shows."""

import json

import results
import where_ofmu_stands

PAGE = """# All tables of results

Choose a page of [results](../results/index.md) and a table; a click on a column's head sorts by it. Behind ± stands the
standard deviation over seeds, in brackets the 95 % interval.

```{raw} html
<p><label>Page <select id="pages"></select></label> <label>Table <select id="tables"></select></label></p>
<div id="shown"></div>
<script>const PAGES = DATA;</script>
<script src="../_static/tables.js"></script>
```
"""


def shown():
    """Tables and figures by page, as the browser shows them."""
    found = {"ofmu": {"tables": where_ofmu_stands.every_table(), "figures": []}}
    for path in sorted(results.RESULTS.glob("data/*.json")):
        found[path.stem] = {
            "tables": results.every_table(results.Stored.read(path)),
            "figures": [figure.name for figure in results.drawings(path.stem)],
        }
    for page in found.values():
        page["tables"] = [of_browser(place, table) for place, table in page["tables"]]
    return found


def of_browser(place, table):
    """One table: its texts, and the numbers that columns are sorted by."""
    rows = [[cell(entry) for entry in row] for row in table.rows]
    return {"place": place, "title": table.title, "head": table.head, "rows": rows, "notes": table.notes}


def cell(entry):
    """What stands in a place, whether it is the best, and the number that it is sorted by, if any."""
    shown = {"text": entry.text + entry.mark, "small": entry.small, "number": entry.numbers.get("")}
    return shown | ({"best": True} if entry.best else {})


def table_page():
    """The page with its data in it, since a page that is opened from a disk may read no other file."""
    data = json.dumps(shown(), separators=(",", ":"), allow_nan=False)
    return PAGE.replace("DATA", data.replace("<", "\\u003c").replace("`", "\\u0060"))
