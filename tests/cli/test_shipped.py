"""Configurations by name, in a checkout and in a wheel, and the commands that go with them."""

import re
from pathlib import Path

import pytest

from ofmu_pl.cli import main
from ofmu_pl.support import shipped

ROOT = Path(__file__).parents[2]


def test_configs_lists_every_file_with_its_first_sentence(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    main(["configs"])
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert set(lines) == {p.relative_to(ROOT / "configs").as_posix() for p in (ROOT / "configs").rglob("*.yaml")}
    begun = {name: (ROOT / "configs" / name).read_text().splitlines()[0] for name in lines}
    assert begun["authors.yaml"].startswith(f"# {lines['authors.yaml']}")
    assert begun["methods/wga.yaml"].startswith(f"# {lines['methods/wga.yaml']}. "), "another sentence follows"
    assert "2025" in lines["methods/wga.yaml"], "its 'et al.' ends no sentence"


@pytest.mark.parametrize("word", ["--config={}", "--config {}"])
def test_a_configuration_is_found_by_name(word, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = word.format("ofmu_pl:tofu.yaml").split()
    with pytest.raises(SystemExit) as stop:
        main(["fit", *words, "-c", "ofmu_pl:methods/npo.yaml", "--print_config"])
    assert stop.value.code == 0
    assert re.search(r"class_path: ofmu_pl\S*\.NPO\n", capsys.readouterr().out)


def test_where_they_lie_when_installed(tmp_path, monkeypatch):
    (tmp_path / "ofmu_pl/configs").mkdir(parents=True)
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "ofmu_pl")
    assert shipped.folder() == tmp_path / "ofmu_pl/configs"
