import pytest

from tests.pages.drawings import DRAWINGS, Drawing


@pytest.mark.parametrize("drawing", DRAWINGS, ids=lambda drawing: drawing.page.stem)
def test_what_follows_what_is_drawn_as_the_code_has_it(drawing: Drawing) -> None:
    text = drawing.page.read_text()
    assert text == drawing.redrawn(text), "draw it anew: python -m tests.pages.drawings"
