"""What tests of ``fit --dry_run`` share."""

from pathlib import Path

import pytest

from ofmu_pl.cli import main


@pytest.fixture
def tried(monkeypatch, capsys, tmp_path):
    """Runs the command; returns its exit code, the verdict of each step, and all that was said in one line."""
    monkeypatch.chdir(Path(__file__).parents[2])
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def tried(*words):
        code = 0
        try:
            main(["fit", *words, "--logs", str(tmp_path / "logs"), "--dry_run"])
        except SystemExit as stop:
            code = stop.code
        said = capsys.readouterr()
        rows = [[cell.strip() for cell in line.split("│")[1:3]] for line in said.out.splitlines() if "│" in line]
        assert not (tmp_path / "logs").exists(), "a dry run writes nothing"
        return code, {what: verdict for what, verdict in rows if what}, " ".join((said.out + said.err).split())

    return tried
