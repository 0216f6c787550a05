"""The pages of docs/reference are what the code says."""

import pytest

from tests.reference import PAGES, PLACE


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    assert (PLACE / f"{name}.md").read_text() == PAGES[name](), "run `make reference`"


def test_no_other_page_is_there() -> None:
    assert sorted(path.stem for path in PLACE.iterdir()) == sorted(PAGES)
