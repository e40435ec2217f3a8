"""The recorded mutants still fit the source; `make mutants` tries them."""

from pathlib import Path

from tests.mutants.__main__ import ROOT, mutants


def test_every_mutant_changes_one_place_of_the_source_and_names_tests_that_exist():
    for mutant in mutants([]):
        source = (ROOT / mutant["file"]).read_text()
        assert source.count(mutant["old"]) == 1, mutant
        assert mutant["old"] != mutant["new"], mutant
        if mutant.get("equivalent"):
            assert mutant["note"], mutant
            continue
        names = [part.split("::")[0] for part in mutant["tests"] if part.startswith("tests")]
        assert names, mutant
        for name in names:
            assert Path(ROOT, name).exists(), mutant
