"""Each view, as an operator and an engineer use it."""

import csv
import json
import re

import pytest
from playwright.sync_api import Page, expect

from policies.outcomes.store import TOO_LARGE
from tests.browser.conftest import Watch, axe, opened, picture
from tests.browser.serving import Service, log_of, serving
from tests.misbehaving_server import answering, http

COUNTS = re.compile(r" ([0-9,]+)(?=;|$)", re.MULTILINE)


def test_an_empty_service_says_what_to_do_first_and_then_shows_it(
    page: Page, watch: Watch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path_factory.mktemp("empty") / "store") as service:
        opened(page, service, "/")
        expect(page.get_by_role("heading", name="Nothing was governed yet")).to_be_visible()
        page.get_by_role("button", name="Copy").click()
        expect(page.get_by_role("button", name="Copied")).to_be_visible()
        line = page.evaluate("navigator.clipboard.readText()")
        assert f"{service.url}/results?session_id=demo" in line
        assert axe(page) == []
        service.handle("".join(f"{n}\n" for n in range(20_000)))
        expect(page.get_by_role("heading", name="Overview")).to_be_visible()
        expect(page.locator(".figure strong").first).to_have_text(re.compile(r"^\d+(\.\d)?K tokens$"))


def test_the_overview_sums_up_a_week_and_filters_by_what_is_clicked(
    page: Page, watch: Watch, busy: Service
) -> None:
    busy.handle(log_of(4000), session_id="agent-7", tool_name="execute_shell")
    opened(page, busy, "/?range=7%20days")
    cards = page.locator(".card")
    expect(cards.filter(has_text="Newest entries").locator("tbody tr")).to_have_count(25)
    expect(cards.filter(has_text="By tool").locator("tbody tr")).to_have_count(6)
    expect(cards.filter(has_text="By outcome")).to_contain_text("truncate")
    expect(cards.filter(has_text="Extraction")).to_contain_text("no model answered in time")
    expect(cards.filter(has_text="Largest results").locator("tbody tr")).to_have_count(8)
    types = busy.http.get("/accounting/summary?group_by=type&since=0").json()
    assert types["total"]["entries"] >= 200_000
    picture(page, "overview")
    assert axe(page) == []
    page.get_by_role("link", name="web_fetch").first.click()
    expect(page.locator(".chip")).to_have_text("web_fetch ✕")
    expect(cards.filter(has_text="By tool").locator("tbody tr")).to_have_count(1)
    page.get_by_role("link", name="24 h").click()
    expect(page.get_by_label("Time range").locator("[aria-current]")).to_have_text("24 h")
    page.locator(".chip").click()
    expect(cards.filter(has_text="By tool").locator("tbody tr")).to_have_count(6)


def test_the_overview_says_which_tools_are_asked_back_and_where_a_cap_does_not_pay(
    page: Page, watch: Watch, service: Service, log: str
) -> None:
    text = log_of(400)
    handles = [
        service.handle(text, session_id=f"asked-{number}", tool_name="asked_tool") for number in range(2)
    ]
    service.handle(text, session_id="kept", tool_name="kept_tool")
    for handle in handles:
        assert service.http.get(f"/results/{handle}/content?accounted=true").status_code == 200
    opened(page, service, "/")
    tools = page.locator(".card", has_text="By tool").locator("tbody tr")
    asked, kept = tools.filter(has_text="asked_tool"), tools.filter(has_text="kept_tool")
    expect(asked).to_contain_text("1.0 ×")
    expect(asked).to_contain_text("cap does not pay")
    expect(kept).to_contain_text("0.0 ×")
    expect(kept).not_to_contain_text("cap does not pay")
    assert axe(page) == []


