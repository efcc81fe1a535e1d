"""The view Choose: matrices in, answers out, and everything that follows from the slider."""

import json
import pathlib
import subprocess

from conftest import DATA, WAIT_MS
from playwright.sync_api import expect

PROGRAMS = pathlib.Path(__file__).parent / "programs"

GENERATED = "?generate=elasticity:20000&device=h200&precision=f64&spmvs=1000"

#: A matrix whose fastest format changes with the number of products.
CHANGING = GENERATED.replace("20000", "60000")

#: A failed request is also an error of Chromium's console.
REFUSED = ("Failed to load resource",)


def test_a_generated_class_is_chosen_for(tab):
    one = tab()
    page = one.open()
    assert page.is_visible("#start") and not page.is_visible("#answer")
    page.select_option("#class", "elasticity")
    page.fill("#rows", "2e4")
    page.click("#generate")
    one.answered()
    assert "elasticity:20000 on h200 in f64" in page.inner_text("#decision")
    assert "generate=elasticity:20000" in page.url
    assert page.locator("#words li").count() >= 6
    # The picture is not empty, and the histogram has a bar for each bin.
    painted = "[...document.querySelector('canvas').getContext('2d').getImageData(0, 0, 128, 128).data].some((x) => x > 0)"
    assert page.evaluate(painted)
    assert page.locator(".histogram rect").count() >= 2
    page.fill("#rows", "many")
    page.click("#generate")
    assert "'many'" in page.inner_text("#problem")
    # A link to the page holds the request.
    again = tab()
    again.open("?" + page.url.split("?")[1].split("#")[0])
    again.answered()
    assert again.choice() == one.choice()


def test_the_slider_changes_the_winner_as_the_service_would(tab, service):
    one = tab()
    page = one.open(CHANGING)
    one.answered()
    asked = len(one.requests)
    named = page.locator("tr.chosen").get_attribute("data-candidate")
    chosen = {}
    for number in [1, 10, 100, 1000, 100_000, 5_000_000]:
        one.set_products(number)
        chosen[number] = one.choice()
    assert len(one.requests) == asked, "the slider needs no request"
    assert len(set(chosen.values())) > 1 and chosen[1000] == named, chosen
    print_ = service.ask("recommend?generate=elasticity:60000&device=h200", "POST", b"")["fingerprint"]
    for number, candidate in chosen.items():
        answer = service.ask(f"recommend/{print_}?device=h200&spmvs={number}")
        assert candidate == answer["choice"], number
    # The strip names the winners, and its parts set the number.
    parts = page.locator(".part")
    assert parts.count() >= 2 and page.locator(".even").count() >= 1
    parts.first.click()
    assert page.input_value("#spmvs-number") == "1" and one.choice() == chosen[1]
    assert "from 1" in page.inner_text("#winners")


def test_the_slider_and_all_else_work_with_the_keyboard(tab):
    one = tab()
    page = one.open(CHANGING)
    one.answered()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.focus("#spmvs")
    page.keyboard.press("Home")
    few = one.choice()
    assert page.get_attribute("#spmvs", "aria-valuetext") == "1 product"
    page.keyboard.press("End")
    assert page.get_attribute("#spmvs", "aria-valuetext") == "10,000,000 products"
    assert one.choice() != few
    page.focus("input[name=precision][value=f64]")
    page.keyboard.press("ArrowRight")
    one.answered("in f32")
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id"))
    assert {"file", "sample", "class", "rows", "generate", "device", "effort", "spmvs", "variants"} <= reached


def test_files_are_dropped_or_chosen(tab):
    one = tab()
    page = one.open("?device=h200")
    page.set_input_files("#file", DATA / "circuit.mtx")
    one.answered()
    assert "circuit.mtx on h200" in page.inner_text("#decision")
    text = (DATA / "elasticity.mtx").read_text()
    # Nothing in a name is read as markup.
    name = "<img src=x onerror=alert(1)>.mtx"
    dropped = page.evaluate_handle(
        "([text, name]) => { const data = new DataTransfer(); data.items.add(new File([text], name)); return data; }",
        [text, name])
    page.dispatch_event("#drop", "drop", {"dataTransfer": dropped})
    one.answered("onerror")
    assert f"{name} on h200" in page.inner_text("#decision")
    assert page.locator("main img").count() == 0


