"""A service and a browser for the tests of the page."""

import json
import os
import pathlib
import subprocess
import urllib.request

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

DATA = pathlib.Path(__file__).parents[3] / "tests" / "data"

#: Milliseconds that a check waits; programs in the development profile are slow.
WAIT_MS = 60_000

expect.set_options(timeout=WAIT_MS)

READ, WRITE = "0123456789abcdef", "fedcba9876543210"


class Service:
    """A running service."""

    def __init__(self, folder, *more):
        command = [os.environ["PROGRAM"], "serve", "--listen", "127.0.0.1:0", "--data", folder, *more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if "http://" in line:
                self.url = "http://" + line.rsplit("http://", 1)[1].strip()
                break
        else:
            raise RuntimeError("the service ended before it listened")
        # The log must not fill the pipe.
        self.log = subprocess.Popen(["cat"], stdin=self.process.stderr, stdout=subprocess.DEVNULL)

    def ask(self, path, method="GET", body=None):
        """Return the JSON at a path."""
        request = urllib.request.Request(f"{self.url}/{path}", body, method=method)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=60)
        self.log.wait(timeout=60)


@pytest.fixture(scope="session")
def service(tmp_path_factory):
    running = Service(tmp_path_factory.mktemp("data"))
    yield running
    running.stop()


@pytest.fixture(scope="session")
def guarded(tmp_path_factory):
    """A service with tokens."""
    folder = tmp_path_factory.mktemp("guarded")
    (folder / "tokens").write_text(f"read {READ}\nwrite {WRITE}\n")
    running = Service(folder / "data", "--tokens", folder / "tokens")
    yield running
    running.stop()


@pytest.fixture(scope="session")
def browser():
    with sync_playwright() as playwright:
        options = {"executable_path": os.environ.get("CHROMIUM") or None, "args": ["--no-sandbox"]}
        running = playwright.chromium.launch(**options)
        yield running
        running.close()


class Tab:
    """A tab of the browser that notes what a sound page has none of."""

    def __init__(self, browser, url, expected=(), **options):
        options = {"viewport": {"width": 1280, "height": 900}, **options}
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.page.set_default_timeout(WAIT_MS)
        self.url, self.faults, self.requests = url, [], []
        # Chromium reports each answer with an error, which a test may expect.
        is_expected = lambda text: any(one in text for one in expected)
        self.page.on("console", lambda message: message.type in ("error", "warning")
                     and not is_expected(message.text) and self.faults.append(message.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))

    def open(self, query=""):
        """Load the page; return it once the form is filled."""
        self.page.goto(f"{self.url}/{query}")
        self.filled()
        return self.page

    def filled(self):
        """Wait until the form is filled."""
        expect(self.page.locator("#version")).not_to_be_empty()

    def answered(self, stated=""):
        """Wait for an answer with its picture, whose head has this text."""
        expect(self.page.locator("#decision")).to_contain_text(stated)
        self.page.wait_for_selector("#answer:not([hidden]) canvas")
        expect(self.page.locator("#status")).to_be_empty()

    def choice(self):
        """Return the candidate that the page shows as the choice."""
        return self.page.get_attribute("tr.chosen", "data-candidate")

    def set_products(self, number):
        self.page.fill("#spmvs-number", str(number))
        self.page.press("#spmvs-number", "Enter")

    def check_width(self):
        """Check that nothing is wider than the screen."""
        wide, screen = self.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert wide <= screen, f"the page is {wide} pixels wide on a screen of {screen}"

    def check_access(self, what):
        """Check labels, roles and contrast."""
        found = Axe().run(self.page).response["violations"]
        stated = [f"{one['id']}: {node['html'][:200]} {node['failureSummary']}"
                  for one in found for node in one["nodes"]]
        assert not stated, f"{what}: " + "\n".join(stated)

    def picture(self, name):
        """Keep a picture of the page if that is asked for."""
        folder = os.environ.get("SCREENSHOTS")
        if folder:
            self.page.screenshot(path=f"{folder}/{name}.png", full_page=True)

    def close(self):
        self.context.close()
        assert not self.faults, self.faults
        others = [url for url in self.requests if not url.startswith((self.url + "/", "blob:", "data:"))]
        assert not others, f"the page asked other hosts: {others}"


@pytest.fixture
def tab(browser, service):
    """Return a function that opens tabs, which are checked at the end of the test."""
    tabs = []

    def opened(url=service.url, **options):
        tabs.append(Tab(browser, url, **options))
        return tabs[-1]

    yield opened
    for one in tabs:
        one.close()
