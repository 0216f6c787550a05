import pytest

from content.paths import path_of


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ('{"path": "src/a.py", "limit": 10}', "src/a.py"),
        ('{"file_path": "/a/b.rs"}', "/a/b.rs"),
        ('{"path": 1, "filename": "b.go"}', "b.go"),
        ('{"path": ""}', None),
        ('{"path": "' + "a" * 5000 + '"}', None),
        ('["a.py"]', None),
        ("a.py", None),
        ("[" * 100_000, None),
        ("", None),
        (None, None),
    ],
)
def test_the_file_that_a_call_names_is_found(arguments: str | None, path: str | None) -> None:
    assert path_of(arguments) == path
