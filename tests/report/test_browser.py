"""The page in a real Chromium, without network."""

import json
import shutil
from pathlib import Path

import pytest

FLAGS = (
    "--headless --no-sandbox --disable-gpu --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync --window-size=1280,900"
).split()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Chromium, driven by selenium; Debian's packages are chromium and chromium-driver."""
    selenium = pytest.importorskip("selenium.webdriver", reason="selenium is not installed: pip install -e '.[dev]'")
    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    if None in paths:
        pytest.skip("no chromium and chromedriver on this machine: install Debian's chromium and chromium-driver")
    options = selenium.ChromeOptions()
    options.binary_location = paths[0]
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = selenium.Chrome(options=options, service=selenium.ChromeService(paths[1]))
    yield driver
    driver.quit()


def open_page(browser, url, width=1280):
    """Load it; what the console and the network say."""
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")  # not the browser's own first page, which asks for its pictures
    for kind in ("browser", "performance"):
        browser.get_log(kind)
    browser.get(url)
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    return browser.get_log("browser"), [u for u in asked if not u.startswith("data:")]


def test_the_page_opens_without_network_or_errors(browser, page):
    console, asked = open_page(browser, page.as_uri())
    assert browser.title == "synthetic: unlearning report"
    assert console == []
    assert asked == [page.as_uri()]
    widths = browser.execute_script("return [...document.images].map(i => i.complete && i.naturalWidth)")
    assert len(widths) >= 10
    assert all(width > 1000 for width in widths)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    shown = browser.execute_script("return [...document.images].map(i => i.getBoundingClientRect().width)")
    assert min(shown) >= 1000 * 12 / 14, "ten points of a ten-inch figure are no fewer than 12 CSS pixels"
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [1280, 400])
def test_all_of_it_unfolded_fits_the_page(browser, page, width):
    open_page(browser, page.as_uri(), width)
    browser.execute_script("document.querySelectorAll('details').forEach(d => d.open = true)")
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width


TABLE = {"place": "", "title": "A table", "head": ["method", "value", "what " * 20], "notes": ["a note"]}
LONG = "a statement that needs more than a line of its column " * 3
TEXTS = [
    [("b", None), ("10", 10.0), ("", None)],
    [("a", None), ("–", None), (LONG, None)],
    [("c", None), ("9", 9.0), ("", None)],
]


def test_the_page_of_all_tables_sorts_and_fits(browser, tmp_path):
    """``docs/makers/tables.py`` puts the data in."""
    rows = [[{"text": text, "small": "", "number": number} for text, number in row] for row in TEXTS]
    data = {"p": {"tables": [TABLE | {"rows": rows}, TABLE | {"title": "Another", "rows": rows[:1]}], "figures": []}}
    script = (Path(__file__).parents[2] / "docs/_static/tables.js").as_uri()
    html = '<select id="pages"></select><select id="tables"></select><div id="shown"></div>'
    page = tmp_path / "tables.html"
    page.write_text(f"{html}<script>const PAGES = {json.dumps(data)};</script><script src='{script}'></script>")
    console, _ = open_page(browser, page.as_uri() + "#p/0")
    assert console == []
    first = "return [...document.querySelectorAll('tbody td:first-child')].map(x => x.textContent)"
    assert browser.execute_script(first) == ["b", "a", "c"]
    for column, order in ((0, "abc"), (1, "cba"), (1, "bca")):
        browser.execute_script(f"document.querySelectorAll('th button')[{column}].click()")
        assert "".join(browser.execute_script(first)) == order
    assert browser.execute_script("return [...document.querySelectorAll('td.text')].map(x => x.textContent)") == [LONG]
    browser.execute_script("tables.value = 1; tables.onchange()")
    assert browser.execute_script("return location.hash") == "#p/1"
    assert browser.execute_script(first) == ["b"]
