"""A month of teams in PostgreSQL, written by SQL: its size, the time of summaries and of the monthly bill.

The bill is compared with what was written."""

import argparse
import asyncio
import tempfile
import time
from datetime import UTC, datetime

from domain.accounting import DAY_MS, EntryFilter, GroupBy
from domain.ports import Ledger
from storage import open_ledger
from tests.postgres_server import PostgresServer

TOOLS, KEYS, CLIENTS, DOLLARS = 12, 5, 2, 0.002
NOW = int(datetime(2026, 6, 1, 0, 30, tzinfo=UTC).timestamp() * 1000)
FIRST = NOW // DAY_MS - 31
"""May, of which all days but the last are closed."""

# As the service writes them: four of five pass, one in fifty is stored, one in ten is a model call.
_FILL = """
INSERT INTO spillgate.entries (id, tenant, session_id, type, "timestamp", status, tool_name, trigger, outcome,
  model, handle, latency, bytes, tokens_in, tokens_out, tokens_saved, cost_usd, observed_tokens_saved,
  strategy, tool_kind, key, client, stored, asked_back, found_nothing, costs_more, size, rest)
SELECT 'entry-0123456789abcdef-' || {day} || '-' || n, 'team-' || n % {teams}, 'run-' || n / 50 % 5000,
  CASE WHEN n % 10 = 9 THEN 'llm' ELSE 'tool' END,
  {day} * 86400000::bigint + n * (86400000::bigint / {count}),
  CASE WHEN n % 500 = 0 THEN 'failed' ELSE 'ok' END, 'tool_' || n % {tools},
  CASE WHEN n % 50 = 0 THEN 'size_cap' END, CASE WHEN n % 50 = 0 THEN 'store' ELSE 'pass' END,
  CASE WHEN n % 10 = 9 THEN 'a-model' END,
  CASE WHEN n % 50 = 0 THEN 'session-run-' || n / 50 % 5000 || '/file-' || md5({day} || '-' || n)::uuid END,
  n % 900, 2000, n % 9000, 512, n % 500, CASE WHEN n % 10 = 9 THEN {dollars} ELSE 0 END, 0, NULL, NULL,
  'key-' || n % {keys}, CASE WHEN n % {clients} = 0 THEN 'claude-code' ELSE 'codex' END, n % 50 = 0, false,
  false, false, 560,
  '{{"charactersIn":2000,"charactersOut":2000,"provider":"anthropic","tool_call_id":"toolu_'
    || lpad(n::text, 24, '0') || '","turn":' || n % 50 || ',"details":{{"lines":40,"tokens":512}}}}'
FROM generate_series(0, {count} - 1) AS n
"""


async def measure(teams: int, count: int, folder: str | None) -> None:
    with PostgresServer(under=folder, options=["shared_buffers = 512MB", "max_wal_size = 4GB"]) as server:
        times = {"session_retention_seconds": 86_400.0, "entry_retention_seconds": 40 * 86_400.0}
        ledger = await open_ledger(server.url, clock=lambda: NOW, **times)
        began = time.monotonic()
        for day in range(FIRST, NOW // DAY_MS):
            server.sql(f"SELECT spillgate.open_day({day})")
            server.sql(
                _FILL.format(
                    day=day,
                    teams=teams,
                    count=count,
                    tools=TOOLS,
                    keys=KEYS,
                    clients=CLIENTS,
                    dollars=DOLLARS,
                )
            )
        days = NOW // DAY_MS - FIRST
        print(
            f"{days * count:,} entries of {teams} teams in {days} days, "
            f"written in {time.monotonic() - began:.0f} s"
        )
        size = int(server.sql("SELECT pg_database_size('ledger')"))
        print(f"size: {size / 1e9:.2f} GB, {size / days / count:.0f} bytes an entry")
        await bill(ledger, "all days from the entries", days, count)
        began = time.monotonic()
        await ledger.sweep()
        print(f"closing the days: {(time.monotonic() - began) / (days - 1):.2f} s a day")
        server.sql("VACUUM ANALYZE")
        await bill(ledger, "all days but the last from their sums", days, count)
        since = NOW - NOW % DAY_MS
        asked = {
            "30 days of a team by tool, type": (
                EntryFilter("team-0", since=since - 30 * DAY_MS),
                "tool_name type",
            ),
            "7 days of a team by hour": (EntryFilter("team-0", since=since - 7 * DAY_MS), "hour"),
            "24 h of a team by hour": (EntryFilter("team-0", since=since - DAY_MS), "hour"),
            "30 days of a team by session": (EntryFilter("team-0", since=since - 30 * DAY_MS), "session_id"),
        }
        for name, (wanted, keys) in asked.items():
            began = time.monotonic()
            found = await ledger.summary(wanted, *map(GroupBy, keys.split()))
            print(f"{name}: {time.monotonic() - began:.3f} s, {found.total.entries:,} entries")
        began = time.monotonic()
        page = await ledger.entries(EntryFilter("team-0"), 100, None, newest_first=True)
        print(f"the newest 100 entries of a team: {time.monotonic() - began:.3f} s, {len(page.entries)}")
        await ledger.close()


async def bill(ledger: Ledger, name: str, days: int, count: int) -> None:
    began = time.monotonic()
    month = EntryFilter(None, since=FIRST * DAY_MS, until=(FIRST + days) * DAY_MS)
    found = await ledger.summary(month, GroupBy.TENANT, GroupBy.MODEL, GroupBy.KEY)
    took, total = time.monotonic() - began, found.total
    calls = days * len(range(9, count, 10))
    is_equal = total.entries == days * count and abs(total.cost_usd - calls * DOLLARS) < 1e-3
    is_equal &= total.tokens_in == days * sum(n % 9000 for n in range(count)) and not found.gaps
    print(f"bill of the month, {name}: {took:.3f} s, {len(found.rows)} rows, equal: {is_equal}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--teams", type=int, default=40)
    parser.add_argument("--a-day", type=int, default=100_000)
    parser.add_argument("--folder", help="on the disk that is measured")
    options, _ = parser.parse_known_args()
    asyncio.run(measure(options.teams, options.a_day, options.folder or tempfile.gettempdir()))


if __name__ == "__main__":
    main()
