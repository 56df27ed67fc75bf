"""What readers move in a real report answers with the numbers of its result: by mouse, by keyboard, by pointing."""

import re

import pytest
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.xdist_group("browser")]

PLACE = """
arguments[0].scrollIntoView({block: 'center', behavior: 'instant'});
const box = arguments[0].getBoundingClientRect();
return [box.x + box.width / 2, box.y + box.height / 2];
"""


SHADES = """
return [...arguments[0].querySelectorAll('[id$="hop-map"] path')].map(e => getComputedStyle(e).fill);
"""


def figure_with(window, words):
    """The figure that has controls of that kind."""
    (controls,) = window.find_elements(By.CSS_SELECTOR, f'figure .explore[aria-label="{words}"]')
    return controls.find_element(By.XPATH, "ancestor::figure")


def number(words, after):
    """The number that follows these words."""
    return float(re.search(re.escape(after) + r"(-?[\d.]+(?:e-?\d+)?)", words.replace(",", ""))[1])


def rounded(x):
    return pytest.approx(x, rel=0.05)  # two digits or more are shown


def point(window, mark):
    x, y = window.execute_script(PLACE, mark)
    settled = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"  # scrolling hides the words
    window.execute_async_script(settled)
    pointer = ActionChains(window, duration=0)
    pointer.w3c_actions.pointer_action.move_to_location(int(x), int(y))
    pointer.perform()
    return x, y


def test_the_value_lens_answers_for_every_layer(viewer, case):
    """Slider and toggle by keyboard, the plot by mouse; every reference's value is the finding's."""
    made = case("default")
    viewer.open(made.report).resize(1440)
    figure = figure_with(viewer.window, "Value lens, layer by layer")
    slider, said = (
        figure.find_element(By.CSS_SELECTOR, each) for each in (".explore-layer", ".explore-said")
    )
    (result,) = made.results.values()
    found = {
        str(each.index["reference"]): each.estimate
        for each in result.find("value_lens", checkpoint="step-00002000")
    }
    assert len(found) == 3
    layers = len(found["true value"])
    assert said.text.startswith(f"Read after layer {layers - 2}:")
    for layer in (layers - 1, layers - 2, layers - 3):
        for reference, values in found.items():
            assert number(said.text, f"against the {reference}: ") == rounded(values[layer])
        slider.send_keys(Keys.ARROW_LEFT)
    cursor = figure.find_element(By.CSS_SELECTOR, ".explore-cursor")
    before = cursor.get_attribute("x1")
    svg = figure.find_element(By.CSS_SELECTOR, "svg")
    ActionChains(viewer.window, duration=0).move_to_element(svg).click().perform()
    layer = int(slider.get_attribute("value"))
    assert 2 < layer < layers - 4
    assert number(said.text, "against the final layer: ") == rounded(found["final layer"][layer])
    assert float(cursor.get_attribute("x1")) < float(before)
    toggle = figure.find_elements(By.CSS_SELECTOR, ".explore-toggle")[0]
    toggle.click()
    assert "true value" not in said.text
    toggle.send_keys(Keys.SPACE)
    assert "against the true value" in said.text


def test_the_map_of_hops_answers_for_every_cell(viewer, case):
    """A layer from the list, hop and state by keyboard; norm and shares are those of the result."""
    made = case("LM of 30 layers")
    viewer.open(made.report).resize(1440)
    figure = figure_with(viewer.window, "Credit by hop, layer by layer")
    (result,) = made.results.values()
    shades = viewer(SHADES, figure)
    Select(figure.find_element(By.CSS_SELECTOR, ".explore-layer")).select_by_visible_text("layer 22")
    hop, state = (figure.find_element(By.CSS_SELECTOR, f".explore-{each}") for each in ("hop", "state"))
    hop.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    state.send_keys(Keys.ARROW_RIGHT)
    said = figure.find_element(By.CSS_SELECTOR, ".explore-said").text
    row = result.tables["hops"].query("layer == 22 and hop == 2 and state == 1").iloc[0]
    assert number(said, "norm ") == rounded(row.norm)
    assert number(said, "share of the relaxed sum at this state: ") == rounded(row.share)
    (share,) = result.find("hop_share", layer=22, hop=2)
    assert number(said, "share of this hop over all states: ") == rounded(share.estimate)
    assert number(said, "(95 %: ") == rounded(share.interval[0])
    after = viewer(SHADES, figure)
    assert len(after) == len(shades) > 20
    assert after != shades


def test_a_mark_says_its_number_to_who_points_at_it(viewer, case):
    viewer.open(case("LM of 30 layers").report).resize(1440)
    window = viewer.window
    mark = window.find_element(By.CSS_SELECTOR, "svg .hover > circle")
    words = mark.find_element(By.CSS_SELECTOR, "title").get_attribute("textContent")
    assert re.search(r"\d", words)
    tip = window.find_element(By.CSS_SELECTOR, ".tip")
    assert not tip.is_displayed()
    x, y = point(window, mark)
    assert tip.is_displayed()
    assert tip.text == words
    left, top, right, bottom = viewer(
        "const b = arguments[0].getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]", tip
    )
    assert 0 <= left < right <= 1440
    assert not (left < x < right and top < y < bottom)
    window.find_element(By.CSS_SELECTOR, "body").send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()


def test_a_plane_of_many_cells_says_the_number_of_each(viewer, case):
    """Pointed at, and read by keyboard: what is said of a cell is what the result holds there."""
    made = case("default")
    viewer.open(made.report).resize(1440)
    window, (result,) = viewer.window, made.results.values()
    plane = window.find_element(By.CSS_SELECTOR, "svg .hover > [data-plane]")
    name = next(each for each in result.arrays if each.endswith("step-00002000/neu_plane_checkpoint"))
    values = result.arrays[name].values[..., 0].T  # NEU by cell, rows up
    rows, columns = values.shape
    settled = "requestAnimationFrame(() => requestAnimationFrame(arguments[0]))"
    tip = window.find_element(By.CSS_SELECTOR, ".tip")
    card = plane.find_element(By.XPATH, "ancestor::div[contains(@class, 'card')]")
    viewer("arguments[0].focus()", card)
    for column in (0, 1):
        card.send_keys(Keys.ARROW_RIGHT)
        window.execute_async_script(settled)
        share = -0.5 + column * 2 / (columns - 1)
        assert number(tip.text, "share of the way to the checkpoint: ") == pytest.approx(share, abs=1e-3)
    window.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plane)
    where = "const b = arguments[0].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]"
    window.execute_async_script(settled)
    left, top, width, height = viewer(where, plane)
    for row, column in ((2, 3), (rows - 2, columns - 1)):
        pointer = ActionChains(window, duration=0)
        x, y = left + (column + 0.8) * width / columns, top + (rows - row - 0.2) * height / rows
        pointer.w3c_actions.pointer_action.move_to_location(int(x), int(y))
        pointer.perform()
        assert number(tip.text, "NEU: ") == rounded(float(values[row, column]))
        share = -0.5 + column * 2 / (columns - 1)
        assert number(tip.text, "share of the way to the checkpoint: ") == pytest.approx(share, abs=1e-3)