def test_tokens_of_each_tool_over_time_have_a_colour_and_a_link(
    page: Page, watch: Watch, busy: Service
) -> None:
    opened(page, busy, "/?range=7%20days")
    chart = page.locator(".card", has=page.get_by_role("heading", name="Tokens of each tool"))
    names = chart.locator(".legend a")
    expect(names).to_have_count(6)
    swatches = chart.locator(".legend .swatch").evaluate_all(
        "all => all.map((one) => getComputedStyle(one).backgroundColor)"
    )
    assert len(set(swatches)) == len(swatches) == 6
    expect(names.first).to_have_text("execute_shell")
    page.get_by_role("link", name="Read by the model").click()
    expect(page.get_by_role("img", name="Tokens of each tool (read by the model), by hour")).to_be_visible()
    table = chart.locator(".unseen tbody tr")
    expect(table).to_have_count(7 * 24 + 1)
    told = [int(number.replace(",", "")) for row in table.all_inner_texts() for number in COUNTS.findall(row)]
    since = page.evaluate("Math.floor((Date.now() - 168 * 3600000) / 3600000) * 3600000")
    sums = busy.http.get(f"/accounting/summary?type=tool&since={since}").json()["total"]
    assert sum(told) == pytest.approx(sums["tokens_out"], rel=0.01)
    chart.get_by_role("link", name="web_fetch").click()
    expect(page.locator(".chip")).to_have_text("web_fetch ✕")
    expect(names).to_have_count(1)
    assert "tokens=read" in page.url


def test_a_refused_refresh_is_shown_and_then_the_whole_view_again(
    page: Page, watch: Watch, service: Service, log: str
) -> None:
    watch.may_fail = True
    page.clock.install()
    opened(page, service, "/")
    expect(page.locator("#read time")).to_be_visible()
    refusal = json.dumps({"status": 429, "code": "too_many_requests", "detail": "Too many requests."})
    page.route(
        "**/accounting/summary*",
        lambda route: route.fulfill(status=429, content_type="application/problem+json", body=refusal),
        times=1,
    )
    page.clock.fast_forward(10_000)
    expect(page.get_by_role("heading", name="That did not work")).to_be_visible()
    page.clock.fast_forward(10_000)
    expect(page.locator(".card", has_text="Newest entries")).to_be_visible()
    expect(page.locator(".card", has_text="By tool")).to_be_visible()


def test_the_overview_is_live_until_it_is_paused_or_hidden(
    page: Page, watch: Watch, service: Service, log: str
) -> None:
    page.clock.install()
    opened(page, service, "/")
    rows = page.locator(".card", has_text="Newest entries").locator("tbody tr")
    expect(page.locator("#read time")).to_be_visible()

    def asked() -> list[str]:
        return [url.partition("?")[0] for url in watch.requests if "/accounting/" in url]

    before = len(asked())
    service.send("short", tool_name="first_tool")
    page.clock.fast_forward(10_000)
    expect(rows.first).to_contain_text("first_tool")
    assert [name.rpartition("/")[2] for name in asked()[before:]] == ["summary", "entries"]
    page.clock.fast_forward(60_000)
    expect(page.locator(".card", has_text="By tool")).to_contain_text("first_tool")
    page.get_by_role("button", name="Live").click()
    expect(page.get_by_role("button", name="Paused")).to_have_attribute("aria-pressed", "false")
    service.send("short", tool_name="second_tool")
    before = len(asked())
    page.clock.fast_forward(60_000)
    assert len(asked()) == before
    page.get_by_role("button", name="Paused").click()
    expect(rows.first).to_contain_text("second_tool")

    def hide(is_hidden: bool) -> None:
        page.evaluate(
            "is => { Object.defineProperty(document, 'hidden', {value: is, configurable: true});"
            " document.dispatchEvent(new Event('visibilitychange')); }",
            is_hidden,
        )

    expect(page.locator(".card", has_text="By tool")).to_contain_text("second_tool")
    hide(True)
    service.send("short", tool_name="third_tool")
    before = len(asked())
    page.clock.fast_forward(60_000)
    assert len(asked()) == before
    hide(False)
    expect(rows.first).to_contain_text("third_tool")


