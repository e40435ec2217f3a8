"""The data behind the page: stages that are proofs, shapes that are the sets', and nothing from elsewhere."""

import itertools
import json
import re
from importlib import resources

import numpy as np
import pytest

from caql.actions import ActionSet
from caql.cli.explore import main
from caql.errors import CaqlError
from caql.explore import page, shapes, traces
from caql.explore.subject import Choice, from_network
from caql.maxq.maximize import maximize

NETWORKS = resources.files("caql") / "bench" / "networks"


@pytest.fixture(autouse=True)
def few_stops(monkeypatch):
    # Each stop of a search is a compilation of its own.
    monkeypatch.setattr(traces, "ASCENT_STOPS", ())
    monkeypatch.setattr(traces, "CROSS_ENTROPY_STOPS", ())


@pytest.fixture
def subject():
    return from_network(NETWORKS / "halfcheetah.safetensors", Choice(states=5))


def test_every_stage_is_a_proof_and_the_last_closes_the_gap(subject):
    found = traces.trace(subject)
    assert found.proved.all()
    for state, stages in enumerate(found.stages):
        uppers = [stage.upper for stage in stages]
        assert all(after <= before + 1e-9 for before, after in itertools.pairwise(uppers))
        assert min(uppers) >= found.value[state] - 1e-9
        assert stages[-1].upper - stages[-1].value <= traces.TOLERANCE
        assert [stage.name for stage in stages[:3]] == ["interval bound", "dual bound", "1 node"]
        assert stages[-1].name == f"{len(stages) - 2} node" + ("s" if len(stages) > 3 else "")
    assert max(map(len, found.stages)) > 4


def test_searches_end_below_the_maximum_and_above_their_start(subject):
    found = traces.trace(subject)
    layers, low, high = subject.layers, subject.sets.low, subject.sets.high
    for state, x in enumerate(subject.states):

        def value(action, x=x):
            # A box without width is the action itself.
            return maximize(layers, action, action, x).values[0]

        for path in [*found.ascents[state], found.elites[state]]:
            assert ((path >= low) & (path <= high)).all()
            first, last = value(path[0]), value(path[-1])
            assert first - 1e-4 <= last <= found.value[state] + 1e-4


def square(*rows):
    box = ActionSet.bounds(-np.ones(2), np.ones(2))
    for row in rows:
        box = box & row
    return box.on_host()


def corners(action_set, point):
    return np.asarray(shapes.polygons(action_set, np.asarray(point, float))["0,1"])


def test_polygons_have_the_corners_of_the_set():
    cut = square(ActionSet.budget(weights=[1.0, 1.0], limit=0.5))
    found = corners(cut, (0.0, 0.0))
    for corner in ((-1, -1), (1, -1), (1, -0.5), (-0.5, 1), (-1, 1)):
        assert np.abs(found - corner).sum(axis=1).min() < 1e-4, corner
    assert (found.sum(axis=1) <= 0.5 + 1e-6).all()
    diamond = corners(square(ActionSet.absolute_budget(weights=[1.0, 1.0], limit=0.6)), (0.1, 0.1))
    for corner in ((0.6, 0), (-0.6, 0), (0, 0.6), (0, -0.6)):
        assert np.abs(diamond - corner).sum(axis=1).min() < 1e-4, corner
    assert np.abs(diamond).sum(axis=1).max() < 0.6 + 1e-6


def test_an_equality_leaves_a_segment_and_spans_stop_at_the_rows():
    line = square(ActionSet.equality(weights=[1.0, 1.0], total=0.0))
    found = corners(line, (0.0, 0.0))
    np.testing.assert_allclose(found.sum(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose([found[:, 0].min(), found[:, 0].max()], [-1, 1], atol=1e-6)
    assert shapes.spans(line, np.zeros(2)) == [[0.0, 0.0], [0.0, 0.0]]
    cut = square(ActionSet.budget(weights=[1.0, 1.0], limit=0.5))
    np.testing.assert_allclose(shapes.spans(cut, np.zeros(2)), [[-1, 0.5], [-1, 0.5]], atol=1e-6)


def test_the_page_needs_nothing_but_itself_and_nothing_can_end_its_script(subject):
    subject = subject._replace(title="</script><b>%data%", labels=["</script>"] * 5)
    text = page.html(subject, traces.trace(subject), "caql explore <x>")
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    assert "default-src 'none'" in text
    assert "url(http" not in text
    assert "@import" not in text
    assert set(re.findall(r"https?://[^\"' <]*", text)) == {"http://www.w3.org/2000/svg"}
    assert text.count("<script") == text.count("</script>") == 2
    stored = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    assert stored["title"] == "</script><b>%data%"
    assert "caql explore &lt;x&gt;" in text


def test_bad_input_is_one_sentence(tmp_path, small_run):
    file = tmp_path / "bare.npz"
    np.savez(file, W1=np.ones((2, 1)), b1=np.zeros(1))
    for arguments, sentence in (
        ([str(small_run), "--out", "page.txt"], "out = page.txt must end in .html"),
        ([str(small_run), "--states", "0"], "--states = 0 must be at least 1"),
        ([str(small_run), "--seed", "-1"], "--seed = -1 must not be negative"),
        ([str(tmp_path / "nowhere")], "does not exist"),
    ):
        with pytest.raises(CaqlError) as refused:
            main(arguments)
        assert sentence in str(refused.value)
