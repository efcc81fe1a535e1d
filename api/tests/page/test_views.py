"""The views of wisdom, models and jobs, tokens, and how the page looks."""

import pytest

from conftest import DATA, READ, WAIT_MS
from playwright.sync_api import expect

#: An answer with status 401 is also an error of Chromium's console.
REFUSED = ("Failed to load resource",)

VIEWS = ["choose", "wisdom", "models", "jobs"]


def shown(one, view):
    """Open a view and wait for its contents."""
    page = one.page
    page.click(f"nav a[href='#{view}']")
    page.wait_for_selector({
        "choose": "#choose:not([hidden])",
        "wisdom": "#wisdom .structure",
        "models": "#models .model",
        "jobs": "#jobs .view-head",
    }[view], timeout=2 * WAIT_MS)
    return page


def test_wisdom_shows_what_wins_where_and_chooses_for_a_known_matrix(tab):
    one = tab()
    one.open()
    page = shown(one, "wisdom")
    everything = page.inner_text(".pager")
    assert page.locator(".wins").count() >= 4
    page.fill("#search", "elasticity:")
    expect(page.locator(".pager")).not_to_have_text(everything)
    names = page.locator(".structure summary b").all_inner_texts()
    assert names and all("elasticity:" in name for name in names)
    structure = page.locator(".structure").filter(has_text="h200").first
    structure.locator("summary").click()
    structure.locator("table tbody tr").first.wait_for()
    times = structure.locator("table").first.locator("tbody tr td:nth-child(2)").all_inner_texts()
    assert all(text.endswith(("us", "ms", "s")) for text in times)
    structure.locator("text=Choose for h200").click()
    page.wait_for_selector("#answer:not([hidden]) tr.chosen")
    assert "on h200" in page.inner_text("#decision")
    expect(page.locator("#picture")).to_contain_text("Send this one again")
    page.click("nav a[href='#wisdom']")
    page.fill("#search", "no such matrix")
    expect(page.locator("#wisdom")).to_contain_text("No measured matrix")


def test_models_have_cards(tab):
    one = tab()
    one.open()
    page = shown(one, "models")
    assert page.locator(".model").count() >= 4
    assert page.locator(".model").filter(has_text="h200 in f64, several vectors").count() == 1
    card = page.locator(".model").filter(has_text="h200 in f64").first
    card.locator("summary").click()
    card.locator(".markdown table").first.wait_for()
    assert "Model of h200 in f64" in card.inner_text()
    page.click("text=Read the models again")
    expect(page.locator("#models")).to_contain_text("were read again")


def test_the_form_of_a_training_makes_a_job(tab, service):
    one = tab(expected=REFUSED)
    one.open()
    page = shown(one, "models")
    page.click("summary:has-text('Train models')")
    one.check_access("the form of a training")
    page.fill("#tune-device", "cpu")
    page.select_option("#tune-precision", "f64")
    # The form shows why the service refuses it.
    page.fill("#tune-matrix", "nosuch:100")
    page.click(".tune button")
    expect(page.locator(".tune [role=alert]")).to_contain_text("nosuch")
    page.fill("#tune-matrix", "heat:300, stencil5:300")
    page.fill("#tune-budget", "90s")
    page.click(".tune button")
    page.wait_for_selector("#jobs .job")
    (job,) = service.ask("jobs?kind=tune")["jobs"]
    details = job["details"]
    assert (details["device"], details["precision"], details["budget"]) == ("cpu", ["f64"], "90s")
    assert details["matrix"] == ["heat:300", "stencil5:300"] and details["generate"] is None
    card = page.locator(f".job:has-text('Job {job['id']} ')")
    assert "training for cpu" in card.inner_text()
    card.locator("text=Cancel").click()
    expect(card).to_have_attribute("data-status", "canceled")


def test_jobs_are_followed_and_canceled(tab, service):
    matrix = (DATA / "elasticity.mtx").read_bytes()
    path = "recommend?device=cpu&effort=exhaustive&budget=60s&wait_ms=0"
    job = service.ask(path, "POST", matrix)
    one = tab()
    one.open()
    page = shown(one, "jobs")
    card = page.locator(f".job:has-text('Job {job['id']} ')")
    card.locator("progress[value]").wait_for()
    before = card.locator("progress").get_attribute("value")
    expect(card.locator("progress")).not_to_have_attribute("value", before)
    card.locator("text=Cancel").click()
    expect(card).to_have_attribute("data-status", "canceled")
    assert service.ask(f"jobs/{job['id']}")["status"] == "canceled"


def test_a_service_with_tokens_asks_for_one(tab, guarded):
    one = tab(guarded.url, expected=REFUSED)
    page = one.page
    page.goto(f"{guarded.url}/")
    page.wait_for_selector("dialog[open]")
    one.check_access("the question for a token")
    page.fill("#token-value", "x" * 20)
    page.press("#token-value", "Enter")
    expect(page.locator("#token-why")).to_contain_text("does not know")
    page.fill("#token-value", READ)
    page.click("#token-use")
    one.filled()
    stored = page.evaluate("[Object.values(sessionStorage), localStorage.length, document.cookie]")
    assert stored == [[READ], 0, ""]
    page.set_input_files("#file", DATA / "circuit.mtx")
    one.answered()
    assert "$ELLECT_TOKEN" in page.inner_text("#snippets code") and READ not in page.content()
    # The role read measures nothing, and the page says so.
    page.select_option("#device", "cpu")
    one.answered("on cpu")
    page.select_option("#effort", "measure")
    page.wait_for_selector("#problem .problem")
    assert "role write" in page.inner_text("#problem")
    page.reload()
    one.filled()
    page.click("#token-change")
    page.wait_for_selector("dialog[open]")
    assert page.evaluate("sessionStorage.length") == 0


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 390)])
def test_every_view_fits_is_labelled_and_has_contrast(tab, scheme, width):
    one = tab(color_scheme=scheme, viewport={"width": width, "height": 844})
    page = one.open("?generate=elasticity:20000&device=h200")
    one.answered()
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)")
    assert (sum(ground) < 200) == (scheme == "dark"), ground
    page.click("#words summary")
    page.click("#why summary")
    for view in VIEWS:
        shown(one, view)
        one.check_width()
        one.check_access(f"{view}, {scheme}, {width}")
        one.picture(f"{view}-{scheme}-{width}")
    page.click("nav a[href='#choose']")
    for control in page.locator("input, select, button").all():
        name = control.evaluate("(node) => node.labels?.[0]?.textContent || node.getAttribute('aria-label') || node.textContent")
        hidden = control.get_attribute("aria-hidden") == "true"
        assert hidden or name.strip(), control.evaluate("(node) => node.outerHTML")