def test_a_result_is_read_line_by_line_searched_and_asked(
    page: Page, watch: Watch, service: Service, log: str
) -> None:
    opened(page, service, f"/results/{log}")
    lines = page.get_by_role("region", name="Lines of the result")
    expect(lines).to_contain_text("item 1")
    page.get_by_label("Go to line").fill("4,711")
    page.keyboard.press("Enter")
    expect(lines.locator(".line.at")).to_contain_text("item 4711")
    page.get_by_label("Search lines").fill("FAILED in \\d+ ms")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Matching lines")).to_contain_text("5 matching lines")
    expect(lines.locator(".line.at mark")).to_have_text(re.compile("FAILED in [0-9]+ ms"))
    page.get_by_role("region", name="Matching lines").get_by_role("button").nth(3).click()
    expect(lines.locator(".line.at")).to_contain_text("item 4000")
    watch.may_fail = True
    page.get_by_label("Search lines").fill("(")
    page.keyboard.press("Enter")
    expect(page.locator(".hits .warning")).to_be_visible()
    given = page.locator(".given details")
    expect(given).to_have_count(2)
    expect(given.first).to_contain_text(TOO_LARGE)
    page.get_by_label("Search lines").fill("500 FAILED")
    page.keyboard.press("Enter")
    expect(lines.locator(".line.at mark")).to_have_text("500 FAILED")
    page.get_by_label("Question").fill("Which requests FAILED?")
    page.get_by_label("How it is answered").select_option("full-chunked")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.get_by_label("Answer", exact=True)).to_contain_text("FAILED")
    expect(page.get_by_role("status").first).to_contain_text("full-chunked")
    # The model was not given the answer, and its session does not pay for it.
    expect(given).to_have_count(2)
    answer = service.http.get(f"/results/{log}/given").json()["given"][1]["text"]
    given.nth(1).locator("summary").click()
    assert (
        given.nth(1).locator("pre").inner_text() == answer.rstrip("\n")
        or answer in given.nth(1).locator("pre").text_content()
    )
    asked = service.http.get("/accounting/entries?type=extract&order=newest&limit=1").json()["entries"][0]
    assert (asked["session_id"], asked["client"], asked["tokens_saved"]) == ("dashboard", "dashboard", 0)
    session = log.partition("/")[0].removeprefix("session-")
    handed = {"session_id": session, "tool_name": "write_file", "arguments": f"spillgate://{log}"}
    assert service.http.post("/arguments", json=handed).json()["refusal"] is None
    opened(page, service, f"/results/{log}")
    expect(page.locator(".given")).to_contain_text("Handed on to write_file · ")
    picture(page, "result")
    assert axe(page) == []
    # Looking at it was no reading back.
    entries = service.http.get("/accounting/entries", params={"handle": log}).json()["entries"]
    assert [entry["type"] for entry in entries] == ["tool", "extract", "pass_on"]
    # What people asked has a page of its own, which leads to the result.
    opened(page, service, "/sessions/dashboard")
    expect(page.locator("main")).to_contain_text("What people asked on this page.")
    page.locator(f'.timeline a[href="#/results/{log}"]').first.click()
    expect(page.get_by_role("region", name="Lines of the result")).to_contain_text("item 1")


def test_a_result_is_downloaded_whole_and_deleted(page: Page, watch: Watch, service: Service) -> None:
    content = log_of(3000)
    handle = service.handle(content, session_id="gone")
    opened(page, service, f"/results/{handle}")
    with page.expect_download() as told:
        page.get_by_role("button", name="Download").click()
    assert told.value.path().read_bytes() == content
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Keep it").click()
    assert service.http.get(f"/results/{handle}").status_code == 200
    page.get_by_role("button", name="Delete").click()
    page.get_by_role("dialog").get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_role("heading", name="Overview")).to_be_visible()
    assert service.http.get(f"/results/{handle}").status_code == 404


