"""The paper's numbers, checked against what its text says about them."""

from collections import Counter

from caql.environments import TASKS
from caql.experiments import paper


def leaders(table):
    return {task: max(cells, key=lambda name: cells[name].mean) for task, cells in table.items()}


def test_tables_one_and_two_have_fourteen_tasks_and_seven_methods():
    for table in (paper.TABLE_1, paper.TABLE_2):
        assert len(table) == 14
        assert all(tuple(cells) == paper.METHODS for cells in table.values())


def test_best_of_table_one_are_the_bold_ones():
    assert Counter(leaders(paper.TABLE_1).values()) == {
        "caql-mip": 6,
        "caql-ga": 4,
        "caql-cem": 1,
        "td3": 2,
        "ddpg": 1,
    }
    assert leaders(paper.TABLE_1)["Humanoid", 0.1] == "ddpg"


def test_table_two_says_what_the_text_says():
    best = leaders(paper.TABLE_2)
    assert sum(name == "caql-mip" for name in best.values()) == 6
    assert sum(name.startswith("caql") for name in best.values()) == 11


def test_single_numbers():
    assert paper.TABLE_1["Pendulum", 0.66]["sac"] == (-789.6, 299.5, None, None)
    assert paper.TABLE_3["Humanoid", 0.4]["ga+df+c0.5"] == (387.7, 117.4, 80.8, None)
    assert paper.TABLE_4["Ant", 0.5]["tol-100"] == (420.7, 148.8, 1.0, None)
    assert paper.TABLE_5["Ant", 0.25]["mip-dtol-1"] == (424.9, 60.9, 62.0, 27.646)
    assert paper.LATENCY["HalfCheetah", 0.5]["mip"] == (263.453, 88.269)
    assert paper.HINGE["Hopper", 1.0]["hinge"] == (130.846, 92.298, None, None)


def test_reductions_grow_from_nothing_to_everything():
    for cells in paper.TABLE_3.values():
        saved = [cell.extra for cell in cells.values()]
        assert saved[0] == 0
        assert saved[-1] == 100
        assert saved == sorted(saved)


def test_every_task_is_one_of_ours_in_a_range_of_the_appendix():
    tables = (paper.TABLE_1, paper.TABLE_3, paper.TABLE_5, paper.LATENCY, paper.HINGE)
    for name, size in {task for table in tables for task in table}:
        assert size in TASKS[name].ranges
        assert name in paper.TRAIN_STEPS


def test_restating_tables_agree():
    for task, cells in paper.TABLE_5.items():
        assert cells["mip-tol-1e-4"][:2] == paper.TABLE_1[task]["caql-mip"][:2]
