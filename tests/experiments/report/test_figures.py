"""Figures: well-formed, finite, and drawn where the numbers say."""

import re
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from caql.experiments.report.figures import Dots, Line, Panel, nice_ticks, panels, shares, short, standalone

STEPS = np.arange(0, 1001, 100)


def numbers(svg):
    return [float(text) for path in re.findall(r' d="([^"]*)"', svg) for text in re.findall(r"-?\d+\.?\d*", path)]


def test_curves_are_well_formed_and_inside():
    line = Line("a <b>", 0, STEPS, STEPS * 2.0 - 300, np.full(len(STEPS), 50.0))
    svg = panels([Panel("Hopper & co", [line])] * 4, 'said "so"')
    root = ElementTree.fromstring(standalone(svg))
    assert root.tag.endswith("svg")
    assert len(root.findall(".//{*}path[@class='band half c0']")) == 4
    assert min(numbers(svg)) >= 0
    assert max(numbers(svg)) <= 1080


def test_bands_can_be_chosen():
    line = Line("a", 0, STEPS, STEPS * 1.0, np.ones(len(STEPS)))
    assert "band full" not in panels([Panel("t", [line])], "", ("half",))
    assert "band half" not in panels([Panel("t", [line])], "", ("full",))


def test_higher_values_are_drawn_higher():
    svg = panels([Panel("t", [Line("a", 0, np.array([0, 10]), np.array([1.0, 5.0]))])], "")
    (path,) = re.findall(r'class="curve c0" d="M([^"]*)"', svg)
    (x0, y0), (x1, y1) = (map(float, point.split()) for point in path.split("L"))
    assert x0 < x1
    assert y0 > y1


@pytest.mark.parametrize("values", [[3.0], [3.0, 3.0, 3.0], [1e-4, 1e4], [-5.0, 5.0]])
@pytest.mark.parametrize("logarithmic", [False, True])
def test_awkward_values_give_finite_drawings(values, logarithmic):
    if logarithmic and min(values) < 0:
        values = [abs(value) for value in values]
    line = Line("a", 0, np.arange(len(values)), np.asarray(values))
    svg = panels([Panel("t", [line], logarithmic=logarithmic)], "")
    ElementTree.fromstring(svg)
    assert "nan" not in svg
    assert "inf" not in svg


def test_dots_stand_over_their_column():
    svg = panels([Panel("t", dots=[Dots("sac", 6, [1.0, 2.0]), Dots("naf", 3, [5.0])])], "")
    assert svg.count("<circle") == 3
    assert ">sac<" in svg


def test_shares_fill_the_bar():
    svg = shares([("one", {"physics": 3.0, "acting": 1.0})], {"physics": 0, "acting": 1}, "")
    widths = [float(w) for w in re.findall(r'width="([\d.]+)" height="18"', svg)]
    assert widths[0] / widths[1] == pytest.approx(3, rel=0.02)
    assert "physics: 75 %" in svg


@pytest.mark.parametrize(
    ("low", "high", "ticks"), [(0, 100, [0, 50, 100]), (-789, -74, [-600, -400, -200]), (0.1, 0.35, None)]
)
def test_ticks_are_round_and_inside(low, high, ticks):
    found = nice_ticks(low, high)
    assert 3 <= len(found) <= 9
    assert all(low <= tick <= high for tick in found)
    assert ticks is None or found == ticks


def test_short_numbers():
    assert [short(v) for v in (0, 1500, 200_000, 2e6, 0.01, -40)] == ["0", "1500", "200k", "2M", "0.01", "-40"]