def test_rows_are_a_table_and_a_query_chooses_among_them(
    page: Page, watch: Watch, service: Service, orders: str
) -> None:
    opened(page, service, f"/results/{orders}")
    expect(page.get_by_role("tab", name="Table")).to_have_attribute("aria-selected", "true")
    rows = page.get_by_role("region", name="Rows")
    expect(rows.locator("tbody tr")).to_have_count(100)
    page.get_by_role("button", name="Next").click()
    expect(rows.locator("tbody tr").first).to_contain_text("101")
    page.get_by_label("Query").fill("[?city == 'Rome' && amount > `990`].{order: order, amount: amount}")
    page.keyboard.press("Enter")
    expect(rows.locator("tbody tr")).to_have_count(5)
    expect(rows.locator("tbody tr").first).to_contain_text("992.5")
    page.get_by_label("Query").fill(
        "SELECT city, count(*) AS n FROM data GROUP BY city ORDER BY n DESC, city"
    )
    page.keyboard.press("Enter")
    expect(rows.locator("tbody tr")).to_have_count(3)
    expect(rows.locator("tbody tr").first).to_contain_text("Lima")
    expect(page.get_by_text("Rows 1 to 3 of 3 (csv)")).to_be_visible()
    assert axe(page) == []
    watch.may_fail = True
    page.get_by_label("Query").fill("SELECT id FORM data")
    page.keyboard.press("Enter")
    expect(page.locator(".warning")).to_be_visible()


def test_a_query_has_a_link_and_its_rows_are_downloaded_as_csv(
    page: Page, watch: Watch, service: Service, orders: str
) -> None:
    opened(page, service, f"/results/{orders}")
    page.get_by_label("Query").fill("SELECT city, '=' || city AS made, amount FROM data WHERE amount > 500")
    page.get_by_role("button", name="Query").click()
    expect(page.get_by_text("Rows 1 to 100 of ")).to_be_visible()
    page.get_by_role("button", name="Copy link").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    link = page.evaluate("navigator.clipboard.readText()")
    with page.expect_download() as told:
        page.get_by_role("button", name="CSV").click()
    assert told.value.suggested_filename == f"{orders.partition('/')[2]}.csv"
    names, *rows = csv.reader(told.value.path().read_text().splitlines())
    assert names == ["city", "made", "amount"]
    amounts = [n * 7.5 % 1000 for n in range(1, 2001)]
    assert [float(row[2]) for row in rows] == [amount for amount in amounts if amount > 500]
    assert all(row[1] == f"'={row[0]}" for row in rows)
    other = page.context.new_page()
    other.goto(link)
    expect(other.get_by_label("Query")).to_have_value(re.compile("amount > 500$"))
    expect(other.get_by_text(f"Rows 1 to 100 of {len(rows)} (csv)")).to_be_visible()
    assert service.http.get("/accounting/entries?type=read&session_id=views").json()["entries"] == []
    other.close()
    # What cannot be CSV is told.
    watch.may_fail = True
    page.get_by_label("Query").fill("length(@)")
    page.get_by_role("button", name="CSV").click()
    expect(page.locator("#panel .warning")).to_contain_text("Only rows can be CSV")


@pytest.mark.parametrize(
    ("content", "tab"),
    [
        (json.dumps([[n, "x" * 20] for n in range(900)]), "Tree"),
        ("".join(json.dumps({"n": n, "name": "x" * 20}) + "\n" for n in range(900)), "Table"),
        ("".join(f"{n}\tname {n}\tx\n" for n in range(3000)), "Table"),
        # It begins as JSON, and is none.
        ('{"a": [' + "1, " * 9000 + "…", "Lines"),
        ("A sentence of a text.\n" * 900, "Lines"),
    ],
)
def test_a_result_opens_as_what_it_is(
    page: Page, watch: Watch, service: Service, content: str, tab: str
) -> None:
    opened(page, service, f"/results/{service.handle(content, session_id='kinds')}")
    expect(page.get_by_role("tab", name=tab)).to_have_attribute("aria-selected", "true")
    names = {"Tree": "The data as a tree", "Table": "Rows", "Lines": "Lines of the result"}
    expect(page.get_by_role("region", name=names[tab])).to_be_visible()


