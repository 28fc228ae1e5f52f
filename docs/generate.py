"""Writes the pages about single methods and metrics, and the API reference, from docstrings, declarations and results.

Sphinx calls ``write`` before it reads (docs/conf.py); nothing that is written here is kept in the repository.
"""

from pathlib import Path

from makers.api import api_pages
from makers.methods import method_pages
from makers.metrics import metric_pages
from makers.tables import table_page

ROOT = Path(__file__).parent.parent
ABOVE = ("CONTRIBUTING", "CHANGELOG")
"""Pages of the repository that are on the site as they are."""


def write(into: Path) -> None:
    """Write all generated pages.

    Args:
        into: Folder for them, inside the folder that Sphinx reads.
    """
    texts = {f"{name}.rst": text for name, text in (*method_pages(), *metric_pages(), *api_pages())}
    texts |= {f"{name.lower()}.md": as_on_the_site(ROOT / f"{name}.md") for name in ABOVE}
    texts["tables.md"] = table_page()
    for name, text in texts.items():
        path = into / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_text(encoding="utf-8") != text:  # what is as it was is not read again
            path.write_text(text, encoding="utf-8")


def as_on_the_site(path: Path) -> str:
    """A page of the repository's root, with its links to docs/ as they are from the generated pages."""
    return path.read_text(encoding="utf-8").replace("](docs/", "](../")
