"""What would steer a terminal, a table or a page leaves as escapes, whoever wrote it."""

import io
import logging
import warnings

import pytest
from rich.markup import escape
from rich.table import Table as Printed

from ofmu_pl.cli.words import fail
from ofmu_pl.report.tables import Entry, Table, to_csv, to_latex, to_markdown
from ofmu_pl.support.escapes import command, say, visible
from ofmu_pl.support.pages import plain, templates
from ofmu_pl.support.terminal import Prudent, console, print_whole
from ofmu_pl.training.noise import as_sentence, ignore_noise

EVIL = "a\x1b[2Jb\x9b31mc\x07d\re\x7ff\u202eg\u2066h\x00i"
SEEN = r"a\x1b[2Jb\x9b31mc\x07d\re\x7ff\u202eg\u2066h\x00i"
STEERING = set(EVIL) - set("abcdefghi[2J31m")


def test_only_what_steers_is_escaped():
    assert visible(EVIL) == SEEN
    kept = "tab\tline\né ß 日本 \u200d🙂 a\u0301 \u05d0 100 % \\x1b"
    assert visible(kept) == kept


def test_nobody_begins_a_line_of_its_own(capsys):
    with pytest.raises(SystemExit):
        fail("a\nofmu_pl: warning: b")
    assert capsys.readouterr().err == "ofmu_pl: error: a\\nofmu_pl: warning: b\n"


def said_by_fail():
    with pytest.raises(SystemExit):
        fail(EVIL)


def said_by_table():
    table = Printed(escape(EVIL), title=escape(EVIL))
    table.add_row(escape(EVIL))
    console().print(table)
    print_whole(table, console())
    Prudent(file=io.StringIO()).print(table)


def said_by_warning():
    text = as_sentence(UserWarning(EVIL), UserWarning, "/x/ofmu_pl/a.py", 1)
    assert SEEN in text
    assert STEERING & set(as_sentence(UserWarning(EVIL), UserWarning, "/x/b.py", 1, "")) == set()
    say(text)


def said_by_log():
    with warnings.catch_warnings():
        ignore_noise()
    logger, heard = logging.getLogger("lightning.pytorch.utilities.rank_zero"), io.StringIO()
    handler = logging.StreamHandler(heard)
    logger.addHandler(handler)
    logger.info(EVIL)
    logger.removeHandler(handler)
    print(heard.getvalue())


SPEAKERS = {"fail": said_by_fail, "table": said_by_table, "warning": said_by_warning, "log": said_by_log}


@pytest.mark.parametrize("speaks", SPEAKERS)
def test_no_terminal_is_steered(speaks, capsys):
    SPEAKERS[speaks]()
    said = "".join(capsys.readouterr())
    assert STEERING & set(said) == set()
    assert r"\x1b[2J" in said.replace("\n", "")


def test_styles_of_our_own_are_left(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    out = io.StringIO()
    Prudent(file=out, force_terminal=True, color_system="standard").print("[bold]a[/bold]\x1b[2J")
    assert "\x1b[1m" in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


def test_no_table_or_page_is_steered():
    table = Table(EVIL, EVIL, [EVIL], notes=[EVIL])
    table.add([Entry(EVIL, EVIL, mark=EVIL)])
    page = templates("ofmu_pl.evaluation").from_string("{{ x }}|{{ x|upper }}|{{ x|e }}|{{ [x]|join('-') }}")
    texts = [to_markdown(table), to_csv(table), to_latex(table), plain(EVIL), page.render(x=EVIL)]
    for text in texts:
        assert STEERING & set(text) == set()
    assert page.render(x="<b>").split("|")[0] == "&lt;b&gt;"


@pytest.mark.parametrize(("path", "first"), [("there", "ofmu_pl"), ("elsewhere", "-m ofmu_pl")])
def test_a_command_runs_without_an_active_environment(path, first, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path / path))
    (tmp_path / "there").mkdir()
    (tmp_path / "there/ofmu_pl").touch(0o755)
    line = command("report", "a folder")
    assert f"{first} report 'a folder'" in line
    assert line.startswith("ofmu_pl") == (path == "there")
