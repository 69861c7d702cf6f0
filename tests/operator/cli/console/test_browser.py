"""The console in Chromium: live changes, keyboard, small screens, and nothing that the page's policy forbids.

Needs Debian's `chromium` and the extra `browser`.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
from tests.operator.cli.console.cluster_objects import TRAFFIC, condition, signals, typical, with_status
from tests.operator.cli.console.running import apply, apply_cluster, running_console, until_shown
from tests.patience import PATIENCE_SECONDS

from partita_devtools.api_server.process import EmbeddedApiServer, start_api_server
from partita_operator.kube.client import KubernetesClient
from partita_operator.kube.connection import load_config

playwright = pytest.importorskip("playwright.async_api", reason="no browser: install partita[browser]")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: install Debian's chromium")

SESSION = "/sessions/default/traffic"
PATHS = ("/", SESSION, f"{SESSION}/plans/traffic-2", "/pools/slow", "/elsewhere")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedApiServer]:
    """An API server with a session and its plans, as in `typical`, and a second session."""
    server = start_api_server(tmp_path_factory.mktemp("browser"), report=print, dies_with_parent=True)
    asyncio.run(_fill(server))
    yield server
    server.stop()


async def _fill(server: EmbeddedApiServer) -> None:
    async with KubernetesClient(await load_config(server.kubeconfig)) as client:
        await apply_cluster(client, typical())
        await apply(client, waiting("The first message."))


@pytest.fixture
async def client(server: EmbeddedApiServer) -> AsyncIterator[KubernetesClient]:
    """Changes objects. The second session is afterwards as it was."""
    async with KubernetesClient(await load_config(server.kubeconfig)) as client:
        yield client
        await apply(client, waiting("The first message."))


@pytest.fixture
async def console(server: EmbeddedApiServer) -> AsyncIterator[httpx.AsyncClient]:
    async with running_console(server.kubeconfig) as console:
        await until_shown(console, "/", "traffic")
        yield console


@pytest.fixture
async def browser() -> AsyncIterator[Any]:
    async with playwright.async_playwright() as started:
        browser = await started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


def waiting(message: str) -> Any:
    """A session without a plan, with this message."""
    built = replace(TRAFFIC, name="waiting").build()
    return with_status(built, conditions=(condition("Ready", "False", "Profiling", message),), signals=signals())


async def opened(browser: Any, console: httpx.AsyncClient, path: str, **options: Any) -> Any:
    """A tab with the page."""
    context = await browser.new_context(base_url=str(console.base_url), **options)
    page = await context.new_page()
    page.set_default_timeout(1000 * PATIENCE_SECONDS)
    await page.goto(path)
    return page


def complaints_of(page: Any) -> list[str]:
    """What the browser says from now on: errors, what the policy forbids, and dialogs of scripts."""
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(dialog.message))
    return complaints


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1366])
async def test_pages_fit_and_break_no_policy(browser: Any, console: httpx.AsyncClient, scheme: str, width: int) -> None:
    for path in PATHS:
        page = await opened(
            browser, console, "/static/console.css", color_scheme=scheme, viewport={"width": width, "height": 800}
        )
        complaints = complaints_of(page)
        await page.goto(path)
        await page.wait_for_selector("h1")

        assert await page.evaluate("document.documentElement.scrollWidth") <= width, path
        assert [text for text in complaints if "404" not in text] == []
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (sum(map(int, dark.removeprefix("rgb(").removesuffix(")").split(","))) < 200) == (scheme == "dark")
        await page.context.close()


async def test_an_open_page_follows_the_cluster_and_keeps_the_focus(
    browser: Any, console: httpx.AsyncClient, client: KubernetesClient
) -> None:
    page = await opened(browser, console, "/sessions/default/waiting")
    await page.wait_for_selector("text=The first message.")
    region = page.locator("#conditions .scroll")
    await region.focus()
    await page.evaluate("window.kept = true")

    await apply(client, waiting("The second message. <img src=x onerror=alert(1)>"))

    await page.wait_for_selector("text=The second message. <img")
    assert await page.evaluate("window.kept"), "the page is not loaded again"
    assert await region.evaluate("region => region === document.activeElement")


async def test_parts_that_come_and_go_are_shown(
    browser: Any, console: httpx.AsyncClient, client: KubernetesClient
) -> None:
    page = await opened(browser, console, "/sessions/default/waiting")
    assert await page.locator("#autoscaler").count() == 0
    await page.evaluate("window.kept = true")

    scaling = signals(recommendation="One more replica.")
    changed = waiting("The first message.")
    await apply(client, changed.model_copy(update={"status": changed.status.model_copy(update={"signals": scaling})}))

    await page.wait_for_selector("text=One more replica.")
    assert await page.evaluate("window.kept")


async def test_the_keyboard_suffices(browser: Any, console: httpx.AsyncClient) -> None:
    page = await opened(browser, console, "/")
    await page.keyboard.press("Tab")
    assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
    for _ in range(100):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.getAttribute('href')") == SESSION:
            break
    outline = await page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert outline == "solid", "the focus is visible"
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**{SESSION}")


async def test_a_search_filters_sessions(browser: Any, console: httpx.AsyncClient) -> None:
    page = await opened(browser, console, "/")
    await page.get_by_label("Search").fill("wait")
    await page.wait_for_selector("text=1 of 2 sessions")

    assert "q=wait" in page.url
    assert await page.locator("#session-rows tbody tr").count() == 1
    assert await page.get_by_label("Search").evaluate("input => input === document.activeElement")


async def test_pages_work_without_scripts(browser: Any, console: httpx.AsyncClient) -> None:
    page = await opened(browser, console, "/", java_script_enabled=False)
    assert not await page.locator("[data-search]").is_visible()
    await page.get_by_role("link", name="in progress").click()
    assert await page.locator("#session-rows tbody tr").count() == 1
    await page.get_by_role("link", name="default/waiting").click()
    assert await page.locator("h1").inner_text() == "default/waiting"


async def test_every_table_and_part_has_a_name(browser: Any, console: httpx.AsyncClient) -> None:
    for path in PATHS:
        page = await opened(browser, console, path)
        assert await page.locator("h1").count() == 1
        assert await page.locator("table:not(:has(caption))").count() == 0
        assert await page.locator("section:not([aria-labelledby])").count() == 0
        assert await page.locator("th:not([scope])").count() == 0
        names = await page.locator("[id]").evaluate_all("elements => elements.map(element => element.id)")
        assert len(names) == len(set(names)), "identifiers are unique"
        await page.context.close()


async def test_a_console_that_has_ended_is_noticed(browser: Any, server: EmbeddedApiServer) -> None:
    async with running_console(server.kubeconfig) as console:
        await until_shown(console, "/", "traffic")
        page = await opened(browser, console, "/")
        await page.wait_for_selector("text=2 of 2 sessions")

    await page.wait_for_selector("text=The console does not answer")
    assert await page.locator("text=2 of 2 sessions").count() == 1
