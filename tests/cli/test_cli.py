import sys

import pytest

from caql import cli
from caql.cli.evaluate import main as evaluate
from caql.cli.solve import main as solve
from caql.cli.train import main as train
from caql.cli.train import parse, read_range, write_range
from caql.errors import CaqlError


def run(monkeypatch, *arguments):
    monkeypatch.setattr(sys, "argv", ["caql", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    return ended.value.code


def test_no_command_and_help_show_the_commands(monkeypatch, capsys):
    assert run(monkeypatch) == 2
    assert run(monkeypatch, "--help") == 0
    shown = capsys.readouterr().out
    for command in cli.COMMANDS:
        assert command in shown


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trane"], "did you mean 'train'"),
        (["train", "Hoper"], "did you mean 'Hopper'"),
        (["train", "Hopper", "--solver", "gaa"], "did you mean 'ga'"),
        (["train", "Hopper", "--agent", "sacc"], "did you mean 'sac'"),
        (["train", "Hopper", "--agent", "sac", "--solver", "ga"], "belongs to --agent caql"),
        (["train", "Hopper", "--agent", "sac", "--preset", "recommended"], "belongs to --agent caql; sac has none"),
        (["train", "Hopper", "--preset", "recomended"], "did you mean 'recommended'"),
        (["train", "Hopper", "--encoder", "cn"], "encoder = 'cn' must be 'cnn', 'keypoints' or MODULE:NAME"),
        (["train", "Hopper", "--solver"], "needs a value"),
        (["train", "Hopper", "--resume"], "--resume needs --out"),
        (["train", "Hopper", "--action-range", "a:b"], "--action-range = 'a:b'"),
        (["train", "nomodule_at_all:Env-v0"], "cannot be made: ModuleNotFoundError"),
        (["train", "Pendulum", "--seed", "2147483648"], "seed = 2147483648 must not be negative"),
        (["train", "Pendulum", "--seed", "9" * 40], "must not be negative"),
        (["train", "Pendulum", "--seed", "-1"], "seed = -1 must not be negative"),
        (["train", "Pendulum", "--out", "/dev/null/x"], "out = /dev/null/x cannot be used: "),
        (["train", "Pendulum", "--out", "/proc/caql"], "out = /proc/caql cannot be used: "),
        (["train", "Pendulum", "--out", "/dev/null"], "is a file; choose a folder"),
        (["train", "Pendulum", "--out", "x" * 300], "cannot be used: "),
        (["train", "Pendulum", "--action-set", "limits"], "action_set = 'limits' must be MODULE:NAME"),
        (["train", "Pendulum", "--action-set", "no_such_limits:x"], "cannot be imported: ModuleNotFoundError"),
        (["train", "Pendulum", "--action-set", "tests.budgeted:Budgeted.steps"], "cannot be imported: AttributeError"),
        (["train", "Pendulum", "--action-set", "tests.budgeted:WIDE"], "wider than the action space's -2 and 2"),
        (["train", "Pendulum", "--action-set", "tests.budgeted:EMPTY"], "these rows conflict, row 0: 1 a0 <= -3"),
        (["train", "Pendulum", "--action-set", "tests.budgeted:TWO"], "over 2 numbers; an action of the task has 1"),
        (["train", "Pendulum", "--action-set", "tests.budgeted:ENDLESS"], "holds a number that is not finite"),
        (["train", "CartPole-v1"], "solver = 'ga' cannot search over whole numbers or choices; take 'exact' or 'mip'"),
        (["evaluate", "nowhere"], "does not exist"),
    ],
)
def test_bad_input_is_one_sentence_and_status_2(monkeypatch, capsys, tmp_path, arguments, words):
    monkeypatch.chdir(tmp_path)
    assert run(monkeypatch, *arguments) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "Traceback" not in said
    assert not list(tmp_path.iterdir())


def test_every_setting_is_reachable():
    options = parse(
        "Hopper --action-range 0.5 --solver cem --solver.samples 50 --train-steps 77 --seed 3 --out x "
        "--exploration.decay 0.9999 --hidden 8 8 --dual-filter --cluster-radius 0.25 --dynamic-tolerance 1".split()
    )
    config = options.config
    assert (config.task, config.action_range, config.train_steps, config.seed) == ("Hopper", 0.5, 77, 3)
    assert (config.agent.solver.name, config.agent.solver.samples) == ("cem", 50)
    assert config.agent.exploration.decay == 0.9999
    assert config.agent.hidden == (8, 8)
    assert config.agent.dual_filter
    assert config.agent.cluster_radius == 0.25
    assert config.agent.dynamic_tolerance == 1.0
    assert parse(["Hopper", "--agent=td3"]).config.agent.name == "td3"
    config = parse(["Hopper", "--preset", "recommended", "--critics", "3", "--solver", "cem"]).config
    recommended = config.agent
    assert (recommended.hidden, recommended.critics, recommended.solver.name) == ((64, 64), 3, "cem")
    assert config.replay_size == 1_000_000
    assert parse(["Hopper", "--preset", "recommended", "--replay-size", "5000"]).config.replay_size == 5000


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [
        (["hopper"], 200),
        (["Hopper-v5"], None),
        (["Hopper", "--episode-steps", "None"], None),
        (["Hopper-v5", "--episode-steps", "50"], 50),
    ],
)
def test_only_the_papers_tasks_have_a_clock_by_default(arguments, steps):
    assert parse(arguments).config.episode_steps == steps


@pytest.mark.parametrize("text", ["0.5", "none", "-1.0,-0.5:1.0,0.25"])
def test_ranges_are_read_and_written(text):
    assert write_range(read_range(text)) == text


def test_options_of_another_agent_are_refused(capsys):
    with pytest.raises(SystemExit) as ended:
        parse(["Hopper", "--agent", "sac", "--dual-filter"])
    assert ended.value.code == 2
    assert "dual-filter" in capsys.readouterr().err


def test_train_then_evaluate(tmp_path, capsys):
    tiny = "--train-steps 40 --episode-steps 20 --warm-up 40 --evaluate-every 20 --evaluation-episodes 1 --hidden 4"
    folder = tmp_path / "run"
    train(["pendulum", *tiny.split(), "--action-range", "0.66", "--out", str(folder)])
    said = capsys.readouterr().out
    assert "step 40/40: return" in said
    assert (folder / "curve.svg").read_text().startswith("<?xml")
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    assert list((folder / "tensorboard").iterdir())
    solve([str(folder), "--solver", "highs", "--limit-rows", "2"])
    assert "proved optimal" in capsys.readouterr().out
    evaluate([str(folder), "--episodes", "2"])
    assert "over 2 episodes" in capsys.readouterr().out
    with pytest.raises(CaqlError, match="--episodes = 0"):
        evaluate([str(folder), "--episodes", "0"])
