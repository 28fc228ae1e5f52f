"""Sphinx's configuration; ``bash scripts/docs.sh`` builds the site."""

import re
import sys
import warnings
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE), str(HERE.parent / "scripts")]

import generate

from ofmu_pl import __version__

project, author, release = "ofmu_pl", "The ofmu_pl developers", __version__
copyright = author
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["tutorials", "_build"]  # the gallery's sources; its pages are in generated/
highlight_language = "none"  # of what says no language of its own: formulas
html_theme = "furo"
html_title = f"ofmu_pl {release}"
html_static_path = ["_static", "results/figures"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
autodoc_typehints = "none"  # the signatures hold them
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
sphinx_gallery_conf = {
    "examples_dirs": "tutorials",
    "gallery_dirs": "generated/tutorials",
    "filename_pattern": r"\d\d_\w+\.py$",
    "ignore_pattern": r"tiny\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "remove_config_comments": True,
    "copyfile_regex": r"tiny\.py$",
    "min_reported_time": 3600,  # how long a busy machine took says nothing to a reader
    "write_computation_times": False,
    "show_memory": False,
    "show_signature": False,
    "abort_on_example_error": True,
}

warnings.filterwarnings("ignore", message="The reference 'a loaded model' does not say")  # it is the tutorial's own

SECTIONS = re.compile(r"^(Args|Attributes|Returns|Raises|Yields|Example|Examples|Note|References):$")
OUTSIDE = re.compile(r"^    (.*)$")
SIGNS = re.compile(r"(?<!\\)([|*])|(?<=\w)(_)(?=\W|$)")


def as_restructured_text(app, what, name, obj, options, lines):
    """Make plain docstrings good reStructuredText: indented formulas become literal, and bars are bars.

    The docstrings are written to be read in a terminal, where ``--help`` prints them.
    """
    found, literal, described = [], False, True
    for i, line in enumerate(lines):
        described = described and not SECTIONS.match(line)
        indented = described and OUTSIDE.match(line)
        if indented and not literal and (i == 0 or not lines[i - 1].strip()) and not line.lstrip().startswith(">>>"):
            found += ["::", ""]
            literal = True
        elif line.strip() and not indented:
            literal = False
        found.append(line if literal or ">>>" in line or line.lstrip().startswith("...") else escaped(line))
    lines[:] = found


def escaped(line):
    """A line whose bars, stars and trailing underscores stand for themselves, but for what is set off."""
    parts = re.split(r"(``.*?``|(?<!\S)\*\w[^*`]*\w\*(?=\W|$))", line)
    return "".join(p if i % 2 else SIGNS.sub(r"\\\1\2", p) for i, p in enumerate(parts))


SOURCE = re.compile(r"\[`?([^\]`]*)`?\]\((?:\.\./)+(ofmu_pl/[\w/]+\.py)\)")
ABOVE = re.compile(r"\]\(\.\./(CONTRIBUTING|CHANGELOG)\.md")


def within_the_site(app, docname, source):
    """Links that leave docs/ in the repository: files of code are named, and the two other pages are on the site."""
    source[0] = ABOVE.sub(lambda m: f"](/generated/{m[1].lower()}.md", SOURCE.sub(r"`\2`", source[0]))


def setup(app):
    """Write the generated pages before anything is read."""
    app.connect("autodoc-process-docstring", as_restructured_text, priority=400)  # before napoleon's 500
    app.connect("source-read", within_the_site)
    app.connect("builder-inited", lambda app: generate.write(Path(app.srcdir) / "generated"), priority=100)
