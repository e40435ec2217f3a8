"""`caql solve`: the table says what `maximize` returns."""

from pathlib import Path

import numpy as np
import pytest

from caql import CAQL, ActionSet
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


C, D = np.array([[1.0, 1.0], [-1.0, -1.0]]), np.array([[0.5, 0.0], [0.5, -0.6], [1.0, 1.0]])
"""No action satisfies both rows at state 1."""


def test_rows_from_a_file(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = network.with_name("rows.npz")
    np.savez(more, C=C, d=D, integer=[1])
    main([str(network.with_name("full.npz")), "--rows", str(more), "--solver", "highs"])
    said = capsys.readouterr()
    kept = [0, 2]
    expected = maximize(LAYERS, -1, 1, STATES[kept], "highs", rows=(C, D[kept]), integer=[1])
    found = rows(said.out)
    assert [cells[5] for cells in found] == ["optimal", "infeasible", "optimal"]
    np.testing.assert_allclose([float(found[k][2]) for k in kept], expected.values, atol=2e-4)
    for k in kept:
        action = np.array([float(entry) for entry in found[k][1].split()])
        assert action[1] == round(action[1])
        assert (C @ action <= D[k] + 1e-4).all()
    assert found[1][1:5] == ["none is admissible", "-", "-", "-"]
    assert "3 states, 2 proved optimal" in said.out
    assert said.err.startswith("caql: of 3 states, 1 without an admissible action")
    assert "row 0: 1 a0 +1 a1 <= 0.5; row 1: -1 a0 -1 a1 <= -0.6" in said.err
    assert len(said.err.splitlines()) == 1


def test_equalities_from_a_file(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = network.with_name("rows.npz")
    total = np.array([[0.5], [-0.25], [1.0]])
    np.savez(more, E=np.tile([[1.0, 2.0]], (3, 1, 1)), f=total, C=[[1.0, 0.0]], d=[0.4])
    main([str(network.with_name("full.npz")), "--rows", str(more), "--solver", "highs"])
    found = rows(capsys.readouterr().out)
    actions = np.array([[float(entry) for entry in cells[1].split()] for cells in found])
    np.testing.assert_allclose(actions @ [1.0, 2.0], total[:, 0], atol=2e-4)
    assert (actions[:, 0] <= 0.4).all()


def test_the_solver_is_one_that_takes_such_actions(network: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more = network.with_name("rows.npz")
    np.savez(more, integer=[0, 1])
    main([str(network.with_name("full.npz")), "--rows", str(more)])
    assert "3 proved optimal" in capsys.readouterr().out
    with pytest.raises(CaqlError, match="solver 'ga' does not take whole-numbered actions"):
        main([str(network.with_name("full.npz")), "--rows", str(more), "--solver", "ga"])


@pytest.mark.parametrize(
    ("held", "message"),
    [
        ({}, "it holds nothing; right would be C and d, E and f, integer"),
        ({"C": C}, "it holds C without d; a matrix and its right-hand side belong together"),
        ({"f": D[0]}, "it holds f without E"),
        ({"A": C, "b": D[0]}, "it holds A, b; right would be C and d"),
        ({"C": np.ones((1, 3)), "d": [1.0]}, "rows has a matrix of shape (1, 3)"),
        ({"C": C, "d": D[:2]}, "and a right-hand side of shape (2, 2); with 3 state(s)"),
        ({"C": np.ones((2, 2, 2)), "d": D[0]}, "right would be (m, 2) or (3, m, 2)"),
        ({"E": [[1.0, np.nan]], "f": [0.0]}, "equalities[0] holds nan at index (0, 1)"),
        ({"C": [[1.0, 1.0]], "d": [np.inf]}, "rows[1] holds inf"),
        ({"C": [[1j, 1.0]], "d": [1.0]}, "C holds complex128; right would be real numbers"),
        ({"C": np.array([["a", "b"]]), "d": [1.0]}, "C holds <U1"),
        ({"C": np.array([[{}]]), "d": [1.0]}, "C is pickled"),
        ({"integer": [2]}, "integer must be a list of action indices, whole numbers from 0 to 1; got 2"),
        ({"integer": [0.5]}, "got 0.5"),
        ({"integer": [[0], [1], [1]]}, "which actions are whole numbers must be the same at every state"),
    ],
)
def test_bad_rows_are_named(network: Path, held: dict[str, object], message: str) -> None:
    more = network.with_name("rows.npz")
    np.savez(more, **held)
    with pytest.raises(CaqlError) as raised:
        main([str(network.with_name("full.npz")), "--rows", str(more)])
    assert message in str(raised.value)
    assert str(raised.value).startswith(f"rows = '{more}'")
    assert "\n" not in str(raised.value)


def limited(observations: np.ndarray) -> ActionSet:
    return ActionSet.linear(np.ones((len(observations), 1, 1)), high=0.1 * observations[:, :1] - 0.2)


def test_a_saved_run_is_solved_over_the_actions_of_each_state(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = CAQL("MlpPolicy", "Pendulum", action_set=limited, hidden=(4,))
    made.save(tmp_path / "model")
    states = np.array([[1.0, 0.0, 0.0], [-1.0, 0.0, 2.0]])
    np.save(tmp_path / "states.npy", states)
    command = [str(tmp_path / "model.safetensors"), "--states", str(tmp_path / "states.npy")]
    named = ["--action-set", "tests.cli.test_solve:limited"]
    main([*command, *named])
    actions = [float(cells[1]) for cells in rows(capsys.readouterr().out)]
    np.testing.assert_allclose(actions, made.certify(states).action[:, 0], atol=1e-4)
    assert actions[0] <= -0.1 + 1e-9
    assert actions[1] <= -0.3 + 1e-9
    np.savez(tmp_path / "rows.npz", E=[[1.0]], f=[-0.5])
    main([*command, *named, "--rows", str(tmp_path / "rows.npz")])
    assert [float(cells[1]) for cells in rows(capsys.readouterr().out)] == [-0.5, -0.5]
    main([*command, *named, "--action-range", "0.2"])
    said = capsys.readouterr()
    assert [cells[5] for cells in rows(said.out)] == ["optimal", "infeasible"]
    assert "state 1 (the action set is empty" in said.err
    for wrong, message in (
        (command, "give it again"),
        ([*command, "--action-set", "tests.cli.test_solve:LAYERS"], "must be an ActionSet or a function"),
        ([*command, "--action-set", "tests.cli.test_solve:failing"], "action_set raised"),
    ):
        with pytest.raises(CaqlError, match=message):
            main(wrong)
    np.save(tmp_path / "states.npy", np.ones((2, 4)))
    with pytest.raises(CaqlError, match=r"shape \(2, 4\); an observation of the run's task has 3 numbers"):
        main([*command, *named])


def failing(observations: np.ndarray) -> ActionSet:
    if observations[0, 2] == 2.0:
        raise KeyError("a table\nof limits")
    return limited(observations)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["full.npz", "--rows", "missing.npz"], "rows = 'missing.npz' does not exist; right would be an .npz file"),
        (["full.npz", "--rows", "states.npy"], "rows = 'states.npy' is not an .npz of plain arrays"),
        (["full.npz", "--rows", "x" * 300], "is not a usable file name"),
        (["full.npz", "--action-set", "a:b"], "action_set goes with a saved run"),
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


def two_inputs(path: Path) -> None:
    """tanh(a W + x V), two outputs, of inputs `control` and `x`, in this order."""
    from caql.graphs import Network
    from caql.graphs.activations import Tanh
    from caql.graphs.builder import Builder
    from caql.graphs.graph import Port
    from caql.network_files.export import write_onnx

    builder = Builder()
    control, x = builder.input((2,), "control"), builder.input((2,), "x")
    hidden = builder.add(Tanh(), builder.dense(builder.concat([x, control], 0), LAYERS[0][0]))
    ports = Port("first", builder.dense(hidden, LAYERS[1][0][:, :1])), Port("rest", builder.dense(hidden, LAYERS[1][0]))
    write_onnx(Network(builder, (Port("control", control), Port("x", x)), ports, 0), path)


@pytest.mark.parametrize(
    ("words", "weights"),
    [(["3"], [0, 0, 0, 1, 0, 0]), (["first"], [1, 0, 0, 0, 0, 0]), (["1", "0", "-2", "0", "0", "0.5"],) * 2],
)
@pytest.mark.parametrize("minimize", [False, True])
def test_any_output_of_a_file_with_two_inputs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: list[str], weights: list[float], minimize: bool
) -> None:
    from caql.network_files import read_network

    two_inputs(tmp_path / "net.onnx")
    np.save(tmp_path / "states.npy", STATES[:2])
    asked = [str(tmp_path / "net.onnx"), "--states", str(tmp_path / "states.npy"), "--action-range", "1"]
    asked += ["--action-input", "control", "--tolerance", "0.01", "--output", *words]
    main(asked + ["--minimize"] * minimize)
    read = read_network(tmp_path / "net.onnx", action="control").network
    mixed = np.array(weights, np.float64)
    actions = np.random.default_rng(1).uniform(-1, 1, (500, 2))
    for k, (_, _, value, bound, *_) in enumerate(rows(capsys.readouterr().out)):
        sampled = read.evaluate(STATES[k : k + 1].repeat(500, axis=0), actions) @ mixed
        sign = -1.0 if minimize else 1.0
        assert (sign * sampled).max() <= sign * float(bound) + 1e-3
        assert abs(float(value) - float(bound)) <= 0.011


def test_a_limit_of_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_inputs(tmp_path / "net.onnx")
    np.save(tmp_path / "states.npy", STATES[:1])
    asked = [str(tmp_path / "net.onnx"), "--states", str(tmp_path / "states.npy"), "--action-range", "3"]
    main([*asked, "--action-input", "control", "--output", "1", "--tolerance", "1e-9", "--node-limit", "5"])
    ((*_, status, work),) = rows(capsys.readouterr().out)
    assert status == "limit"
    assert int(work) <= 7
