"""Tables of texts: CSV and TSV, as other programs write them."""

from __future__ import annotations

import csv
from pathlib import Path

from ofmu_pl.support.errors import UserError
from ofmu_pl.support.files import LARGEST_JSON

SEPARATORS = ",;\t"
"""What may stand between values of a .csv file; where a comma separates decimals, programs write semicolons."""
REMEDY = "write texts with separators, quotes or line breaks in double quotes, and double the quotes inside"


def read_table(path: Path, separators: str = SEPARATORS) -> list[dict[str, str]]:
    """Read a table whose first line has the names of its columns; every value is text, as it is written."""
    with path.open(newline="", encoding="utf-8-sig") as file:
        names = next(filter(str.strip, file), "")
        file.seek(0)
        separator = next((x for x in separators if x in names), separators[0])
        reader = csv.reader(file, delimiter=separator, strict=True)
        limit = csv.field_size_limit(LARGEST_JSON)  # the module's is meant for other tables, which the process may read
        try:
            lines = [(reader.line_num, values) for values in reader if values]
        except csv.Error as error:
            raise UserError(f"Line {reader.line_num} of '{path}' is of no table ({error}): {REMEDY}.") from error
        finally:
            csv.field_size_limit(limit)
    columns = [name.strip() for name in lines[0][1]] if lines else []
    twice = next((name for name in columns if name and columns.count(name) > 1), None)
    if twice is not None:
        raise UserError(
            f"Two columns of '{path}' are called '{twice}', and only one can be read: rename one, or remove it."
        )
    for number, values in lines[1:]:
        more = len(values) - len(columns)
        if more > 0:
            raise UserError(
                f"Line {number} of '{path}' has {more} value{'s' * (more > 1)} more than the line of column names has "
                f"names: {REMEDY}."
            )
    return [dict(zip(columns, values + [""] * len(columns), strict=False)) for _, values in lines[1:]]
