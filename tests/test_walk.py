"""docs/house.md names the files that one result enters."""

from tests.walk import RESULTS, picture, picture_in_the_docs, walks


def test_the_files_that_a_result_enters_are_those_of_the_docs() -> None:
    found = walks()
    assert [*found] == [*RESULTS]
    assert picture(found) == picture_in_the_docs(), "docs/house.md is out of date: run `make tree`"
