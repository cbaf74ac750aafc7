from tests.drawings import PAGE, redrawn


def test_the_phases_are_drawn_as_the_code_has_them() -> None:
    assert PAGE.read_text() == redrawn(PAGE.read_text()), "draw them anew: python -m tests.drawings"
