"""The pages, used with a mouse, with a keyboard and on a phone."""

from collections.abc import Callable
from dataclasses import replace
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from selenium.webdriver import ActionChains, Chrome
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import Select, WebDriverWait

import holdfast as hf
from serving import Running, settings

# What a screen reader needs, asked of the page itself.
_NAMELESS = """
const named = e => e.labels?.length || e.getAttribute('aria-label') || e.getAttribute('aria-labelledby')
  || e.textContent.trim() || e.type === 'hidden' || e.hidden;
return [...document.querySelectorAll('input, select, textarea, button, a, svg[role=img]')]
  .filter(e => !named(e)).map(e => e.outerHTML.slice(0, 120));
"""
_SIDEWAYS = """
return [...document.querySelectorAll('main *')].filter(e => e.scrollWidth > e.clientWidth + 1
  && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && !(e.tabIndex === 0 && (e.ariaLabel
  || e.getAttribute('aria-labelledby') || e.labels?.length))).map(e => e.outerHTML.slice(0, 120));
"""
_LEVELS = "return [...document.querySelectorAll('h1, h2, h3')].map(e => Number(e.tagName[1]))"
_CONTRAST = """
const light = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(Number).map(v => v / 255)
  .map(v => v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4); return .2126 * r + .7152 * g + .0722 * b; };
const ground = e => { for (; e; e = e.parentElement) { const c = getComputedStyle(e).backgroundColor;
  if (!c.endsWith(', 0)') && c !== 'transparent') return c; } return 'rgb(255, 255, 255)'; };
return [...document.querySelectorAll('main *, header *, footer *')].filter(e => e.checkVisibility()
  && [...e.childNodes].some(n => n.nodeType === 3 && n.textContent.trim()) && !e.closest('svg')).map(e => {
  const [a, b] = [light(getComputedStyle(e).color), light(ground(e))].sort((x, y) => y - x);
  return [(a + .05) / (b + .05), e.outerHTML.slice(0, 100)]; }).filter(([ratio]) => ratio < 4.5);
"""


def wait(browser: Chrome, done: Callable[[Chrome], Any]) -> Any:
    return WebDriverWait(browser, 30, ignored_exceptions=[Exception]).until(done)


def text(browser: Chrome, selector: str) -> str:
    return str(browser.find_element(By.CSS_SELECTOR, selector).text)


def priced(browser: Chrome, words: str) -> None:
    """Wait for the price of what is entered: while another one is shown, or none, the place of the price is busy."""
    wait(browser, lambda b: words in text(b, "#price:not([aria-busy=true])"))


def press(browser: Chrome, label: str) -> None:
    """Click on a button when nothing above it is about to move it: a price may have more lines than the one before."""
    wait(browser, lambda b: not b.find_elements(By.CSS_SELECTOR, "#price[aria-busy=true]"))
    button = browser.find_element(By.XPATH, f"//button[normalize-space()='{label}']")
    browser.execute_script("arguments[0].scrollIntoView({block: 'center'})", button)
    button.click()


def sign_in(browser: Chrome, server: Running, *, admin: bool = False, name: str = "ana") -> None:
    browser.get(server.url)
    wait(browser, lambda b: b.current_url.endswith("/sign-in"))
    browser.find_element(By.ID, "token").send_keys(server.token(name, admin=admin))
    press(browser, "Sign in")
    wait(browser, lambda b: text(b, "h1") == "Datasets")


def fill(browser: Chrome, **fields: str) -> None:
    """Fill in fields by the names of options, or by their ids elsewhere."""
    for name, words in fields.items():
        field = wait(browser, lambda b, name=name: b.find_element(By.CSS_SELECTOR, f"#option-{name}, #{name}"))
        if field.tag_name == "select":
            Select(field).select_by_value(words)
            continue
        field.clear()
        field.send_keys(words)


