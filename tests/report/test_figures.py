"""Every figure has named axes, a legend where it needs one, and the same colours."""

import numpy as np
import pytest
from matplotlib import rc_context

from ofmu_pl.report.collect import collect
from ofmu_pl.report.derived import curve
from ofmu_pl.report.figures import FIGURES, pictures, studies
from ofmu_pl.report.figures.style import COLOURS, MARKERS, OURS, RC, Look
from ofmu_pl.report.figures.telemetry import telemetry
from ofmu_pl.report.runs import StudiedRun
from ofmu_pl.support.records.manifest import KINDS
from ofmu_pl.support.records.results import Results
from tests.helpers import folders


@pytest.fixture(scope="module")
def experiments(page):
    found = {e.name: e for e in collect(page.parent.parent).experiments}
    assert {e.kind for e in found.values()} == set(KINDS)
    return found


LOOK = Look(["ofmu", "npo", "rmu", "new"], ["ofmu"])


@pytest.fixture(scope="module")
def every(experiments):
    """Figures of all kinds by name."""
    with rc_context(RC):
        found = {
            f"{name} trade_offs": studies.trade_offs(experiments[name], LOOK)
            for name in ("authors", "digits", "ablation")
        }
        found["telemetry"] = telemetry(experiments["ablation"], LOOK)
        for e in experiments.values():
            if e.kind in ("sweep", "udi"):
                found[e.kind] = FIGURES[e.kind][e.kind][1](e, LOOK)
    return found


def test_axes_have_names_with_units_and_nothing_is_cut_off(every):
    assert len(every) == 3 + 2 + 1
    for name, figure in every.items():
        figure.draw_without_rendering()
        titles = [figure.get_suptitle(), *(a.get_title(loc="left") for a in figure.axes)]
        assert any(len(t) > 15 for t in titles), name
        for axis in (a for a in figure.axes if a.get_visible()):
            for label, ticks in (
                (axis.get_xlabel(), axis.get_xticklabels()),
                (axis.get_ylabel(), axis.get_yticklabels()),
            ):
                names = any(t.get_text().isidentifier() for t in ticks)  # an axis of methods needs no other name
                shared = not any(t.get_text() and t.get_visible() for t in ticks)
                assert label or names or shared or name == "udi", (name, axis)
            whole = axis.get_tightbbox()
            assert min(whole.x0, whole.y0) >= -1, name
            assert max(whole.x1 - figure.bbox.width, whole.y1 - figure.bbox.height) <= 1, name


def test_a_method_looks_the_same_in_every_figure_and_as_no_other():
    others = [f"method {i}" for i in range(24)]
    look = Look([*others, "ofmu", "b", "a"], ["ofmu", None])
    again = Look(["ofmu", "a", "b", *reversed(others)], ["ofmu"])
    names = [*others, "a", "b", "ofmu"]
    styles = [(look.colour(m), look.marker(m)) for m in names]
    assert len(set(styles)) == len(names)
    assert styles == [(again.colour(m), again.marker(m)) for m in names]
    assert look.colour("ofmu") == OURS
    assert OURS not in COLOURS
    assert not {look.marker("before"), look.marker("retrained"), look.marker("ofmu")} & set(MARKERS)


def test_the_sweep_has_three_panels_and_a_line_for_each_rho(experiments):
    with rc_context(RC):
        figure = studies.sweep(experiments["sweep"], LOOK)
    assert [a.get_ylabel() for a in figure.axes] == ["UA (%)", "TA (%)", "avg gap (%)"]
    labels = {t.get_text() for t in figure.legends[0].get_texts()}
    assert labels == {"ρ = 0.1", "ρ = 0.5", "ρ = 1", "retrained model (mean)"}


def test_experiments_without_finished_runs_have_no_figures(bench):
    bench.experiment("e", "table", {}, [("a", "ofmu", 0, "failed", "OFMU diverged.")])
    for kind in FIGURES:
        bench.experiments["e"]["kind"] = kind
        bench.save()
        assert list(pictures(collect(bench.folder).experiments[0], LOOK)) == []


def lines_of(axis, method):
    return [line for line in axis.lines if line.get_label() == method]