def test_a_sample_is_chosen_for_and_a_file_that_is_no_matrix_is_refused(tab):
    one = tab(expected=REFUSED)
    page = one.open()
    page.select_option("#sample", "convection_diffusion.mtx")
    one.answered()
    assert "729 rows" in page.inner_text("#words")
    page.set_input_files("#file", {"name": "no.mtx", "mimeType": "text/plain", "buffer": b"no matrix"})
    page.wait_for_selector("#problem .problem")
    assert not page.is_visible("#answer")
    assert page.get_attribute("#problem", "role") == "alert"


def test_device_and_precision_are_switched_and_switched_back(tab):
    one = tab()
    page = one.open(GENERATED)
    one.answered()
    first = page.inner_text("#decision")
    for control, value, stated in [("precision", "f32", "on h200 in f32"), ("device", "cpu", "on cpu in f32")]:
        if control == "device":
            page.select_option("#device", value)
        else:
            page.check(f"input[name=precision][value={value}]", force=True)
        one.answered(stated)
    page.select_option("#device", "h200")
    one.answered("on h200 in f32")
    asked = [url for url in one.requests if "recommend" in url]
    page.check("input[name=precision][value=f64]", force=True)
    one.answered("in f64")
    assert page.inner_text("#decision") == first
    assert [url for url in one.requests if "recommend" in url] == asked, "answers are kept"
    disabled = page.locator("#effort option:disabled")
    assert disabled.count() == 2 and "profile" in page.inner_text("#effort-note")


def test_reasons_refusals_sources_and_the_model_are_shown(tab, service):
    one = tab()
    page = one.open(GENERATED)
    one.answered()
    answer = service.ask("recommend?generate=elasticity:20000&device=h200", "POST", b"")
    why = page.inner_text("#why")
    assert answer["model"]["id"] in why and answer["explanation"][0] in why
    page.click("#why summary")
    assert all(one["reason"] in page.inner_text("#why") for one in answer["refused"])
    best = page.inner_text("tr.chosen")
    assert "\u00b1" in best and "predicted" in best
    few = page.locator("#bars tbody tr").count()
    page.check("#variants")
    assert few < page.locator("#bars tbody tr").count() == len(answer["ranking"])


def test_the_same_request_is_there_for_programs(tab, tmp_path):
    one = tab()
    page = one.open(GENERATED)
    one.answered()
    shell = page.inner_text("#snippets code")
    run = subprocess.run(["bash", "-c", f"cd {tmp_path} && {shell}"], capture_output=True, check=True)
    assert json.loads(run.stdout)["choice"] == one.choice()
    programs = {}
    for language in ["Python", "C", "Rust"]:
        page.check(f"input[name=language][value={language}]", force=True)
        programs[language] = page.inner_text("#snippets code")
    assert 'generate="elasticity:20000"' in programs["Python"]
    compile(programs["Python"], "snippet", "exec")
    include = pathlib.Path(__file__).parents[2] / "c" / "include"
    check = ["cc", "-std=c99", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{include}", "-xc", "-"]
    subprocess.run(check, input=programs["C"], text=True, check=True)
    # These programs are compiled and run by the tests of the program in Rust.
    assert programs["Rust"] == (PROGRAMS / "generated.rs").read_text().strip()
    # The sample's command works, too.
    page.select_option("#sample", "circuit.mtx")
    one.answered("circuit")
    page.check("input[name=language][value=curl]", force=True)
    shell = page.inner_text("#snippets code")
    run = subprocess.run(["bash", "-c", f"cd {tmp_path} && {shell}"], capture_output=True, check=True)
    assert json.loads(run.stdout)["choice"] == one.choice()
    page.check("input[name=precision][value=f32]", force=True)
    one.answered("in f32")
    page.check("input[name=language][value=Rust]", force=True)
    assert page.inner_text("#snippets code") == (PROGRAMS / "file.rs").read_text().strip()


def test_measuring_shows_its_progress_and_then_the_answer(tab, service):
    one = tab()
    page = one.open("?device=cpu")
    page.select_option("#sample", "circuit.mtx")
    one.answered()
    page.select_option("#effort", "measure")
    page.wait_for_selector("#work progress")
    expect(page.locator("tr.chosen .source")).to_have_text("measured", timeout=2 * WAIT_MS)
    one.answered()
    assert not page.is_visible("#work")
    job = service.ask("jobs?status=succeeded")["jobs"][0]
    assert job["kind"] == "recommend"
    page.click("nav a[href='#jobs']")
    page.click(f".job:has-text('Job {job['id']} ') >> text=Show the answer")
    page.wait_for_selector("#choose:not([hidden]) tr.chosen")
    assert "measured" in page.inner_text("tr.chosen")