def is_sound(browser: Chrome) -> None:
    """Nothing blocked by our own policy, nothing wider than the screen, everything has a name.

    What may scroll sideways by itself can be reached with the keyboard and has a name too.
    """
    blocked = [line["message"] for line in browser.get_log("browser") if "Content Security" in line["message"]]
    assert blocked == []
    assert browser.execute_script("return document.documentElement.scrollWidth <= window.innerWidth")
    assert browser.execute_script(_SIDEWAYS) == []
    assert browser.execute_script(_NAMELESS) == []
    levels = browser.execute_script(_LEVELS)
    assert levels[0] == 1
    assert all(later - earlier <= 1 for earlier, later in pairwise(levels))


def test_from_signing_in_to_an_answer_and_its_place_in_history(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.find_element(By.LINK_TEXT, "flights").click()
    wait(browser, lambda b: "that all answers hold at once" in text(b, ".facts"))
    # New for each browser; it ends in 7 because the canonical text has no trailing zeros.
    question = f"dep_delay > 32.{int(browser.session_id[:6], 16)}7"
    fill(browser, query=question)
    priced(browser, "1 answer of the budget")
    left = text(browser, "#budget")
    press(browser, "Try on made-up rows (free)")
    wait(browser, lambda b: "Made-up rows" in text(b, "#result"))
    assert text(browser, "#budget") == left
    press(browser, "Ask")
    wait(browser, lambda b: "rows read" in text(b, "#result"))
    assert text(browser, "#budget") != left
    assert browser.find_element(By.CSS_SELECTOR, "#result svg.bar").get_attribute("aria-label").count("between") == 1
    wait(browser, lambda b: question in text(b, "#recent"))  # the newest answers are shown without a reload
    wait(browser, lambda b: text(b, "#facts dd:last-of-type"))
    is_sound(browser)
    press(browser, "Ask")
    wait(browser, lambda b: "asked before, free" in text(b, "#result"))
    browser.find_element(By.LINK_TEXT, "History").click()
    wait(browser, lambda b: question in text(b, ".entries"))
    assert browser.find_elements(By.CSS_SELECTOR, ".entries circle")
    assert len(browser.find_elements(By.CSS_SELECTOR, ".entries .axis text")) >= 2
    is_sound(browser)


def test_a_histogram_shows_a_bar_for_each_category(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    assert not browser.find_elements(By.ID, "option-categories")
    fill(browser, query="carrier", kind="histogram", categories="UA, AA")  # what was typed stays
    priced(browser, "histogram of carrier")
    press(browser, "Ask")
    wait(browser, lambda b: len(b.find_elements(By.CSS_SELECTOR, "#result svg.bar")) == 3)


def test_a_model_is_fitted_from_the_form(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    left = text(browser, "#budget")
    fill(browser, kind="minimize", loss="logistic: dep_delay > 15 ~ distance", radius="2")
    assert not browser.find_elements(By.ID, "option-query")
    priced(browser, "must be declared")
    most = 5_000 + int(browser.session_id[:6], 16)  # new for each browser
    fill(browser, loss=f"logistic: dep_delay > 15 ~ distance [0, {most}] + weekend")
    priced(browser, "above the smallest")
    is_sound(browser)
    press(browser, "Try on made-up rows (free)")
    wait(browser, lambda b: "Made-up rows" in text(b, "#result"))
    assert text(browser, "#budget") == left
    press(browser, "Ask")
    wait(browser, lambda b: "rows read" in text(b, "#result") and "Made-up rows" not in text(b, "#result"))
    fitted = [name.text for name in browser.find_elements(By.CSS_SELECTOR, "#result tbody th")]
    assert fitted[:3] == ["distance", "weekend", "intercept"]
    assert fitted[3:] == ["accuracy", "loss", "looked at", "iterations"]
    is_sound(browser)
    # Too expensive: shown with the price, and refused before anything is spent.
    fill(browser, iterations="9000")
    priced(browser, "more than is left")
    left = text(browser, "#budget")
    press(browser, "Ask")
    wait(browser, lambda b: "budget cannot pay" in text(b, "#result [role=alert]"))
    assert text(browser, "#budget") == left
    # Options that are rarely needed are folded away.
    assert not browser.find_element(By.ID, "option-runs").is_displayed()
    browser.find_element(By.CSS_SELECTOR, "#fields summary").click()
    assert browser.find_element(By.ID, "option-runs").is_displayed()
    is_sound(browser)


def test_a_model_is_fitted_with_the_keyboard_alone(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")

    def tab_to(id: str) -> None:
        for _ in range(40):
            if browser.switch_to.active_element.get_attribute("id") == id:
                return
            ActionChains(browser).send_keys(Keys.TAB).perform()
        raise AssertionError(f"{id} cannot be reached")

    tab_to("kind")
    ActionChains(browser).send_keys("Minim").perform()
    wait(browser, lambda b: b.find_element(By.ID, "option-loss"))
    values = {"option-loss": "logistic: weekend ~ distance [0, 5000]", "option-radius": "1"}
    for id, value in values.items():
        tab_to(id)
        ActionChains(browser).send_keys(value).perform()
    priced(browser, "fit to Logistic loss of weekend")
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    wait(browser, lambda b: "fit to Logistic loss of weekend" in text(b, "#result"))


def test_wrong_input_is_explained_before_and_after_asking(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    fill(browser, query="dep_dela > 15")
    priced(browser, "Did you mean 'dep_delay'?")
    press(browser, "Ask")
    wait(browser, lambda b: "Did you mean 'dep_delay'?" in text(b, "#result [role=alert]"))
    assert text(browser, "#price") == ""  # said once
    fill(browser, query="<script>alert(1)</script>")
    priced(browser, "script")
    assert browser.execute_script("return document.querySelectorAll('main script').length") == 0
    browser.get(f"{server.url}/datasets/nothing")
    assert "No dataset" in text(browser, "main")
    is_sound(browser)


# What the place of the price says when every price that was about to be asked for would have come.
_LATER = "const done = arguments[0]; setTimeout(() => done(document.getElementById('price').innerText), 1000);"


def test_a_question_asked_before_its_price_came_is_answered_once(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    for query, said, place in (("weekend", "share of weekend", "Answered below."), ("weeken", "Did you mean", "")):
        fill(browser, query=query)
        browser.execute_script("document.querySelector('#ask button').click()")
        wait(browser, lambda b, said=said: said in text(b, "#result"))
        assert browser.execute_async_script(_LATER) == place
    assert len(browser.find_elements(By.CSS_SELECTOR, "[role=alert]")) == 1
    fill(browser, query="weekend")
    priced(browser, "Free: asked before")
    logged = [line["message"] for line in browser.get_log("browser")]
    assert [line for line in logged if "Content Security" in line or "oobErrorNoTarget" in line] == []


def test_a_server_that_cannot_be_reached_is_told(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    fill(browser, query="weekend")
    priced(browser, "share of weekend")
    lost = {"offline": True, "latency": 0, "downloadThroughput": 0, "uploadThroughput": 0}
    browser.execute_cdp_cmd("Network.enable", {})
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", lost)
    press(browser, "Ask")
    wait(browser, lambda b: "cannot be reached" in text(b, "#result [role=alert]"))
    assert text(browser, "#price") == ""
    browser.execute_cdp_cmd("Network.emulateNetworkConditions", lost | {"offline": False, "downloadThroughput": -1})
    press(browser, "Ask")
    wait(browser, lambda b: "share of weekend" in text(b, "#result article"))


def test_a_wrong_token_is_refused_in_words(browser: Chrome, server: Running) -> None:
    browser.get(f"{server.url}/sign-in")
    browser.find_element(By.ID, "token").send_keys("hf_wrong")
    press(browser, "Sign in")
    wait(browser, lambda b: "unknown, revoked or expired" in text(b, "[role=alert]"))
    is_sound(browser)


def test_the_plan_follows_what_is_moved(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.find_element(By.LINK_TEXT, "Plan").click()
    first = wait(browser, lambda b: text(b, "#plan-result h2"))
    assert first.startswith("±")
    fill(browser, rows="100000000")
    wait(browser, lambda b: "100,000,000 rows" in text(b, "#plan-result p"))
    assert text(browser, "#plan-result h2") < first
    slider = browser.find_element(By.CSS_SELECTOR, "input[data-for=queries]")
    slider.send_keys(Keys.HOME)
    wait(browser, lambda b: "can answer 1 question" in text(b, "#plan-result p"))
    assert browser.find_element(By.ID, "queries").get_attribute("value") == "1"
    browser.find_element(By.CSS_SELECTOR, "input[value=queries]").click()
    wait(browser, lambda b: text(b, "#plan-result h2").endswith("questions"))
    assert not browser.find_element(By.ID, "queries").is_displayed()
    assert len(browser.find_elements(By.CSS_SELECTOR, "#plan-result tbody tr")) >= 5
    is_sound(browser)


def test_the_admin_makes_limits_and_revokes_a_token(browser: Chrome, server: Running) -> None:
    code = server.state.tokens.sign_in_link(server.state.admin)
    browser.get(f"{server.url}/sign-in?code={code}")
    press(browser, "Sign in as admin")
    wait(browser, lambda b: text(b, "h1") == "Datasets")
    browser.find_element(By.LINK_TEXT, "Admin").click()
    name = f"eve {browser.session_id[:6]}"
    fill(browser, name=name, quota="5")
    press(browser, "Create token")
    token = wait(browser, lambda b: text(b, "#new-token"))
    with server.client(token) as eve:
        assert eve.get("/api/v1/me").json()["token"]["quota"] == 5
        field = browser.find_element(By.CSS_SELECTOR, f"[aria-label='Quota of {name}']")
        field.clear()
        field.send_keys("7", Keys.ENTER)
        wait(browser, lambda b: "may use 7 answers" in text(b, "[role=status]"))
        is_sound(browser)
        table = browser.find_element(By.CSS_SELECTOR, ".tokens")
        assert browser.execute_script("return arguments[0].scrollWidth <= window.innerWidth", table)
        summary = browser.find_element(By.CSS_SELECTOR, f"summary[aria-label='Revoke the token of {name} …']")
        revoke = browser.find_element(By.CSS_SELECTOR, f"button[aria-label='Revoke the token of {name}']")
        assert not revoke.is_displayed()  # one step does not revoke
        summary.send_keys(Keys.ENTER)
        wait(browser, lambda _: revoke.is_displayed())
        is_sound(browser)
        assert eve.get("/api/v1/me").status_code == 200
        revoke.send_keys(Keys.ENTER)
        wait(browser, lambda b: "Revoked the token" in text(b, "[role=status]"))
        assert eve.get("/api/v1/me").status_code == 401
    press(browser, "Verify all entries")
    wait(browser, lambda b: "Verified flights" in text(b, "[role=status]"))
    press(browser, "Sign out")
    wait(browser, lambda b: b.current_url.endswith("/sign-in"))


def test_a_question_is_asked_with_the_keyboard_alone(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    keys = ActionChains(browser)
    keys.send_keys(Keys.TAB).perform()
    assert browser.switch_to.active_element.text == "Skip to content"
    browser.switch_to.active_element.send_keys(Keys.ENTER)
    for _ in range(30):
        if browser.switch_to.active_element.get_attribute("id") == "option-query":
            break
        ActionChains(browser).send_keys(Keys.TAB).perform()
    ActionChains(browser).send_keys("weekend").perform()
    priced(browser, "share of weekend")
    for _ in range(10):
        if browser.switch_to.active_element.text == "Ask":
            break
        ActionChains(browser).send_keys(Keys.TAB).perform()
    ActionChains(browser).send_keys(Keys.ENTER).perform()
    wait(browser, lambda b: "share of weekend" in text(b, "#result"))
    assert browser.switch_to.active_element.text == "Ask"  # disabled meanwhile, and still where the keyboard is


AXE = files("axe_core_python").joinpath("axe.min.js").read_text(encoding="utf-8")
_AXE = """
const done = arguments[arguments.length - 1];
axe.run(document, {resultTypes: ['violations']}).then(found => done(found.violations.map(
  one => one.id + ': ' + one.nodes.map(node => node.html.slice(0, 120)).join(' | '))));
"""


def flaws(browser: Chrome) -> list[str]:
    """Return what axe finds wrong with a page, when nothing of it is about to change."""
    wait(browser, lambda b: not b.find_elements(By.CSS_SELECTOR, ".htmx-request"))
    browser.execute_script(AXE)
    return list(browser.execute_async_script(_AXE))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_on_any_page_or_answer(browser: Chrome, server: Running, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.get(f"{server.url}/sign-in")
    assert flaws(browser) == []
    sign_in(browser, server, admin=True, name="admin")
    for page in ("/", "/datasets/flights/sql", "/datasets/flights/history", "/plan", "/admin", "/nothing-here"):
        browser.get(server.url + page)
        assert flaws(browser) == [], page
    browser.get(f"{server.url}/datasets/flights?kind=histogram&query=carrier&categories=UA,AA")
    press(browser, "Ask")
    wait(browser, lambda b: len(b.find_elements(By.CSS_SELECTOR, "#result svg.bar")) == 3)
    wait(browser, lambda b: "histogram of carrier" in text(b, "#recent"))
    browser.find_element(By.CSS_SELECTOR, ".elsewhere summary").click()
    browser.execute_script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert flaws(browser) == []
    fill(browser, query="carrie")
    priced(browser, "Did you mean")
    assert flaws(browser) == []


def test_axe_finds_nothing_on_the_page_of_held_rows(browser: Chrome, tmp_path: Path) -> None:
    pl.DataFrame({"late": np.random.default_rng(8).random(4_000) < 0.2}).write_parquet(tmp_path / "flights.parquet")
    hf.hold_back(tmp_path / "flights.parquet")[1].close()
    with Running(settings(tmp_path / "flights.held.holdfast", dataset={"queries": None})) as held:
        sign_in(browser, held)
        browser.find_element(By.PARTIAL_LINK_TEXT, "flights").click()
        wait(browser, lambda b: "that all answers hold at once" in text(b, ".facts"))
        fill(browser, query="late", guess="0.2")
        press(browser, "Check")
        wait(browser, lambda b: "CHECK SO FAR 1" in " ".join(text(b, "#facts").upper().split()))
        wait(browser, lambda b: "late" in text(b, "#recent"))
        assert flaws(browser) == []


def test_axe_is_run_and_would_find_something(browser: Chrome, server: Running) -> None:
    browser.get(f"{server.url}/sign-in")
    browser.execute_script("document.querySelector('label').remove()")
    assert any(one.startswith("label") for one in flaws(browser))


_KEEP = """
window.said = [];
new MutationObserver(() => window.said.push(arguments[0].textContent)).observe(arguments[0], {childList: true});
"""


def test_the_same_question_is_offered_elsewhere_and_can_be_copied(browser: Chrome, server: Running) -> None:
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights?kind=mean&query=distance+%3E+700")
    press(browser, "Ask")
    wait(browser, lambda b: "rows read" in text(b, "#result") or "asked before" in text(b, "#result"))
    browser.find_element(By.CSS_SELECTOR, ".elsewhere summary").click()
    shown = text(browser, ".elsewhere")
    assert "s.mean('distance > 700')" in shown
    assert "SELECT COUNT_IF(distance > 700) FROM flights" in shown
    copy = browser.find_element(By.CSS_SELECTOR, ".elsewhere .copy")
    assert copy.text == "Copy"
    browser.execute_script(_KEEP, copy)  # it says so for two seconds, in which a busy machine may not look
    copy.click()
    wait(browser, lambda b: {"Copied", "Selected"} & set(b.execute_script("return window.said")))
    assert "import holdfast as hf" in browser.execute_script("return getSelection().toString()")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_page_can_be_read_in_either_light(browser: Chrome, server: Running, scheme: str) -> None:
    media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    sign_in(browser, server, admin=True, name="admin")
    for page in ("/", "/datasets/flights", "/datasets/flights/history", "/plan", "/admin", "/nothing-here"):
        browser.get(server.url + page)
        assert browser.execute_script(_CONTRAST) == [], page
        is_sound(browser)


def test_the_contrast_check_finds_pale_grey(browser: Chrome, server: Running) -> None:
    browser.get(f"{server.url}/sign-in")
    browser.execute_script(
        "document.querySelector('h1').setAttribute('class', 'x');"
        "document.querySelector('h1').style.color = 'rgb(200, 200, 200)'"
    )
    assert len(browser.execute_script(_CONTRAST)) == 1


def test_without_scripts_the_form_still_asks(browser: Chrome, server: Running) -> None:
    browser.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    sign_in(browser, server)
    browser.get(f"{server.url}/datasets/flights")
    fill(browser, query="distance > 1000")
    browser.find_element(By.CSS_SELECTOR, "#ask button").send_keys(Keys.ENTER)
    wait(browser, lambda b: text(b, "h1") == "Answer")
    assert "share of distance > 1000" in text(browser, "article")
    browser.get(f"{server.url}/datasets/flights")
    fill(browser, query="dep_delay", kind="quantile")
    press(browser, "Show the options of this kind")
    fill(browser, q="0.9", steps="2")  # the bounds of dep_delay are declared
    browser.find_element(By.CSS_SELECTOR, "#ask button").send_keys(Keys.ENTER)
    wait(browser, lambda b: text(b, "h1") == "Answer")
    assert "0.9 quantile of dep_delay within [-60, 600]" in text(browser, "article")


def test_a_team_submits_a_file_to_a_board(browser: Chrome, tmp_path: Path) -> None:
    rng = np.random.default_rng(4)
    truth = rng.integers(0, 3, 600)
    pl.DataFrame({"id": range(600), "label": truth}).write_csv(tmp_path / "labels.csv")
    hf.Board(tmp_path / "labels.csv").close()
    for name, right in (("first.csv", 300), ("second.csv", 450)):
        said = pl.DataFrame({"id": range(600), "prediction": np.where(np.arange(600) < right, truth, -1)})
        said.write_csv(tmp_path / name)
    chosen = settings(tmp_path / "labels.board.holdfast", dataset={"queries": None})
    (board,) = chosen.datasets.values()
    with Running(replace(chosen, datasets={"labels": board})) as server:
        sign_in(browser, server, name="team 7")
        browser.get(f"{server.url}/datasets/labels")
        is_sound(browser)
        for number, name in enumerate(("first.csv", "second.csv"), start=1):
            browser.find_element(By.ID, "file").send_keys(str(tmp_path / name))
            wait(browser, lambda b: b.find_element(By.ID, "option-predictions").get_attribute("value"))
            fill(browser, name=name)
            press(browser, "Submit")
            wait(browser, lambda b, name=name: f"accuracy of {name}" in text(b, "#result"))
            wait(browser, lambda b, name=name: name in text(b, "#standings"))
            assert "labels were drawn anew" in text(browser, "#result")
            assert len(browser.find_elements(By.CSS_SELECTOR, "#standings tbody tr")) == number
            browser.execute_script("document.getElementById('option-predictions').value = ''")
        assert "second.csv" in text(browser, "#standings tbody tr")
        fill(browser, predictions="id,prediction\n1,2")
        press(browser, "Submit")
        wait(browser, lambda b: "599 are missing" in text(b, "#result"))
        assert flaws(browser) == []
        is_sound(browser)