def test_json_is_a_tree_with_numbers_as_they_were_written(page: Page, watch: Watch, service: Service) -> None:
    data = {"servers": [{"name": f"web-{n}", "id": 12345678901234567890 + n} for n in range(900)], "ok": True}
    handle = service.handle(json.dumps(data), tool_name="list_servers")
    opened(page, service, f"/results/{handle}")
    expect(page.get_by_role("tab", name="Tree")).to_have_attribute("aria-selected", "true")
    tree = page.get_by_role("region", name="The data as a tree")
    tree.get_by_role("button", name="servers").click()
    tree.get_by_role("button", name="0:", exact=False).first.click()
    expect(tree).to_contain_text("12345678901234567890")
    tree.get_by_role("button", name="… 800 more").click()
    expect(tree.get_by_role("button", name="199:", exact=False)).to_be_visible()
    page.get_by_role("tab", name="Tree").press("ArrowLeft")
    expect(page.get_by_role("tab", name="Lines")).to_be_focused()
    expect(page.get_by_role("region", name="Lines of the result")).to_contain_text('"name": "web-0"')
    assert page.url.endswith("?view=lines")
    page.reload()
    expect(page.get_by_role("region", name="Lines of the result")).to_contain_text('"name": "web-0"')


def test_a_session_shows_its_budget_and_questions_below_their_result(
    page: Page, watch: Watch, service: Service, log: str
) -> None:
    report = {"used_tokens": 41_200, "turn": 7}
    assert service.http.post("/sessions/views/usage", json=report).status_code == 200
    opened(page, service, "/sessions")
    page.get_by_role("link", name="views").click()
    expect(page.get_by_role("heading", name="views")).to_be_visible()
    expect(
        page.get_by_role("img", name=re.compile("41,200 used and [0-9,]+ reserved of 106,496 tokens"))
    ).to_be_visible()
    of_log = page.locator(".timeline > li", has=page.locator(f'a[href="#/results/{log}"]'))
    expect(of_log.locator("li").first).to_contain_text("question")
    assert axe(page) == []
    of_log.get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Lines of the result")).to_contain_text("item 1")


def test_sessions_stand_by_their_last_use_with_client_project_and_last_command(
    page: Page, watch: Watch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with serving(tmp_path_factory.mktemp("listed") / "store") as service:
        commands = [
            ("zebra", "claude-code", {"command": "npm test -- --coverage"}),
            ("apple", "codex", {"command": "rg -n 'TODO' src"}),
            ("mango", "opencode", {"pattern": "<b>bold</b>\u202e", "path": "/work/shop/src"}),
        ]
        for session, door, arguments in commands:
            fields = {"door": door, "project": "shop", "tool_arguments": json.dumps(arguments)}
            handle = service.handle(log_of(2000), session_id=session, tool_name="Bash", **fields)
        service.send("small", session_id="zebra", tool_name="Read", door="claude-code", project="shop")
        call = {"handle": handle, "pattern": "FAILED"}
        sent = {"session_id": "mango", "name": "tool_output_grep", "arguments": call}
        assert service.http.post("/tools/call", json=sent).json()["is_error"] is False
        asked = {"handle": handle, "extract": "Which requests FAILED?"}
        assert service.http.post("/extract", json=asked).status_code == 200
        page.goto(service.url)
        expect(page).to_have_url(f"{service.url}/ui")
        newest = page.locator(".card", has_text="Newest entries")
        expect(newest).to_contain_text("npm test -- --coverage")
        page.get_by_role("link", name="Sessions").click()
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(0)).to_contain_text("mango")
        expect(rows.nth(1)).to_contain_text("zebra")
        for cell in ("claude-code", "shop", "npm test -- --coverage"):
            expect(rows.nth(1)).to_contain_text(cell)
        expect(rows.nth(2)).to_contain_text("rg -n 'TODO' src")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert axe(page) == []
        page.get_by_role("link", name="mango").click()
        timeline = page.locator(".timeline > li")
        expect(timeline.first).to_contain_text("<b>bold</b>U+202E")
        expect(timeline.locator("li").first).to_contain_text('pattern = "FAILED"')
        expect(timeline.locator("li").last).to_contain_text("Which requests FAILED?")
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            assert axe(page) == []
        timeline.first.get_by_role("link").first.click()
        expect(page.locator(".call")).to_contain_text("<b>bold</b>U+202E")
        expect(page.locator(".given")).to_contain_text("Which requests FAILED?")


