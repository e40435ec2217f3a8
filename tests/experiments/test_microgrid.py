"""The microgrid comparison: bounds that hold, violations that are counted, runs that are kept."""

import re

import numpy as np
import pytest

from caql import cli
from caql.cli.bench import main
from caql.errors import CaqlError
from caql.experiments import microgrid


def test_every_policy_is_held_against_the_same_bound(tmp_path, capsys):
    given = ["microgrid", "--train-steps", "20", "--episodes", "1", "--methods", "sac", "--horizon", "2"]
    given += ["--out", str(tmp_path)]
    main(given)
    said = capsys.readouterr().out
    row = r"\| ([a-z -]+) \| ([\d.]+) ± [\d.]+ \| (\d+) of 48 \| ([\d,]+) \| ([\w, ]+) \|"
    found = {name: (float(cost), int(broken), steps) for name, cost, broken, _, steps in re.findall(row, said)}
    assert list(found) == ["sac", "rolling horizon", "grid alone"]
    assert all(cost >= 1 and broken == 0 for cost, broken, _ in found.values())
    assert found["rolling horizon"][0] < found["grid alone"][0]
    assert [steps for *_, steps in found.values()] == ["20 steps", "none", "none"]
    main(given)
    assert "already finished" in capsys.readouterr().out
    for folder in tmp_path.rglob("checkpoints"):
        for file in folder.iterdir():
            file.unlink()
    with pytest.raises(CaqlError, match="finished but holds no checkpoint to judge"):
        main(given)


def test_a_broken_limit_is_counted():
    episodes = microgrid.Episodes(range(1), np.ones(1))

    def decide(task, observation):
        # Behind the task's back, which would bring the action into the set.
        task.actions.admissible = lambda action: np.array([0.05, 0.0, 0.0, 0.5])
        return np.zeros(4)

    found = episodes.judge("broken", decide)
    assert found.decisions == 48
    assert found.violations == 48


def test_exploration_comes_down_over_the_run_whatever_its_length():
    for steps in (2000, 8000):
        exploration = microgrid.configuration("caql-exact", steps, 0).agent.exploration
        assert exploration.epsilon(steps // 20) == pytest.approx(microgrid.LEAST_NOISE)
        assert exploration.epsilon(0) == 1
    assert microgrid.configuration("caql-ga", 2000, 0).agent.relaxed
    assert not microgrid.configuration("caql-exact", 2000, 0).agent.relaxed


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--episodes", "0"], "episodes = 0 must be at least 1"),
        (["--train-steps", "-5"], "train_steps = -5 must be at least 1"),
        (["--methods", "sacc"], "method = 'sacc' is not part of the comparison"),
        (["--out", "README.md"], "README.md is a file"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(CaqlError, match=words):
        main(["microgrid", *arguments])


def test_the_command_is_listed(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["caql", "bench", "--help"])
    with pytest.raises(SystemExit):
        cli.main()
    assert "microgrid" in capsys.readouterr().out
