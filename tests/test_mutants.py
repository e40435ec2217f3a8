"""The recorded mutants still fit the source; `make mutants` tries them."""

import re

from tests.mutants.__main__ import ROOT, mutants


def test_every_mutant_changes_one_place_of_the_source_and_names_tests_that_exist():
    for mutant in mutants([]):
        source = (ROOT / mutant["file"]).read_text()
        assert source.count(mutant["old"]) == 1, mutant
        assert mutant["old"] != mutant["new"], mutant
        if mutant.get("equivalent"):
            assert mutant["note"], mutant
            continue
        assert mutant["tests"], mutant
        for test in mutant["tests"]:
            file, _, name = test.partition("::")
            found = (ROOT / file).read_text()
            assert not name or re.search(rf"^def {re.escape(name.split('[')[0])}\(", found, re.MULTILINE), mutant


def test_no_mutant_is_recorded_twice():
    changes = [(mutant["file"], mutant["old"], mutant["new"]) for mutant in mutants([])]
    assert len(set(changes)) == len(changes)
