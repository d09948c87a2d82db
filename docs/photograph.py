"""Photograph the web page for the manual: `python docs/photograph.py`, with Chromium and chromedriver installed.

Made-up flights, held rows and a board are served, questions asked, and pages with their answers photographed as they
are seen at 1280 and at 390 pixels, light and dark. The pictures are in docs/page; those in docs/page/before, of the
pages before they followed the rules of docs/explanation/page.md, are not made again.
"""

import base64
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from PIL import Image
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

import holdfast

HERE = Path(__file__).parent
SIZES = {1280: 900, 390: 844}
MOST = 2_600  # pixels of height that are kept
CARRIERS = {"UA": 0.20, "B6": 0.24, "EV": 0.31, "DL": 0.16, "AA": 0.17}  # how often each is late
GROUPS = ", ".join(CARRIERS)
QUESTIONS: tuple[dict[str, str], ...] = (
    {"query": "dep_delay > 15"},
    {"kind": "quantile", "query": "dep_delay", "q": "0.9", "within": "-60, 600"},
    {"kind": "histogram", "query": "carrier", "categories": GROUPS},
    {"query": "dep_delay > 15", "by": "carrier", "groups": GROUPS},
)
CHECKS: tuple[dict[str, str], ...] = (
    {"query": "dep_delay > 15", "guess": "0.22"},
    {"query": "dep_delay > 15 AND carrier = 'EV'", "guess": "0.1"},
)
ACCURACIES = {"team 7": 0.6, "team 3": 0.58, "baseline": 0.5, "team 9": 0.67}
PAGES = {  # pictures by name: the page, as it is after all questions
    "history": "/datasets/flights/history",
    "plan": "/plan?rows=100000",
    "check": "/datasets/trips",
    "board": "/datasets/digits",
    "admin": "/admin",
}


def flights(path: Path, rows: int = 100_000) -> Path:
    """Write made-up flights."""
    rng = np.random.default_rng(5)
    carrier = rng.choice(list(CARRIERS), rows, p=[0.28, 0.25, 0.2, 0.15, 0.12])
    late = rng.random(rows) < np.vectorize(CARRIERS.get)(carrier)
    delay = np.where(late, rng.gamma(1.4, 35, rows) + 15, rng.normal(-3, 6, rows)).round(1)
    other = {"distance": rng.integers(80, 2_700, rows), "month": rng.integers(1, 13, rows)}
    pl.DataFrame({"dep_delay": delay, "carrier": carrier} | other).write_parquet(path)
    return path


def held(path: Path) -> Path:
    """Write other flights and hold half of them back."""
    holdfast.hold_back(flights(path, 60_000))[1].close()
    return path.with_name(f"{path.stem}.held.holdfast")


def board(path: Path, rows: int = 14_042) -> Path:
    """Seal labels, and submit predictions of several accuracies."""
    rng = np.random.default_rng(7)
    labels = rng.random(rows) < 0.5
    pl.DataFrame({"id": np.arange(rows), "label": labels}).write_csv(path)
    with holdfast.Board(path) as sealed:
        for team, accuracy in ACCURACIES.items():
            wrong = rng.random(rows) >= accuracy
            sealed.submit({"id": np.arange(rows), "prediction": labels ^ wrong}, by=team, name=team)
    return path.with_name(f"{path.stem}.board.holdfast")


@contextmanager
def served(**paths: Path) -> Iterator[dict[str, Any]]:
    """Serve these files; yields what `holdfast serve --json` says."""
    path = next(iter(paths.values()))
    named = [f"{name}={each}" for name, each in paths.items()]
    command = [sys.executable, "-m", "holdfast", "serve", *named, "--port", "0", "--json"]
    here = os.environ | {"PYTHONPATH": str(Path(holdfast.__file__).parents[1])}  # what is imported here, not installed
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True, "env": here}
    with subprocess.Popen(command, cwd=path.parent, **quiet) as server:  # type: ignore[call-overload]
        assert server.stdout is not None
        try:
            yield json.loads(server.stdout.readline())
        finally:
            server.terminate()


@contextmanager
def chromium() -> Iterator[webdriver.Chrome]:
    """Start the browser."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"):
        options.add_argument(argument)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        yield driver
    finally:
        driver.quit()


def ask(driver: webdriver.Chrome, page: str, question: dict[str, str]) -> None:
    """Fill the form in and wait for the answer."""
    wait = WebDriverWait(driver, 30)
    driver.get(f"{page}?kind={question.get('kind', 'mean')}")
    for name, text in question.items():
        if name != "kind":
            field = driver.find_element(By.NAME, name)
            field.clear()
            field.send_keys(text)
    label = "Check" if "guess" in question else "Ask"
    driver.find_element(By.XPATH, f"//form[@id='ask']//button[normalize-space()='{label}']").click()
    wait.until(lambda _: driver.find_elements(By.CSS_SELECTOR, "#result article"))


def photograph(driver: webdriver.Chrome, width: int, scheme: str) -> Image.Image:
    """Return the page as it is at this width."""
    size = {"width": width, "height": SIZES[width], "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    height = min(MOST, driver.execute_script("return document.documentElement.scrollHeight"))
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    options = {"format": "png", "captureBeyondViewport": True, "clip": clip}
    taken = driver.execute_cdp_cmd("Page.captureScreenshot", options)
    return Image.open(io.BytesIO(base64.b64decode(taken["data"]))).convert("RGB")


def main() -> None:
    """Write the pictures."""
    with tempfile.TemporaryDirectory() as folder:
        at = Path(folder)
        files = {"flights": flights(at / "flights.parquet"), "trips": held(at / "trips.parquet")}
        with served(**files, digits=board(at / "digits.csv")) as server, chromium() as driver:
            driver.get(server["link"])
            driver.find_element(By.CSS_SELECTOR, "form button").click()
            WebDriverWait(driver, 30).until(lambda _: "/sign-in" not in driver.current_url)
            for question in CHECKS:
                ask(driver, f"{server['address']}/datasets/trips", {"kind": "check"} | question)
            for question in QUESTIONS:
                ask(driver, f"{server['address']}/datasets/flights", question)
            keep(driver, "ask")
            for name, page in PAGES.items():
                driver.get(f"{server['address']}{page}")
                keep(driver, name)


def keep(driver: webdriver.Chrome, name: str) -> None:
    """Write the pictures of the page that is shown."""
    for width in SIZES:
        for scheme in ("light", "dark"):
            photograph(driver, width, scheme).save(HERE / "page" / f"{name}-{width}-{scheme}.webp", quality=70)


if __name__ == "__main__":
    main()
