"""Looks at a page of `farside report` in headless Chromium: that it opens, draws, tells what is under the mouse, zooms.

    look.py PAGE CHROMIUM SCREENSHOTS RUNS

Fails with what is wrong. Screenshots are for people.
"""

import pathlib
import sys

from playwright.sync_api import sync_playwright

# Milliseconds until all charts are drawn.
FIRST_PICTURE_MS = 2000


def check(so, what):
    if not so:
        sys.exit(f"look.py: {what}")


def zoom(page, run):
    """Which part of its time a chart shows, in percent."""
    return page.evaluate(
        f"""() => {{
            const zoom = echarts.getInstanceByDom(document.getElementById('chart-{run}')).getOption().dataZoom[0];
            return [zoom.start, zoom.end];
        }}"""
    )


def cell(page, run):
    """Where the middle of a cell of the heat map is on the screen, and the name of its allocation."""
    return page.evaluate(
        f"""() => {{
            const place = document.getElementById('chart-{run}'), chart = echarts.getInstanceByDom(place);
            const data = chart.getOption().series[0].data, [x, y] = data[Math.floor(data.length / 2)];
            const [left, top] = chart.convertToPixel({{ seriesIndex: 0 }}, [x, y]), box = place.getBoundingClientRect();
            return {{ x: box.left + left, y: box.top + top, name: runs[{run}].heat.rows[y].name }};
        }}"""
    )


def look(page, run, into):
    chart = page.locator(f"#chart-{run}")
    chart.scroll_into_view_if_needed()
    place = cell(page, run)
    page.mouse.move(place["x"], place["y"])
    page.wait_for_timeout(300)
    told = chart.inner_text()
    check(place["name"] in told and "pages came" in told, f"run {run}: no word about the cell under the mouse: {told!r}")
    page.screenshot(path=into / f"hover-{run}.png")
    check(zoom(page, run) == [0, 100], f"run {run}: it does not begin with all of it: {zoom(page, run)}")
    page.mouse.wheel(0, -400)
    page.wait_for_timeout(300)
    start, end = zoom(page, run)
    check(end - start < 99, f"run {run}: the wheel does not zoom: {start} to {end}")
    page.screenshot(path=into / f"zoom-{run}.png")
    return start, end


def main():
    path, chromium, into, runs = sys.argv[1:]
    into, runs = pathlib.Path(into), int(runs)
    into.mkdir(parents=True, exist_ok=True)
    complaints = []
    with sync_playwright() as playwright:
        # As root, as in containers, Chromium has no sandbox; the page is ours and asks nobody for anything.
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1500, "height": 1000})
        page.on("console", lambda it: complaints.append(it.text) if it.type in ("error", "warning") else None)
        page.on("pageerror", lambda it: complaints.append(str(it)))
        page.on("request", lambda it: None if it.url.startswith("file:") else complaints.append(f"it asks for {it.url}"))
        page.goto(pathlib.Path(path).absolute().as_uri())
        page.wait_for_function("window.firstPicture !== undefined", timeout=30_000)
        first = page.evaluate("window.firstPicture")
        page.wait_for_timeout(500)
        page.screenshot(path=into / "page.png", full_page=True)
        check(page.locator("canvas").count() == runs, f"{page.locator('canvas').count()} charts for {runs} runs")
        check(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"), "it is wider than the window")
        shown = look(page, 0, into)
        if runs > 1:
            check(zoom(page, 1) == list(shown), f"the other run does not zoom along: {zoom(page, 1)}, {shown}")
        page.get_by_role("button", name="where they move").first.click()
        page.wait_for_timeout(300)
        page.screenshot(path=into / "moves.png")
        browser.close()
    check(not complaints, f"the console has {complaints}")
    check(first <= FIRST_PICTURE_MS, f"the first picture took {first:.0f} ms, {FIRST_PICTURE_MS} are allowed")
    print(f"report: first picture after {first:.0f} ms")


main()
