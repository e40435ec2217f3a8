"""A short slice of the campaign, and the campaign's own tests: its oracles agree, and its checks can fail."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from campaign import commands, files, kills, proofs, sets
from campaign.ledger import Ledger, table, totals
from campaign.networks import KINDS, Case, he
from campaign.oracles import big_m, exact_maximum, exact_value, magnitude, values, witnesses
from caql.maxq.exact.solver import Exact


@pytest.mark.parametrize("kind", [*KINDS, sets.KIND])
def test_claims_hold(kind: str) -> None:
    counts: Counter[str] = Counter()
    for number in range(2):
        _, wrong = proofs.batch(np.random.default_rng([7, number]), kind, counts, number)
        assert not wrong, wrong
    assert counts["problems"] > 0


def small(d: int, seed: int = 0) -> Case:
    return he(np.random.default_rng(seed), "small", (6, 4), d, 8)


def test_oracles_agree() -> None:
    rng = np.random.default_rng(1)
    line = small(1)
    found, error = values(line, witnesses(line, rng))
    for k in range(len(line)):
        assert float(exact_maximum(line.row(k))) == pytest.approx(found[k], abs=1e-12)
        assert abs(float(exact_value(line.row(k), line.high[k])) - values(line, line.high)[0][k]) <= 1e-13
    assert (error > 0).all()
    assert (magnitude(line) > np.abs(found)).all()
    plane = small(3)
    climbed, _ = values(plane, witnesses(plane, rng, starts=20, rounds=40))
    gaps = []
    for k in range(len(plane)):
        action = big_m(plane.row(k))
        assert action is not None
        gaps.append(float(exact_value(plane.row(k), action)) - climbed[k])
    # The climb may end on a lower hill, never above the model's maximum.
    assert min(gaps) > -1e-6
    assert sum(gap < 1e-6 for gap in gaps) >= 6


def test_breakpoints_of_a_known_function() -> None:
    """-|x - 0.3| + relu(x - 0.8) on [-1, 2]: 0 at 0.3, and -0.5 at the right end."""
    ones = np.array([[1.0, -1.0, 1.0]])
    case = Case(
        "known", np.array([[-0.3, 0.3, -0.8]]), ones, ((np.array([[-1.0], [-1.0], [1.0]]), np.zeros(1)),),
        np.array([[-1.0]]), np.array([[2.0]]),
    )  # fmt: skip
    assert witnesses(case, np.random.default_rng(0))[0, 0] == pytest.approx(0.3)
    assert float(exact_maximum(case)) == pytest.approx(0.0, abs=1e-15)


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("the action is outside the box", lambda a: replace(a, actions=a.actions + 3.0)),
        ("the value is not Q at the action", lambda a: replace(a, values=a.values - 1e-9)),
        ("OPTIMAL with an open gap", lambda a: replace(a, upper=a.upper + 1.0)),
        ("LIMIT with nodes and time left", lambda a: replace(a, upper=a.upper + 1.0, status=a.status + 2)),
        ("neither OPTIMAL nor LIMIT", lambda a: replace(a, status=a.status + 3)),
        ("upper is below the value", lambda a: replace(a, upper=a.values - 1e-6)),
        ("upper is below the maximum", lambda a: replace(a, upper=a.values - 1e-6)),
        ("upper is below the maximum", lambda a: replace(a, upper=a.upper - 1e-4)),
    ],
)
@pytest.mark.parametrize("d", [1, 2])
def test_a_wrong_claim_is_found(check: str, change, d: int) -> None:
    case = replace(small(d), tolerance=1e-6)
    answer = proofs.ask(case)
    assert not proofs.claims(case, answer, np.random.default_rng(0), Counter())
    wrong = proofs.claims(case, change(answer), np.random.default_rng(0), Counter())
    assert [w.row for w in wrong if w.check == check] == list(range(len(case)))


class Lying:
    """The exact solver with something changed in its answer."""

    def __init__(self, change) -> None:
        self.change = change

    def __call__(self, **settings):
        solver, change = Exact(**settings), self.change
        return SimpleNamespace(solve=lambda problem: change(solver.solve(problem)))


@pytest.mark.parametrize(
    ("check", "change"),
    [
        ("an empty set is not called empty", lambda a: a._replace(status=0 * a.status)),
        ("an empty set has a value", lambda a: a._replace(values=a.values + np.inf)),
        ("neither OPTIMAL nor LIMIT", lambda a: a._replace(status=0 * a.status + 5)),
        ("early LIMIT", lambda a: a._replace(status=0 * a.status + 2, upper=a.upper + 1.0)),
        ("OPTIMAL with an open gap", lambda a: a._replace(upper=a.upper + 1.0)),
        ("value is not Q", lambda a: a._replace(values=a.values - 1e-9)),
        ("upper is below the maximum", lambda a: a._replace(upper=a.upper - 10.0)),
        ("the action is not admissible", lambda a: a._replace(actions=a.actions + 9.0)),
    ],
)
def test_a_wrong_claim_over_a_set_is_found(check: str, change, monkeypatch) -> None:
    case = sets.make(np.random.default_rng(4))
    assert not sets.claims(case, np.random.default_rng(0), Counter())
    monkeypatch.setattr(sets, "Exact", Lying(change))
    with np.errstate(invalid="ignore"):
        wrong = sets.claims(case, np.random.default_rng(0), Counter())
    assert check in {name for name, _, _ in wrong}


def test_a_finding_over_a_set_can_be_repeated(tmp_path: Path) -> None:
    ledger, case = Ledger(tmp_path, "1-0"), sets.make(np.random.default_rng(4))
    proofs.keep(case, proofs.Wrong("made up", 3, "nothing is wrong"), ledger, [1, 0, 0, 0])
    (path,) = tmp_path.glob("*.npz")
    assert proofs.again({"kind": sets.KIND}, path) == []


def test_a_finding_is_kept_and_can_be_repeated(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "1-0")
    case = small(2)
    proofs.keep(case, proofs.Wrong("made up", 3, "nothing is wrong"), ledger, [1, 0, 0, 0])
    ledger.count("proofs", "small", {"problems": 8, "WRONG: made up": 1})
    ledger.save()
    Ledger(tmp_path, "2-0").save()
    assert totals(tmp_path)["proofs"]["small"]["problems"] == 8
    assert "1 WRONG: made up" in table(tmp_path)
    (path,) = tmp_path.glob("*.npz")
    assert proofs.again({"kind": "small", "tolerance": 1e-6}, path) == []
    from caql.network_files import read_network

    np.testing.assert_array_equal(read_network(path).states, case.first[3:4])


def test_mutated_files(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "1-0")
    files.work([7, 0, 2], 0, ledger, count=90)
    assert ledger.total("files", "files") == 90
    assert ledger.total("files", "refused") > 40
    assert not ledger.findings, table(tmp_path)


def test_bad_command_lines(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, "1-0")
    commands.work([7, 0, 3], 0, ledger, count=12)
    assert ledger.total("commands", "lines") == 12
    assert not ledger.findings, table(tmp_path)
    assert commands.wrong(1, "") == "status 1"
    assert commands.wrong(2, "Traceback (most recent call last):\nOSError: x") == "OSError: x"
    assert commands.wrong(2, "caql: a sentence") is None


def test_only_the_newer_of_two_checkpoints_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    rng = np.random.default_rng(0)
    for step in (1, 2):
        assert not kills.damage(tmp_path, rng)
        (tmp_path / "checkpoints" / f"step-{step}.safetensors").write_bytes(bytes(range(200)))
    seen = {kills.damage(tmp_path, rng) for _ in range(1)}
    assert seen <= {"flip", "cut", "zero", "empty", "noise"}
    older, newer = kills.newest(tmp_path)
    assert older.read_bytes() == bytes(range(200))
    assert newer.read_bytes() != bytes(range(200))
