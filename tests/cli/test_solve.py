"""`caql solve`: the table says what `maximize` returns."""

from pathlib import Path

import numpy as np
import pytest

from caql.cli.solve import main
from caql.errors import CaqlError
from caql.maxq.maximize import maximize

RNG = np.random.default_rng(0)
LAYERS = [(RNG.normal(size=s), RNG.normal(size=s[1])) for s in ((4, 6), (6, 5), (5, 1))]
STATES = RNG.normal(size=(3, 2))


@pytest.fixture
def network(tmp_path: Path) -> Path:
    path = tmp_path / "net.npz"
    stored = {f"W{k}": w for k, (w, _) in enumerate(LAYERS)} | {f"b{k}": b for k, (_, b) in enumerate(LAYERS)}
    np.savez(path, **stored)
    np.savez(tmp_path / "full.npz", **stored, low=-np.ones(2), high=np.ones(2), states=STATES)
    np.save(tmp_path / "states.npy", STATES)
    return path


def rows(text: str) -> list[list[str]]:
    """The table's body, cell by cell."""
    return [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]


@pytest.mark.parametrize("solver", ["exact", "highs"])
def test_prints_what_was_found_and_proved(network: Path, solver: str, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(network.with_name("full.npz")), "--solver", solver])
    text = capsys.readouterr().out
    expected = maximize(LAYERS, -1.0, 1.0, STATES, solver="highs")
    found = rows(text)
    assert len(found) == 3
    for k, (state, action, value, upper, gap, status, _) in enumerate(found):
        assert int(state) == k
        # Not compared with the other solver's: the maximum may be attained on a whole edge.
        printed = np.array([float(entry) for entry in action.split()])
        assert maximize(LAYERS, printed, printed, STATES[k], solver="highs").values[0] == pytest.approx(
            float(value), abs=5e-3
        )
        assert float(value) == pytest.approx(expected.values[k], abs=2e-4)
        assert float(upper) >= float(value) - 1e-4
        assert float(gap) <= 1e-4
        assert status == "optimal"
    assert "3 states, 3 proved optimal" in text


def test_a_search_proves_nothing(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(network.with_name("full.npz")), "--solver", "ga"])
    text = capsys.readouterr().out
    assert "nothing is proved" in text
    assert "iterations" in text
    assert all(cells[3] == "-" for cells in rows(text))


def test_box_and_states_from_the_command_line(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    states = ["--states", str(network.with_name("states.npy"))]
    boxes = (["--action-range", "1"], ["--low", "-1", "-1", "--high", "1"], ["--low", "-1", "--high", "1", "1"])
    values = []
    for box in boxes:
        main([str(network), *states, *box])
        values.append([float(cells[2]) for cells in rows(capsys.readouterr().out)])
    np.testing.assert_allclose(values[0], maximize(LAYERS, -1.0, 1.0, STATES, solver="highs").values, atol=2e-4)
    np.testing.assert_allclose(values[1], values[0], atol=2e-4)
    np.testing.assert_allclose(values[2], values[0], atol=2e-4)


def test_without_states_all_inputs_are_actions(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(network), "--action-range", "0.5"])
    (cells,) = rows(capsys.readouterr().out)
    assert len(cells[1].split()) == 4


def test_limit_rows_hides_rows_and_says_so(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(network.with_name("full.npz")), "--limit-rows", "1"])
    text = capsys.readouterr().out
    assert len(rows(text)) == 1
    assert "and 2 more states" in text
    assert "3 proved optimal" in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["net.npz"], "low is missing"),
        (["net.npz", "--low", "-1"], "high is missing"),
        (["net.npz", "--low", "-1", "--action-range", "1"], "action_range gives both bounds"),
        (["net.npz", "--action-range", "-1"], "low = 1.0 exceeds high = -1.0"),
        (["full.npz", "--limit-rows", "0"], "limit_rows = 0 must be at least 1"),
        (["missing.npz"], "does not exist"),
        (["full.npz", "--states", "missing.npy"], "states = "),
    ],
)
def test_bad_input_is_named(network: Path, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(network.parent)
    with pytest.raises(CaqlError) as raised:
        main(arguments)
    assert message in str(raised.value)
