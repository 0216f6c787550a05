"""docs/reference, the outcomes of the dashboard and the TypeScript client's tool say what the code says."""

import pytest

from tests.reference import OUTCOMES_SCRIPT, PAGES, PLACE, TOOL_SCRIPT, outcomes, tool


@pytest.mark.parametrize("name", PAGES)
def test_a_page_of_the_reference_is_what_the_code_says(name: str) -> None:
    assert (PLACE / f"{name}.md").read_text() == PAGES[name](), "run `make reference`"


def test_the_dashboard_offers_each_outcome() -> None:
    assert OUTCOMES_SCRIPT.read_text() == outcomes(), "run `make reference`"


def test_the_typescript_client_has_the_tool_as_the_service_defines_it() -> None:
    assert TOOL_SCRIPT.read_text() == tool(), "run `make reference`"


def test_no_other_page_is_there() -> None:
    assert sorted(path.stem for path in PLACE.iterdir()) == sorted(PAGES)