def test_live_is_grey_while_the_service_does_not_answer(
    page: Page, watch: Watch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    def dot() -> str:
        return str(page.evaluate("getComputedStyle(document.querySelector('#live .dot')).backgroundColor"))

    with serving(tmp_path_factory.mktemp("grey") / "store") as service:
        service.handle(log_of(2000))
        opened(page, service, "/sessions")
        live = page.get_by_role("button", name="Live")
        expect(page.locator("tbody tr")).to_have_count(1)
        green = dot()
        watch.may_fail = True
        service.stop()
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        expect(live).to_have_class("away")
        expect(live).to_have_attribute("title", "The service does not answer")
        assert dot() != green
        service.start()
        expect(live).not_to_have_class("away")
        assert dot() == green


def test_the_policy_says_who_set_what_and_what_another_would_do(
    page: Page, watch: Watch, service: Service, log: str
) -> None:
    for number in range(20):
        service.send("word " * 1500, tool_name="read_file", session_id=f"s{number}")
    opened(page, service, "/policy")
    page.get_by_label("Tool", exact=True).fill("read_file")
    page.get_by_role("button", name="Show").click()
    expect(page.locator("tr", has_text="max_bytes").first).to_contain_text("12288")
    expect(page.locator("tr", has_text="max_bytes").first).to_contain_text("line")
    page.get_by_label("Cap in bytes").fill("4000")
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_role("status")).to_contain_text("20 results of 20 would differ")
    expect(page.get_by_role("status")).to_contain_text("fewer")
    assert axe(page) == []


def test_health_shows_readiness_quotas_models_and_masked_settings(
    page: Page, watch: Watch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("health")
    # The model is left alone for a minute, however long the browser takes.
    busy = http("429 Too Many Requests\r\nRetry-After: 9999", b"{}")
    settings = {"llm_models": "far", "llm_api_key": "sk-secret"}
    with answering(busy) as url, serving(place / "store", llm_base_url=f"{url}/v1", **settings) as service:
        handle = service.handle("line of text\n" * 2000)
        asked = {"handle": handle, "extract": "text", "mode": "full-chunked", "deadline_ms": 120_000}
        service.http.post("/extract", json=asked)
        opened(page, service, "/health")
        cards = page.locator(".card")
        expect(cards.filter(has_text="Readiness")).to_contain_text("Ready")
        expect(cards.filter(has_text="Readiness")).to_contain_text(f"listening at {service.url}")
        expect(cards.filter(has_text="Kept here")).to_contain_text("2.0 GiB")
        expect(page.locator('.card:has(h2:text-is("Models"))')).to_contain_text("left alone for")
        expect(cards.filter(has_text="Settings")).to_contain_text("SPILLGATE_LLM_API_KEY")
        expect(cards.filter(has_text="Settings")).to_contain_text("**********")
        assert "sk-secret" not in page.content()
        assert axe(page) == []


def test_times_are_in_the_readers_zone(page: Page, watch: Watch, service: Service, log: str) -> None:
    opened(page, service, f"/results/{log}")
    stored = service.http.get(f"/results/{log}").json()["stored_at"]
    clock = page.evaluate(
        "ms => new Intl.DateTimeFormat('en-GB', {hour: '2-digit', minute: '2-digit', second: '2-digit', "
        "timeZone: 'Europe/Berlin'}).format(new Date(ms))",
        stored,
    )
    expect(page.locator(".facts time").first).to_contain_text(clock)