def test_telemetry_shows_means_by_iteration_and_no_penalty_where_there_is_none(experiments, every):
    panels = {axis.get_ylabel(): axis for axis in every["telemetry"].axes}
    assert list(panels) == ["loss (nats)", "similarity", "|gradient|", "penalty", "curvature of Φ"]
    (share,) = lines_of(panels["penalty"], "ofmu")
    np.testing.assert_allclose(share.get_ydata(), 10.0)
    np.testing.assert_allclose(share.get_xdata(), np.arange(1, 21))
    (curved,) = lines_of(panels["curvature of Φ"], "ofmu")
    np.testing.assert_allclose(curved.get_ydata(), [1.0] * 10 + [-1.0] * 10)
    for name, axis in panels.items():
        assert bool(lines_of(axis, "no_penalty")) == (name not in ("penalty", "curvature of Φ"))
        assert axis.get_yscale() == ("log" if name in ("|gradient|", "penalty") else "linear")
    forget, retain = lines_of(panels["loss (nats)"], "no_similarity")
    np.testing.assert_allclose(forget.get_ydata(), np.arange(40) / 40)
    assert forget.get_linestyle() != retain.get_linestyle()
    assert telemetry(experiments["authors"], LOOK) is None, "no run of it has the curves"


def run_with(**curves):
    return StudiedRun("a", "ofmu", 0, "a/ofmu", "finished", results=Results({}, curves=curves))


def test_a_curve_has_values_where_they_were_measured_and_nowhere_else():
    odd = {"step": [1, 10**12, "4"], "value": [1.0, 2.0, 3.0]}
    sparse = run_with(L_f={"step": [1, 4], "value": [2.0, 3.0]}, Sim=odd)
    np.testing.assert_array_equal(curve(sparse, "L_f"), [2.0, np.nan, np.nan, 3.0])
    np.testing.assert_array_equal(curve(sparse, "Sim"), [1.0])
    assert not len(curve(sparse, "rho"))


def telemetry_of(bench, **curves):
    """The panels of one run, by their axes' names."""
    values = {"model_utility": 0.5}
    bench.experiment("e", "ablation", {("a", "ofmu", 0): folders.results(values, values, values, curves=curves)})
    (experiment,) = collect(bench.folder).experiments
    with rc_context(RC):
        figure = telemetry(experiment, LOOK)
        (picture,) = pictures(experiment, LOOK)
    assert int.from_bytes(picture.content[16:20]) == 1440, "pixels, of narrow figures, too"
    assert "mean" not in figure.get_suptitle(), "it is one run"
    return {axis.get_ylabel(): axis for axis in figure.axes}


def test_telemetry_of_a_run_that_looks_at_every_fifth_iteration(bench):
    names = ("L_f", "Sim", "grad_L_f", "grad_L_r", "grad_Phi", "penalty", "penalty_share", "curvature")
    whole = {"step": [*range(1, 51, 5)], "value": [2.0] * 10}
    every = {"step": [*range(1, 51)], "value": [1.0] * 50}
    panels = telemetry_of(bench, **dict.fromkeys(names, whole), **dict.fromkeys(("L_r", "rho", "inner/L_f"), every))
    shown = {"loss (nats)": 2, "similarity": 1, "|gradient|": 3, "penalty": 2, "curvature of Φ": 1}
    assert {name: len(lines_of(axis, "ofmu")) for name, axis in panels.items()} == shown
    for axis in panels.values():
        for line in lines_of(axis, "ofmu"):
            sparse = len(line.get_xdata()) == 10
            np.testing.assert_allclose(line.get_ydata(), 2.0 if sparse else 1.0)
            np.testing.assert_array_equal(line.get_xdata(), whole["step"] if sparse else every["step"])
            assert (line.get_marker() == "o") == sparse


def test_a_method_that_lost_the_model_stands_within_the_axes(bench):
    near, lost = {"forget_quality_D": 0.1, "model_utility": 0.9}, {"forget_quality_D": 0.5, "model_utility": 0.1}
    goal = {"forget_quality_D": 0.0, "model_utility": 0.95}
    runs = {("a", m, 0): folders.results(x, near, goal, method=m) for m, x in (("ofmu", near), ("npo", lost))}
    bench.experiment("e", "table", runs, metrics=list(near))
    (experiment,) = collect(bench.folder).experiments
    (axis,) = studies.trade_offs(experiment, LOOK).axes
    (marker,) = (line for line in axis.lines if line.get_label() == "npo")
    left, right = axis.get_xlim()
    assert left <= marker.get_xdata()[0] <= right
    assert marker.get_ydata()[0] == axis.get_ylim()[0]
