"""Real Chromium, driven by Selenium; skipped, with the reason, where there is none."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver

from serving import Running, settings, table

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="session")
def programs() -> tuple[str, str]:
    found = shutil.which("chromium") or shutil.which("chromium-browser"), shutil.which("chromedriver")
    if found[0] is None or found[1] is None:
        pytest.skip("Chromium and chromedriver are not installed: apt-get install chromium chromium-driver")
    return found[0], found[1]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("browser")
    plan = {"queries": {"mean": 40, "flip": 100}, "bounds": {"dep_delay": (-60, 600)}}
    with Running(settings(table(folder), dataset=plan, data_folder=str(folder))) as running:
        yield running


@pytest.fixture(params=list(SIZES))
def browser(request: pytest.FixtureRequest, programs: tuple[str, str], tmp_path: Path) -> Iterator[webdriver.Chrome]:
    width, height = SIZES[request.param]
    options = webdriver.ChromeOptions()
    options.binary_location = programs[0]
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-sync",
        "--no-first-run",
        f"--user-data-dir={tmp_path / 'profile'}",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(programs[1]))
    size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 500}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        yield driver
    finally:
        driver.quit()
