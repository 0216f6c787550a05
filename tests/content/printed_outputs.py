"""Outputs as ordinary programs print them, over invented data, and what `query` yields of them: worked out
from the numbers of which they are made."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple


class Output(NamedTuple):
    """`asked` are queries and their rows, cells of one column alone; "*" asks for the first columns of data.
    `said` and `unsaid` are parts of the message."""

    name: str
    text: str
    asked: Sequence[tuple[str, list[Any]]]
    said: Sequence[str]
    unsaid: Sequence[str]


OUTPUTS: list[Output] = []


def add(
    name: str, text: str, *asked: tuple[str, list[Any]], said: Sequence[str] = (), unsaid: Sequence[str] = ()
) -> None:
    OUTPUTS.append(Output(name, text, asked, said, unsaid))


def table(rows: Sequence[Sequence[object]], aligns: str = "", gap: int = 2) -> str:
    """Columns under the first row; `aligns` has l or r for each."""
    widths = [max(len(str(row[at])) for row in rows) for at in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            str(cell).ljust(width) if align == "l" else str(cell).rjust(width)
            for cell, width, align in zip(row, widths, aligns or "l" * len(widths), strict=True)
        ]
        lines.append((" " * gap).join(cells).rstrip())
    return "\n".join(lines) + "\n"


COUNT = "SELECT count(*) FROM data"
LINES = ("*", ["line", "text"])
rows: Sequence[Sequence[object]]

# docker
rows = [("REPOSITORY", "TAG", "IMAGE ID", "CREATED", "SIZE")] + [
    (
        f"registry.local/team/app-{n}" if n % 7 else "<none>",
        f"v1.{n}" if n % 5 else "<none>",
        f"{n * 7919:012x}",
        f"{n} days ago" if n > 1 else "About an hour ago",
        f"{100 + n}MB",
    )
    for n in range(40)
]
add(
    "docker images",
    table(rows, gap=3),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE tag = '<none>'", [8]),
    ("SELECT \"IMAGE ID\" FROM data WHERE size = '139MB'", [f"{39 * 7919:012x}"]),
    said=["40 rows", "IMAGE ID"],
)
rows = [("CONTAINER ID", "NAME", "CPU %", "MEM USAGE / LIMIT", "MEM %", "NET I/O", "BLOCK I/O", "PIDS")] + [
    (
        f"{n * 104729:012x}",
        f"svc-{n}",
        f"{n / 10:.2f}%",
        f"{n + 1}.5MiB / 1.943GiB",
        f"{n / 100:.2f}%",
        f"{n}kB / 0B",
        "0B / 0B",
        n + 1,
    )
    for n in range(30)
]
add(
    "docker stats",
    table(rows, gap=4),
    (COUNT, [30]),
    ("SELECT sum(pids) FROM data", [465]),
    ("SELECT \"CPU %\" FROM data WHERE name = 'svc-7'", ["0.7"]),
    ("SELECT \"MEM USAGE / LIMIT\" FROM data WHERE name='svc-3'", ["4.5MiB / 1.943GiB"]),
)
rows = [("CONTAINER ID", "IMAGE", "COMMAND", "CREATED", "STATUS", "PORTS", "NAMES")] + [
    (
        f"{n * 99991:012x}",
        "nginx:1.27",
        '"/docker-entrypoint.…"',
        f"{n} hours ago",
        f"Up {n} hours" if n % 4 else f"Exited (0) {n} hours ago",
        "0.0.0.0:80->80/tcp, [::]:80->80/tcp" if n % 3 == 0 else "",
        f"web_{n}",
    )
    for n in range(2, 42)
]
add(
    "docker ps -a",
    table(rows, gap=3),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE ports IS NULL OR ports = ''", [27]),
    ("SELECT names FROM data WHERE status LIKE 'Exited%' ORDER BY 1 LIMIT 1", ["web_12"]),
)
# kubectl
rows = [
    (
        "NAMESPACE",
        "NAME",
        "READY",
        "STATUS",
        "RESTARTS",
        "AGE",
        "IP",
        "NODE",
        "NOMINATED NODE",
        "READINESS GATES",
    )
] + [
    (
        "prod" if n % 2 else "kube-system",
        f"api-{n:05x}-x{n}",
        "1/1" if n % 6 else "0/1",
        "Running" if n % 6 else "CrashLoopBackOff",
        f"{n} ({n}m ago)" if n % 6 == 0 else 0,
        f"{n}d",
        f"10.1.0.{n}" if n % 6 else "<none>",
        f"node-{n % 3}",
        "<none>",
        "<none>",
    )
    for n in range(1, 49)
]
add(
    "kubectl get pods -A -o wide",
    table(rows, gap=3),
    (COUNT, [48]),
    ("SELECT count(*) FROM data WHERE status='CrashLoopBackOff'", [8]),
    ("SELECT restarts FROM data WHERE age = '12d'", ["12 (12m ago)"]),
    ('SELECT "READINESS GATES", count(*) FROM data GROUP BY 1', [("<none>", 48)]),
)
rows = [("LAST SEEN", "TYPE", "REASON", "OBJECT", "MESSAGE")] + [
    (
        f"{n}m",
        "Warning" if n % 3 == 0 else "Normal",
        "BackOff" if n % 3 == 0 else "Pulled",
        f"pod/api-{n}",
        f"Back-off restarting failed container  c{n} in pod api-{n}"
        if n % 3 == 0
        else "Container image already present",
    )
    for n in range(1, 41)
]
add(
    "kubectl get events",
    table(rows, gap=3),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE type='Warning'", [13]),
    (
        "SELECT message FROM data WHERE \"LAST SEEN\"='3m'",
        ["Back-off restarting failed container  c3 in pod api-3"],
    ),
)
rows = [("NAME", "CPU(cores)", "CPU%", "MEMORY(bytes)", "MEMORY%")] + [
    (f"node-{n}", f"{n}m", f"{n}%", f"{n * 10}Mi", f"{n % 7}%") for n in range(1, 50)
]
add(
    "kubectl top nodes",
    table(rows, gap=3),
    (COUNT, [49]),
    ('SELECT sum("CPU%") FROM data', [1225]),
    ("SELECT \"CPU(cores)\" FROM data WHERE name='node-9'", ["9m"]),
)
# systemctl
rows = [("UNIT FILE", "STATE", "PRESET")] + [
    (
        f"service-{n:02}.service",
        ("enabled", "disabled", "static", "masked")[n % 4],
        "enabled" if n % 4 < 2 else "-",
    )
    for n in range(60)
]
add(
    "systemctl list-unit-files",
    table(rows, gap=1).replace("UNIT FILE          ", "UNIT FILE          ") + "\n60 unit files listed.\n",
    (COUNT, [60]),
    ("SELECT count(*) FROM data WHERE state='masked'", [15]),
    said=["60 rows"],
)
rows = [("NEXT", "LEFT", "LAST", "PASSED", "UNIT", "ACTIVATES")] + [
    (
        f"Sun 2026-11-{n + 1:02} 00:00:00 UTC" if n % 5 else "n/a" if n % 2 else "-",
        f"{n}h left" if n % 5 else "-",
        f"Sat 2026-11-{n + 1:02} 00:00:00 UTC" if n % 3 else "-",
        f"{n}h ago" if n % 3 else "-",
        f"job-{n}.timer",
        f"job-{n}.service",
    )
    for n in range(25)
]
add(
    "systemctl list-timers",
    table(rows, gap=1) + "\n25 timers listed.\nPass --all to see loaded but inactive timers, too.\n",
    (COUNT, [25]),
    ("SELECT activates FROM data WHERE unit='job-7.timer'", ["job-7.service"]),
    ("SELECT \"left\" FROM data WHERE unit='job-7.timer'", ["7h left"]),
)
rows = [("  UNIT", "LOAD", "ACTIVE", "SUB", "DESCRIPTION")] + [
    (
        ("● " if n % 10 == 3 else "  ") + f"app@{n}.service",
        "loaded",
        "failed" if n % 10 == 3 else "active",
        "failed" if n % 10 == 3 else "running",
        f"The app number {n}",
    )
    for n in range(40)
]
add(
    "systemctl list-units",
    table(rows, gap=1)
    + "\nLegend: LOAD   → Reflects whether the unit definition was properly loaded.\n        "
    "ACTIVE → The high-level unit activation state, i.e. generalization of SUB.\n        SUB "
    "   → The low-level unit activation state, values depend on unit type.\n\n40 loaded units listed.\n",
    (COUNT, [40]),
    ("SELECT unit FROM data WHERE active='failed' ORDER BY 1 LIMIT 1", ["app@13.service"]),
    ("SELECT description FROM data WHERE unit='app@9.service'", ["The app number 9"]),
)
# ps
head = "UID          PID    PPID  C STIME TTY          TIME CMD\n"
add(
    "ps -ef",
    head
    + "".join(
        f"{'root' if n % 3 else 'postgres':<8} {n * 37:>7} {n:>7}  {n % 3} Nov20 "
        f"{'pts/' + str(n % 4) if n % 2 else '?':<8} 00:{n:02}:0{n % 7} /usr/bin/prog-{n} --flag {n} -x\n"
        for n in range(1, 51)
    ),
    (COUNT, [50]),
    ("SELECT cmd FROM data WHERE pid=370", ["/usr/bin/prog-10 --flag 10 -x"]),
    ("SELECT count(*) FROM data WHERE uid='postgres'", [16]),
    ("SELECT sum(pid) FROM data", [37 * 1275]),
)
add(
    "ps -eo",
    "    PID    PPID %CPU %MEM     ELAPSED COMMAND\n"
    + "".join(
        f"{n * 11:>7} {n:>7} {n / 4:>4.1f} {n / 10:>4.1f} {f'{n}-03:04:05':>11} python3 worker.py --id={n}\n"
        for n in range(1, 51)
    ),
    (COUNT, [50]),
    ("SELECT command FROM data WHERE pid=99", ["python3 worker.py --id=9"]),
    ('SELECT max("%CPU") FROM data', [12.5]),
    ("SELECT elapsed FROM data WHERE ppid=4", ["4-03:04:05"]),
)
# df
add(
    "df -hT",
    "Filesystem     Type      Size  Used Avail Use% Mounted on\n"
    + "".join(
        f"/dev/sd{chr(97 + n % 26)}{n:<6} {'ext4' if n % 2 else 'tmpfs':<8} {n + 1:>4}G  "
        f"{n:>3}G  {n % 9 + 1:>3}G {n:>3}% /mnt/disk {n}\n"
        for n in range(40)
    ),
    (COUNT, [40]),
    ('SELECT "Mounted on" FROM data WHERE "Use%" = 39', ["/mnt/disk 39"]),
    ("SELECT count(*) FROM data WHERE type='tmpfs'", [20]),
)
add(
    "df -i",
    "Filesystem        Inodes   IUsed     IFree IUse% Mounted on\n"
    + "".join(
        f"/dev/vd{n:<8} {n * 100000 + 1:>8} {n * 100:>7} {n * 99000 + 7:>9} {n % 100:>4}% /srv/{n}\n"
        for n in range(1, 40)
    ),
    (COUNT, [39]),
    ("SELECT sum(IUsed) FROM data", [78000]),
    ("SELECT max(Inodes) FROM data", [3900001]),
    said=["39 rows"],
)
# lsblk
add(
    "lsblk",
    "NAME                      MAJ:MIN RM   SIZE RO TYPE MOUNTPOINTS\n"
    + "".join(
        f"sd{chr(97 + n)}                         8:{n * 16:<4} 0    {n + 1:>2}G  0 disk "
        f"\n├─sd{chr(97 + n)}1                      8:{n * 16 + 1:<4} 0     1M  0 part "
        f"\n└─sd{chr(97 + n)}2                      8:{n * 16 + 2:<4} 0    {n + 1:>2}G  0 part /mnt/{n}\n"
        for n in range(14)
    ),
    (COUNT, [42]),
    ("SELECT count(*) FROM data WHERE type='disk'", [14]),
    ("SELECT mountpoints FROM data WHERE \"MAJ:MIN\"='8:34'", ["/mnt/2"]),
)
# ss / netstat
ss = "State      Recv-Q Send-Q   Local Address:Port      Peer Address:Port Process\n"
ss += "".join(
    f"{('LISTEN', 'ESTAB', 'TIME-WAIT', 'SYN-SENT')[n % 4]:<10} {n % 3:<6} {(n * 8) % 512:<6} "
    f"{'10.0.0.' + str(n):>15}:{8000 + n:<5} "
    f"{'192.168.1.' + str(n):>16}:{'*' if n % 4 == 0 else 50000 + n:<5}\n"
    for n in range(50)
)
add(
    "ss -tan",
    ss,
    (COUNT, [50]),
    ("SELECT count(*) FROM data WHERE state='ESTAB'", [13]),
    ("SELECT \"Send-Q\" FROM data WHERE state='LISTEN' ORDER BY rowid LIMIT 2", [0, 32]),
    ('SELECT "Local Address:Port" FROM data WHERE "Send-Q" = 56', ["10.0.0.7:8007"]),
)
real_ss = (
    "State       Recv-Q      Send-Q             Local Address:Port              Peer "
    "Address:Port      Process                                   \n"
    + "".join(
        f"{('LISTEN', 'ESTAB', 'CLOSE-WAIT')[n % 3]:<11} {n % 2:<11} "
        f"{128 if n % 3 == 0 else 0:<11} "
        f"{('127.0.0.1' if n % 2 else '0.0.0.0'):>22}:{3000 + n:<5} "
        f"{'0.0.0.0' if n % 3 == 0 else '10.0.0.' + str(n):>22}:{'*' if n % 3 == 0 else 443:<5}     "
        f'users:(("node",pid={n},fd=1{n}))\n'
        for n in range(48)
    )
)
add(
    "ss -tanp",
    real_ss,
    (COUNT, [48]),
    ("SELECT count(*) FROM data WHERE state='LISTEN'", [16]),
    ('SELECT sum("Send-Q") FROM data', [2048]),
    ("SELECT count(*) FROM data WHERE \"Local Address:Port\" LIKE '127.0.0.1:%'", [24]),
)
add(
    "netstat -tlnp",
    "Active Internet connections (only servers)\nProto Recv-Q Send-Q Local Address           "
    "Foreign Address         State       PID/Program name    \n"
    + "".join(
        f"tcp{'6' if n % 4 == 0 else '':<2} {n % 3:>6} {n % 5:>6} "
        f"{'127.0.0.1:' + str(5000 + n):<23} {'0.0.0.0:*':<23} "
        f"{'LISTEN' if n % 2 else 'TIME_WAIT':<11} {str(n * 3) + '/prog' + str(n) if n % 2 else '-':<20}\n"
        for n in range(40)
    ),
    (COUNT, [40]),
    ('SELECT sum("Recv-Q") FROM data', [39]),
    ("SELECT count(*) FROM data WHERE state='TIME_WAIT'", [20]),
    ('SELECT "PID/Program name" FROM data WHERE "Local Address"=\'127.0.0.1:5007\'', ["21/prog7"]),
)
add(
    "netstat -an",
    "Active Internet connections (servers and established)\nProto Recv-Q Send-Q  Local "
    "Address          Foreign Address        (state)    \n"
    + "".join(
        f"tcp4  {n % 3:>6} {n % 7:>6}  {'10.0.0.2.' + str(5000 + n):<22} {'1.2.3.4.443':<22} "
        f"{'ESTABLISHED' if n % 2 else 'CLOSE_WAIT':<11}\n"
        for n in range(40)
    ),
    (COUNT, [40]),
    ('SELECT sum("Send-Q") FROM data', [sum(n % 7 for n in range(40))]),
    ("SELECT count(*) FROM data WHERE \"(state)\"='ESTABLISHED'", [20]),
)
# apt, dpkg, pip, npm
add(
    "apt list",
    "Listing... Done\n"
    + "".join(
        f"lib{n}/stable,now 1.{n}.0-2 amd64 [installed{',automatic' if n % 2 else ''}]\n" for n in range(50)
    ),
    ("SELECT count(*) FROM data WHERE text LIKE '%automatic%'", [25]),
    ("SELECT count(*) FROM data", [51]),
)
add(
    "pip list",
    "Package            Version\n------------------ -----------\n"
    + "".join(f"{'package-' + str(n):<18} {n}.{n}.0\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT version FROM data WHERE package='package-7'", ["7.7.0"]),
    said=["60 rows"],
)
add(
    "pip list --outdated",
    "Package            Version     Latest      Type\n------------------ ----------- ----------- -----\n"
    + "".join(
        f"{'package-' + str(n):<18} {str(n) + '.0':<11} {str(n + 1) + '.0':<11} wheel\n" for n in range(40)
    )
    + "\n[notice] A new release of pip is available: 24.0 -> 25.3\n[notice] To update, run: "
    "pip install --upgrade pip\n",
    (COUNT, [40]),
    ("SELECT latest FROM data WHERE package='package-7'", [8.0]),
)
add(
    "npm outdated",
    table(
        [("Package", "Current", "Wanted", "Latest", "Location", "Depended by")]
        + [
            (
                f"@scope/lib-{n}" if n % 3 else f"lib{n}",
                f"1.{n}.0" if n % 8 else "MISSING",
                f"1.{n}.9",
                f"2.{n}.0",
                f"node_modules/lib{n}",
                "my-app",
            )
            for n in range(40)
        ],
        aligns="lrrrll",
    ),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE current='MISSING'", [5]),
    ("SELECT latest FROM data WHERE package='lib6'", ["2.6.0"]),
    ('SELECT "Depended by", count(*) FROM data GROUP BY 1', [("my-app", 40)]),
)
# git
add(
    "git branch -vv",
    "".join(
        f"{'*' if n == 3 else ' '} feature/thing-{n:02} {n * 7919 + 1000000:07x} "
        f"[origin/feature/thing-{n:02}: ahead {n}] Do the thing {n}, and more\n"
        for n in range(40)
    ),
    LINES,
    ("SELECT count(*) FROM data WHERE text LIKE '%ahead 3]%'", [1]),
)
add(
    "git log --oneline",
    "".join(f"{n * 7919 + 1000000:07x} Fix the thing, number {n}\n" for n in range(60)),
    LINES,
    (COUNT, [60]),
)
add("git shortlog -sn", "".join(f"{1000 - n:>6}\tPerson Number {n}\n" for n in range(60)), (COUNT, [60]))
add(
    "git diff --stat",
    "".join(f" src/module_{n:02}/file.py | {n + 1:>3} {'+' * (n % 20)}{'-' * (n % 7)}\n" for n in range(50))
    + " 50 files changed, 1275 insertions(+), 147 deletions(-)\n",
    LINES,
    (COUNT, [51]),
)
add(
    "git status -s",
    "".join(f"{' M' if n % 2 else '??'} src/file {n}.py\n" for n in range(80)),
    LINES,
    (COUNT, [80]),
)
# aws
add(
    "aws --output table",
    "------------------------------------------------------\n|                  "
    "DescribeInstances                 "
    "|\n+----------------+------------+-----------+----------+\n|   InstanceId   |   State   "
    " |   Type    |  Cores   |\n+----------------+------------+-----------+----------+\n"
    + "".join(
        f"|  i-{n:012x}|  {'running' if n % 3 else 'stopped':<10}|  t3.micro |  {n % 4 + 1:<8}|\n"
        for n in range(40)
    )
    + "+----------------+------------+-----------+----------+\n",
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE State='stopped'", [14]),
    ("SELECT sum(Cores) FROM data", [100]),
    said=["InstanceId"],
)
add(
    "aws --output text",
    "".join(
        f"INSTANCES\ti-{n:08x}\tt3.micro\t{'running' if n % 3 else 'stopped'}\t10.0.0.{n}\n"
        for n in range(50)
    ),
    ("SELECT count(*) FROM data WHERE column_4='stopped'", [17]),
    (COUNT, [50]),
)
# psql, mysql, sqlite
add(
    "psql",
    " id | name    | amount |     created_at      \n----+---------+--------+---------------------\n"
    + "".join(
        f" {n:>2} | {'' if n % 9 == 0 else 'n' + str(n):<7} | {n * 1.5:>6.2f} | 2026-11-20 10:{n:02}:00\n"
        for n in range(50)
    )
    + "(50 rows)\n\nTime: 1.234 ms\n",
    (COUNT, [50]),
    ("SELECT sum(amount) FROM data", [1837.5]),
    ("SELECT count(*) FROM data WHERE name IS NULL", [6]),
    said=["50 rows"],
)
add(
    "psql -A",
    "id|name|amount\n" + "".join(f"{n}|name {n}|{n}.5\n" for n in range(70)) + "(70 rows)\n",
    (COUNT, [70]),
    ("SELECT sum(amount) FROM data", [2450]),
    said=["70 rows"],
)
add(
    "psql several",
    "".join(
        " id | name\n----+------\n" + "".join(f" {n:>2} | t{k}n{n}\n" for n in range(20)) + "(20 rows)\n\n"
        for k in range(3)
    ),
    ("SELECT count(*) FROM table2", [20]),
    ("SELECT name FROM table3 WHERE id=7", ["t2n7"]),
)
add(
    "psql -x",
    "".join(
        f"-[ RECORD {n} ]{'-' * 20}\nid     | {n}\nname   | n{n}\namount | {n}.25\n" for n in range(1, 31)
    ),
    (COUNT, [30]),
    ("SELECT sum(amount) FROM data", [30 * 31 / 2 + 7.5]),
)
add(
    "mysql",
    "+----+-------+--------+\n| id | name  | amount |\n+----+-------+--------+\n"
    + "".join(
        f"| {n:>2} | {'NULL' if n % 9 == 0 else 'n' + str(n):<5} | {n * 1.5:>6.2f} |\n" for n in range(50)
    )
    + "+----+-------+--------+\n50 rows in set (0.01 sec)\n\n",
    (COUNT, [50]),
    ("SELECT sum(amount) FROM data", [1837.5]),
    said=["50 rows"],
)
add(
    "mysql -B",
    "id\tname\tamount\n"
    + "".join(f"{n}\t{'NULL' if n % 9 == 0 else 'n' + str(n)}\t{n}.50\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT sum(amount) FROM data", [1800]),
)
add(
    "sqlite3 list",
    "".join(f"{n}|name {n}|{n}.5|ok\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT sum(column_3) FROM data", [1800]),
)
add(
    "sqlite3 -column",
    "id  name       amount\n--  ---------  ------\n"
    + "".join(f"{n:<2}  {'name ' + str(n) if n % 5 else '':<9}  {n}.5\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT sum(amount) FROM data", [1800]),
    ("SELECT count(*) FROM data WHERE name IS NULL or name=''", [12]),
)
add(
    "duckdb box",
    "┌───────┬─────────┬────────┐\n│  id   │  name   │ amount │\n│ int64 │ varchar │ double "
    "│\n├───────┼─────────┼────────┤\n"
    + "".join(f"│ {n:>5} │ name {n:<2} │ {n:>4}.5 │\n" for n in range(40))
    + "└───────┴─────────┴────────┘\n",
    (COUNT, [40]),
    ("SELECT sum(amount) FROM data", [800]),
    said=["40 rows"],
)
add(
    "duckdb box shown",
    "┌───────┬─────────┬────────┐\n│  id   │  name   │ amount │\n│ int64 │ varchar │ double "
    "│\n├───────┼─────────┼────────┤\n"
    + "".join(f"│ {n:>5} │ name {n:<2} │ {n:>4}.5 │\n" for n in range(20))
    + "│    ·  │    ·    │   ·    │\n" * 3
    + "".join(f"│ {n:>5} │ name {n:<2} │ {n:>4}.5 │\n" for n in range(80, 100))
    + "├───────┴─────────┴────────┤\n│ 100 rows (40 shown)      │\n└──────────────────────────┘\n",
    ("SELECT count(*) FROM data WHERE name LIKE 'name%'", [40]),
    unsaid=["44 rows"],
)
add(
    "polars",
    "shape: (40, 3)\n┌─────┬─────────┬────────┐\n│ id  ┆ name    ┆ amount │\n│ --- ┆ ---     "
    "┆ ---    │\n│ i64 ┆ str     ┆ f64    │\n╞═════╪═════════╪════════╡\n"
    + "".join(
        f"│ {n:<3} ┆ name {n:<2} ┆ {n:<4}.5 │\n".replace(f"{n:<4}.5", f"{n}.5".ljust(6)) for n in range(40)
    )
    + "└─────┴─────────┴────────┘\n",
    ("SELECT count(*) FROM table1", [40]),
    ("SELECT sum(amount) FROM data", [800]),
)
add(
    "pandas",
    table(
        [("", "id", "name", "amount")] + [(n, n * 2, f"name{n}", f"{n}.50") for n in range(50)], aligns="lrrr"
    )
    + "\n[50 rows x 3 columns]\n",
    (COUNT, [50]),
    ("SELECT sum(amount) FROM data", [1250]),
)
add(
    "tabulate grid",
    "+------+-----------+----------+\n|   id | name      |   amount |\n+======+===========+==========+\n"
    + "".join(
        f"| {n:>4} | {'name ' + str(n):<9} | {n:>6}.5 |\n"
        + (f"|      | {'more':<9} |          |\n" if n % 4 == 0 else "")
        + "+------+-----------+----------+\n"
        for n in range(30)
    ),
    (COUNT, [30]),
    ("SELECT sum(amount) FROM data", [450]),
    ("SELECT name FROM data WHERE id=4", ["name 4\nmore"]),
)
add(
    "rich",
    "┏━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━┓\n┃ ID   ┃ Name      ┃   Amount ┃\n┡━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━┩\n"
    + "".join(f"│ {n:<4} │ {'name ' + str(n):<9} │ {n:>6}.5 │\n" for n in range(30))
    + "└──────┴───────────┴──────────┘\n",
    (COUNT, [30]),
    ("SELECT sum(Amount) FROM data", [450]),
)
# logs
add(
    "journalctl",
    "".join(
        f"Nov {20 + n // 30:>2} 23:{(n * 2) % 60:02}:01 host-1 sshd[{n}]: Failed password for "
        f"root from 10.0.0.{n} port {n}\n"
        for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT line FROM data WHERE text LIKE '%10.0.0.41 %'", [42]),
)
add(
    "journalctl iso",
    "".join(
        f'2026-11-20T23:{n:02}:01+00:00 host-1 app[{n}]: level=error msg="failed {n}"\n' for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT count(*) FROM data WHERE level='ERROR'", [60]),
    ("SELECT max(time) FROM data", ["2026-11-20T23:59:01"]),
)
add(
    "dmesg",
    "".join(f"[{n * 100.123456:>12.6f}] usb {n}-1: new device, number {n}\n" for n in range(60)),
    (COUNT, [60]),
    LINES,
)
add(
    "dmesg -T",
    "".join(f"[Fri Nov 20 10:{n:02}:00 2026] usb {n}-1: error {n}\n" for n in range(60)),
    (COUNT, [60]),
)
add(
    "nginx access",
    "".join(
        f'10.0.0.{n} - - [20/Nov/2026:10:{n:02}:00 +0000] "GET /a/{n} HTTP/1.1" '
        f'{404 if n % 5 == 0 else 200} {n * 10} "-" "curl/8"\n'
        for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT count(*) FROM data WHERE text LIKE '%\" 404 %'", [12]),
)
add(
    "nginx error",
    "".join(
        f"2026/11/20 10:{n:02}:00 [{'error' if n % 2 else 'warn'}] {n}#{n}: *{n} open() "
        f'"/srv/{n}" failed (2: No such file or directory)\n'
        for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT count(*) FROM data WHERE level='ERROR'", [30]),
)
# CSV
add(
    "csv total",
    "region,units,amount\n"
    + "".join(f"r{n},{n},{n}.5\n" for n in range(50))
    + f"Total,{sum(range(50))},{sum(range(50)) + 25}\n",
    ("SELECT count(*) FROM data WHERE region LIKE 'r%'", [50]),
)
add(
    "csv footer",
    "Report for November\nGenerated: 2026-11-20\n\nregion,units,amount\n"
    + "".join(f"r{n},{n},{n}.5\n" for n in range(50))
    + "\n50 rows exported by report-tool\n",
    (COUNT, [50]),
    ("SELECT sum(units) FROM data", [1225]),
    said=["50 rows"],
)
add(
    "csv comments",
    "# source: sensors\n# unit: C\ntime,sensor,value\n"
    + "".join(f"2026-11-20T10:{n:02}:00,s{n % 3},{n}.5\n" for n in range(50)),
    (COUNT, [50]),
    ("SELECT sum(value) FROM data", [1250]),
)
add(
    "csv semicolons",
    "name;price;qty\r\n" + "".join(f"n{n};{n},50;{n}\r\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT sum(price) FROM data", [1800]),
)
add(
    "csv quotes",
    "id,text,n\n" + "".join(f'{n},"He said ""hi, {n}""\nand left",{n}\n' for n in range(40)),
    (COUNT, [40]),
    ("SELECT sum(n) FROM data", [780]),
    ("SELECT text FROM data WHERE id=3", ['He said "hi, 3"\nand left']),
    said=["40 rows"],
)
add(
    "helm list",
    table(
        [("NAME\t", "NAMESPACE\t", "REVISION\t", "UPDATED\t", "STATUS\t", "CHART\t", "APP VERSION")]
        + [
            (
                f"rel-{n}\t",
                f"ns{n % 3}\t",
                f"{n}\t",
                f"2026-11-20 10:{n:02}:00.123 +0000 UTC\t",
                ("deployed\t", "failed\t")[n % 5 == 0],
                f"chart-1.{n}\t",
                f"1.{n}.0",
            )
            for n in range(40)
        ],
        gap=0,
    ),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE trim(status)='failed'", [8]),
)
# Markdown, html
add(
    "markdown",
    "# Plans\n\nSome words about it.\n\n| Plan | Price | Seats |\n|:-----|------:|:-----:|\n"
    + "".join(f"| plan {n} | {n}.50 | {n * 2} |\n" for n in range(40))
    + "\nMore words.\n",
    (COUNT, [40]),
    ("SELECT sum(seats) FROM data", [1560]),
)
add(
    "markdown two",
    "# A\n\n| a | b |\n|---|---|\n"
    + "".join(f"| {n} | {n * 2} |\n" for n in range(20))
    + "\n## B\n\n| c | d |\n|---|---|\n"
    + "".join(f"| x{n} | {n * 3} |\n" for n in range(15)),
    ("SELECT sum(b) FROM table1", [380]),
    ("SELECT count(*), sum(d) FROM table2", [(15, 315)]),
)
add(
    "html spans",
    "<html><body><table><thead><tr><th>Region</th><th>Year</th><th>Sales</th></tr></thead><tbody>"
    + "".join(
        f"<tr><td rowspan=2>R{n}</td><td>2025</td><td>{n}</td></tr><tr><td>2026</td><td>{n + 1}</td></tr>\n"
        for n in range(25)
    )
    + "</tbody></table></body></html>",
    ("SELECT count(*), sum(Sales) FROM table1", [(50, 625)]),
    ("SELECT sales FROM table1 WHERE region='R7' AND year=2026", [8]),
)
# json
add(
    "ndjson mixed",
    "".join(
        json.dumps(
            {"type": "start", "id": n} if n % 3 == 0 else {"type": "end", "id": n, "ms": n, "tags": ["a"]}
        )
        + "\n"
        for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT sum(ms) FROM data WHERE type='end'", [sum(n for n in range(60) if n % 3)]),
)
ACTIONS = ("run", "output", "pass", "run", "output", "pass", "run", "output", "fail")
add(
    "go test -json",
    "".join(
        json.dumps(
            {"Time": f"2026-11-20T10:00:{n:02}Z", "Action": ACTIONS[n % 9], "Test": f"Test{n // 3}"}
            | ({"Output": "=== RUN\n"} if n % 3 == 1 else {"Elapsed": 0.5} if n % 3 else {})
        )
        + "\n"
        for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT count(*), sum(Elapsed) FROM data WHERE Action='fail'", [(6, 3)]),
)
add(
    "json cut",
    '{"items":[' + ",".join(f'{{"id":{n},"v":{n * 2}}}' for n in range(80)) + ',{"id":80,"v"',
    ("SELECT count(*), sum(v) FROM data", [(80, 6320)]),
    said=["cut off"],
)
add(
    "json lists",
    "[" + ",".join(f'["n{n}",{n},true]' for n in range(80)) + "]",
    ("SELECT count(*), sum(column_2) FROM data", [(80, 3160)]),
)
add(
    "kubectl json",
    json.dumps(
        {
            "kind": "List",
            "items": [
                {
                    "metadata": {"name": f"p{n}", "labels": {"app": f"a{n % 3}"}},
                    "status": {"phase": "Running" if n % 4 else "Pending", "restarts": n},
                }
                for n in range(60)
            ],
        }
    ),
    ("SELECT count(*) FROM data WHERE status.phase='Pending'", [15]),
    ("SELECT sum(status.restarts) FROM data", [1770]),
)
add(
    "yaml list under key",
    "version: 2\nusers:\n"
    + "".join(
        f"  - name: u{n}\n    age: {20 + n}\n    roles:\n      - admin\n      - dev\n" for n in range(30)
    ),
    (COUNT, [30]),
    ("SELECT sum(age) FROM data", [20 * 30 + 435]),
)
add(
    "yaml list under key, no indent",
    "users:\n" + "".join(f"- name: u{n}\n  age: {20 + n}\n" for n in range(40)),
    (COUNT, [40]),
    ("SELECT sum(age) FROM data", [800 + 780]),
)
add(
    "yaml documents",
    "---\n".join(
        f"apiVersion: v1\nkind: {'Service' if n % 2 else 'Deployment'}\nmetadata:\n  name: "
        f"thing-{n}\nspec:\n  replicas: {n}\n"
        for n in range(20)
    ),
    (COUNT, [20]),
    ("SELECT count(*) FROM data WHERE kind='Service'", [10]),
)
# more
add(
    "free -h",
    "               total        used        free      shared  buff/cache   available\nMem:  "
    "          15Gi       4.2Gi       1.1Gi       123Mi        10Gi        11Gi\nSwap:       "
    "   2.0Gi          0B       2.0Gi\n" + "\n" * 500,
    LINES,
)
add(
    "lsof",
    table(
        [("COMMAND", "PID", "USER", "FD", "TYPE", "DEVICE", "SIZE/OFF", "NODE", "NAME")]
        + [
            (
                f"prog{n % 4}",
                n * 7,
                "root",
                ("cwd", "txt", "mem", "3u")[n % 4],
                "DIR" if n % 4 == 0 else "REG",
                "259,2",
                n * 4096 if n % 5 else "",
                n * 3,
                f"/usr/lib/thing {n}",
            )
            for n in range(1, 51)
        ],
        aligns="lrlrlrrrl",
        gap=1,
    ),
    (COUNT, [50]),
    ('SELECT count(*) FROM data WHERE "SIZE/OFF" IS NULL', [10]),
    ("SELECT name FROM data WHERE pid=70", ["/usr/lib/thing 10"]),
)
add(
    "powershell",
    "\n NPM(K)    PM(M)      WS(M)     CPU(s)      Id  SI ProcessName\n ------    -----      "
    "-----     ------      --  -- -----------\n"
    + "".join(
        f"{n:>7} {n * 1.5:>8.2f} {n * 2.25:>10.2f} {n * 100.5 if n % 4 else 0:>10.2f} "
        f"{n * 97:>7} {n % 3:>3} svc host {n}\n"
        for n in range(1, 41)
    )
    + "\n\n",
    (COUNT, [40]),
    ("SELECT sum(Id) FROM data", [97 * 820]),
    ("SELECT ProcessName FROM data WHERE Id=970", ["svc host 10"]),
)
add(
    "az table",
    "Name        ResourceGroup    Location    Status\n----------  ---------------  ----------  ---------\n"
    + "".join(
        f"{'vm-' + str(n):<10}  {'group-' + str(n % 3):<15}  westeurope  "
        f"{'Succeeded' if n % 4 else ''}".rstrip()
        + "\n"
        for n in range(40)
    ),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE status='Succeeded'", [30]),
)
add(
    "rabbitmqctl",
    "Timeout: 60.0 seconds ...\nListing queues for vhost / ...\nname\tmessages\tconsumers\n"
    + "".join(f"queue.{n}\t{n * 3}\t{n % 2}\n" for n in range(50)),
    (COUNT, [50]),
    ("SELECT sum(messages) FROM data", [3675]),
)
add(
    "redis info",
    "# Server\r\n"
    + "".join(f"redis_key_{n}:{n}\r\n" for n in range(30))
    + "\r\n# Memory\r\n"
    + "".join(f"used_memory_{n}:{n * 100}\r\n" for n in range(30)),
    ("SELECT count(*) FROM lines WHERE text LIKE 'used_memory_%'", [30]),
    unsaid=["heading"],
)
add(
    "passwd",
    "".join(f"user{n}:x:{1000 + n}:{1000 + n}:User {n},,,:/home/user{n}:/bin/bash\n" for n in range(40)),
    ("SELECT count(*) FROM lines WHERE text LIKE '%/bin/bash'", [40]),
    (COUNT, [40]),
)
add(
    "ls -l",
    "total 4096\n"
    + "".join(
        f"-rw-r--r-- 1 root root {n * 1000:>7} Nov 20 10:{n:02} file name {n}.txt\n" for n in range(50)
    ),
    LINES,
    (COUNT, [51]),
)
add("du", "".join(f"{4 * n}\t./dir/sub{n}\n" for n in range(1, 60)) + f"{4 * 59 * 30}\t.\n", (COUNT, [60]))
add("wc -l", "".join(f"  {n:>4} src/file{n}.py\n" for n in range(1, 61)) + "  1830 total\n", (COUNT, [61]))
add(
    "w",
    " 10:00:00 up 5 days,  3:04, 40 users,  load average: 0.00, 0.01, 0.05\nUSER     TTY     "
    " FROM             LOGIN@   IDLE   JCPU   PCPU WHAT\n"
    + "".join(
        f"{'user' + str(n):<8} {'pts/' + str(n):<8} "
        f"{'10.0.0.' + str(n) if n % 4 else '-':<16} {f'09:{n:02}':<8} {n % 10}.00s  "
        f"0.{n:02}s  0.0{n % 9}s bash -c thing {n}\n"
        for n in range(40)
    ),
    (COUNT, [40]),
    ("SELECT what FROM data WHERE tty='pts/9'", ["bash -c thing 9"]),
)
add(
    "ini",
    "".join(f"[section {n}]\nhost = h{n}\nport = {n}\n\n" for n in range(40)),
    ("SELECT count(*) FROM lines WHERE text LIKE 'port = %'", [40]),
)
add(
    "properties",
    "# comment\n" + "".join(f"app.key.{n}=value, {n}\n" for n in range(60)),
    ("SELECT count(*) FROM lines WHERE text LIKE 'app.key.%'", [60]),
    LINES,
)
add(
    "terraform state",
    "".join(f"module.net.aws_subnet.private[{n}]\n" for n in range(60)),
    LINES,
    (COUNT, [60]),
)
add(
    "pytest",
    "============================= test session starts "
    "==============================\nplatform linux -- Python 3.12.1, pytest-8.3.0\ncollected 60 items\n\n"
    + "".join(
        f"tests/test_{n}.py::test_it[{n}] {'FAILED' if n % 10 == 0 else 'PASSED'}  [{n * 100 // 60:>3}%]\n"
        for n in range(60)
    )
    + "=========================== short test summary info ============================\n"
    + "".join(f"FAILED tests/test_{n}.py::test_it[{n}] - AssertionError: {n}\n" for n in range(0, 60, 10))
    + "========================= 6 failed, 54 passed in 1.23s =========================\n",
    ("SELECT count(*) FROM data WHERE text LIKE 'FAILED %'", [6]),
    said=["6 failed, 54 passed"],
)
add(
    "cargo",
    "".join(f"   Compiling crate-{n} v1.{n}.0\n" for n in range(60))
    + "error[E0382]: borrow of moved value: `x`\n  --> src/main.rs:4:20\n  |\n2 |     let x = "
    'String::new();\n  |         - move occurs\nerror: could not compile `app` (bin "app") '
    "due to 1 previous error\n",
    LINES,
    said=["could not compile"],
)
add(
    "gcloud",
    table(
        [("NAME", "ZONE", "MACHINE_TYPE", "PREEMPTIBLE", "INTERNAL_IP", "EXTERNAL_IP", "STATUS")]
        + [
            (
                f"vm-{n}",
                "europe-west1-b",
                "e2-small",
                "true" if n % 4 == 0 else "",
                f"10.0.0.{n}",
                f"34.1.2.{n}" if n % 3 else "",
                "RUNNING" if n % 5 else "TERMINATED",
            )
            for n in range(40)
        ]
    ),
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE status='TERMINATED'", [8]),
    ("SELECT count(*) FROM data WHERE external_ip IS NULL", [14]),
)
add(
    "wide chars",
    table(
        [("NAME", "CITY", "AMOUNT")] + [(f"n{n}", "東京" if n % 2 else "Zürich", n) for n in range(60)]
    ).replace("東京    ", "東京  "),
    (COUNT, [60]),
    ("SELECT sum(amount) FROM data WHERE city='東京'", [900]),
)
add(
    "vmstat",
    "procs -----------memory---------- ---swap-- -----io---- -system-- ------cpu-----\n r  b "
    "  swpd   free   buff  cache   si   so    bi    bo   in   cs us sy id wa st\n"
    + "".join(
        f" {n % 3}  0      0 {n * 1000:>6}  {n:>5} {n * 10:>6}    0    0     {n % 9}    "
        f"{n % 7}  {n:>3} {n:>4}  1  1 98  0  0\n"
        for n in range(50)
    ),
    (COUNT, [50]),
    ("SELECT sum(free) FROM data", [1225000]),
)
add(
    "stack of ip",
    "".join(
        f"{n}: eth{n}: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 1500 qdisc fq state UP group "
        f"default qlen 1000\n    link/ether 02:42:ac:11:00:{n:02x} brd ff:ff:ff:ff:ff:ff\n    "
        f"inet 10.0.{n}.1/24 scope global eth{n}\n"
        for n in range(1, 30)
    ),
    LINES,
    ("SELECT count(*) FROM data WHERE text LIKE '%inet %'", [29]),
)
add(
    "xml",
    '<?xml version="1.0"?>\n<items>\n'
    + "".join(f'  <item id="{n}"><name>n{n}</name></item>\n' for n in range(60))
    + "</items>\n",
    LINES,
    ("SELECT count(*) FROM data WHERE text LIKE '%<item id%'", [60]),
)
add(
    "cr only",
    "\r".join(f"{n},name {n},{n}.5" if n else "id,name,amount" for n in range(61)),
    ("SELECT count(*), sum(amount) FROM data", [(60, 1860)]),
)
add(
    "epoch csv",
    "ts,event\n" + "".join(f"{1764500000 + n * 60},e{n % 3}\n" for n in range(80)),
    (COUNT, [80]),
    ("SELECT max(ts) FROM data", [1764500000 + 79 * 60]),
)
add(
    "dates d/m/y",
    "id,date,amount\n" + "".join(f"{n},{n % 28 + 1:02}/{n % 12 + 1:02}/2026,{n}\n" for n in range(80)),
    (COUNT, [80]),
)
add(
    "kubectl describe",
    "Name:         api-1\nNamespace:    prod\nPriority:     0\nLabels:       app=api\n       "
    "       tier=web\nStatus:       Running\nContainers:\n  api:\n    Image:          "
    "nginx\n    Port:           80/TCP\nEvents:\n  Type     Reason   Age   From     "
    "Message\n  ----     ------   ----  ----     -------\n"
    + "".join(f"  Warning  BackOff  {n}m    kubelet  Back-off {n}\n" for n in range(10, 60)),
    ("SELECT count(*) FROM lines WHERE text LIKE '%BackOff%'", [50]),
)
add(
    "netstat -an of Linux",
    "Active Internet connections (servers and established)\n"
    "Proto Recv-Q Send-Q Local Address           Foreign Address         State      \n"
    + "".join(
        f"tcp   {n % 3:>6} {n % 5:>6} {'127.0.0.1:' + str(5000 + n):<23} {'0.0.0.0:*':<23} "
        f"{'LISTEN' if n % 2 else 'TIME_WAIT':<11}\n"
        for n in range(40)
    )
    + "Active UNIX domain sockets (servers and established)\n"
    "Proto RefCnt Flags       Type       State         I-Node   Path\n"
    + "".join(
        f"unix  {n:<6} [ ]         STREAM     CONNECTED     {1000 + n:<8} /run/{n}\n" for n in range(30)
    ),
    ('SELECT count(*), sum("Send-Q") FROM table1', [(40, 80)]),
    ('SELECT sum("I-Node") FROM table2', [30 * 1000 + 435]),
)
add(
    "kubectl get all",
    table(
        [
            ("NAME", "READY", "STATUS", "RESTARTS", "AGE"),
            *((f"pod/api-{n}", "1/1", "Running", n, f"{n}d") for n in range(12)),
        ],
        gap=3,
    )
    + "\n"
    + table(
        [
            ("NAME", "TYPE", "CLUSTER-IP", "EXTERNAL-IP", "PORT(S)", "AGE"),
            *((f"service/s{n}", "ClusterIP", f"10.0.0.{n}", "<none>", "80/TCP", f"{n}d") for n in range(9)),
        ],
        gap=3,
    ),
    ("SELECT count(*), sum(restarts) FROM table1", [(12, 66)]),
    ("SELECT name FROM table2 WHERE \"CLUSTER-IP\" = '10.0.0.7'", ["service/s7"]),
    said=["table1(12 rows", "table2(9 rows"],
)
add(
    "dpkg -l",
    "Desired=Unknown/Install/Remove/Purge/Hold\n"
    "| Status=Not/Inst/Conf-files/Unpacked/halF-conf/Half-inst/trig-aWait/Trig-pend\n"
    "|/ Err?=(none)/Reinst-required (Status,Err: uppercase=bad)\n"
    "||/ Name           Version      Architecture Description\n"
    "+++-==============-============-============-=================================\n"
    + "".join(
        f"{'rc' if n % 10 == 0 else 'ii'}  {'lib' + str(n):<14} {'1.' + str(n):<12} amd64        "
        f"the library {n}\n"
        for n in range(50)
    ),
    ("SELECT count(*) FROM data", [50]),
    ("SELECT count(*) FROM data WHERE \"||/\" = 'rc'", [5]),
    ("SELECT description FROM data WHERE name = 'lib7'", ["the library 7"]),
)
add(
    "top -b",
    "top - 10:00:00 up 1 day,  1 user,  load average: 0.00, 0.01, 0.05\nTasks: 100 total,   1 running\n"
    "%Cpu(s):  1.0 us,  0.5 sy\nMiB Mem :  15900.0 total,   1000.0 free\n\n"
    "    PID USER      PR  NI    VIRT    RES    SHR S  %CPU  %MEM     TIME+ COMMAND\n"
    + "".join(
        f"{n * 13:>7} {'root' if n % 2 else 'www-data':<8}  20   0 {n * 1000:>7} {n * 100:>6} {n * 10:>6} S "
        f"{n / 2:>5.1f} {n / 10:>5.1f} {f'0:{n:02}.00':>9} prog {n}\n"
        for n in range(1, 41)
    ),
    ("SELECT count(*), sum(pid) FROM data", [(40, 13 * 820)]),
    ("SELECT command FROM data WHERE pid = 130", ["prog 10"]),
)
add(
    "iptables -L",
    "".join(
        f"Chain {chain} (policy ACCEPT)\ntarget     prot opt source               destination         \n"
        + "".join(
            f"{'DROP' if n % 2 else 'ACCEPT':<10} tcp  --  {'10.0.0.' + str(n):<20} {'anywhere':<20} "
            f"tcp dpt:{n}\n"
            for n in range(20)
        )
        + "\n"
        for chain in ("INPUT", "FORWARD")
    ),
    ("SELECT count(*) FROM lines WHERE text LIKE 'DROP%'", [20]),
)
add(
    "docker compose ps",
    table(
        [("NAME", "IMAGE", "COMMAND", "SERVICE", "CREATED", "STATUS", "PORTS")]
        + [
            (
                f"app-web-{n}",
                "nginx",
                '"nginx -g \'daemon of…"',
                f"web{n}",
                f"{n} minutes ago",
                "Up 2 minutes (healthy)" if n % 4 else "Exited (137) 1 minute ago",
                f"0.0.0.0:{8000 + n}->80/tcp" if n % 4 else "",
            )
            for n in range(1, 31)
        ],
        gap=3,
    ),
    (COUNT, [30]),
    ("SELECT count(*) FROM data WHERE status LIKE 'Exited%'", [7]),
)
add(
    "kubectl get nodes -o wide",
    table(
        [
            (
                "NAME",
                "STATUS",
                "ROLES",
                "AGE",
                "VERSION",
                "INTERNAL-IP",
                "EXTERNAL-IP",
                "OS-IMAGE",
                "KERNEL-VERSION",
                "CONTAINER-RUNTIME",
            )
        ]
        + [
            (
                f"node-{n}",
                "Ready" if n % 5 else "Ready,SchedulingDisabled",
                "<none>" if n % 3 else "control-plane",
                f"{n}d",
                "v1.31.2",
                f"10.0.0.{n}",
                "<none>",
                "Ubuntu 24.04.1 LTS",
                "6.8.0-48-generic",
                "containerd://1.7.22",
            )
            for n in range(1, 31)
        ],
        gap=3,
    ),
    (COUNT, [30]),
    ('SELECT "OS-IMAGE", count(*) FROM data GROUP BY 1', [("Ubuntu 24.04.1 LTS", 30)]),
)
add(
    "journalctl --list-boots",
    "IDX BOOT ID                          FIRST ENTRY                 LAST ENTRY\n"
    + "".join(
        f"{-n:>3} {n * 7919:032x} Fri 2026-11-{20 - n:02} 10:00:{n:02} UTC Fri "
        f"2026-11-{20 - n:02} 23:00:{n:02} UTC\n"
        for n in range(18, -1, -1)
    ),
    (COUNT, [19]),
    ('SELECT "BOOT ID" FROM data WHERE idx = -3', [f"{3 * 7919:032x}"]),
)
add(
    "zpool list",
    "NAME    SIZE  ALLOC   FREE  CKPOINT  EXPANDSZ   FRAG    CAP  DEDUP    HEALTH  ALTROOT\n"
    + "".join(
        f"tank{n:<2}  {n}.5T  {n}00G  {n}.1T        -         -     {n % 10}%    {n % 9}%  "
        f"1.00x    {'ONLINE' if n % 4 else 'DEGRADED'}  -\n"
        for n in range(1, 30)
    ),
    (COUNT, [29]),
    ("SELECT count(*) FROM data WHERE health='DEGRADED'", [7]),
)
add(
    "virsh list",
    " Id   Name       State\n---------------------------\n"
    + "".join(
        f" {n if n % 3 else '-':<4} vm-{n:<7} {'running' if n % 3 else 'shut off'}\n" for n in range(40)
    )
    + "\n",
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE state='shut off'", [14]),
)
add(
    "git log default",
    "".join(
        f"commit {n * 104729 + 16**39:040x}\nAuthor: Ann Lee <ann@example.com>\nDate:   Fri "
        f"Nov {n % 28 + 1} 10:00:00 2026 +0000\n\n    Fix the thing {n}\n\n"
        for n in range(25)
    ),
    (COUNT, [150]),
    ("SELECT count(*) FROM data WHERE text LIKE 'commit %'", [25]),
)
add(
    "tsc",
    "".join(
        f"src/a{n}.ts({n},5): error TS2322: Type 'string' is not assignable to type 'number'.\n"
        for n in range(1, 50)
    )
    + "Found 49 errors.\n",
    (COUNT, [50]),
    LINES,
)
add(
    "csv parens",
    "id,amount\n" + "".join(f"{n},{'(' + str(n) + '.00)' if n % 2 else str(n) + '.00'}\n" for n in range(60)),
    ("SELECT sum(amount) FROM data", [sum(-n if n % 2 else n for n in range(60))]),
)
add(
    "csv dollars",
    "id,price\n" + "".join(f'{n},"$1,{n:03}.50"\n' for n in range(60)),
    ("SELECT sum(price) FROM data", [60 * 1000.5 + 1770]),
)
add(
    "csv big ints",
    "id,snow\n" + "".join(f"{n},{18446744073709551000 + n}\n" for n in range(60)),
    ("SELECT max(snow)::VARCHAR FROM data", ["18446744073709551059"]),
)
add(
    "csv leading zeros",
    "code,n\n" + "".join(f"{n:05},{n}\n" for n in range(60)),
    ("SELECT count(*) FROM data WHERE code='00042'", [1]),
)
add(
    "csv tabs in tsv quotes",
    "id\tq\n" + "".join(f'{n}\tsize 5" x {n}"\n' for n in range(60)),
    (COUNT, [60]),
    ("SELECT q FROM data WHERE id=3", ['size 5" x 3"']),
)
add(
    "json null struct",
    json.dumps([{"id": n, "owner": None if n % 3 == 0 else {"name": f"o{n}"}} for n in range(60)]),
    ("SELECT count(*) FROM data WHERE owner IS NULL", [20]),
    ("SELECT owner.name FROM data WHERE id=7", ["o7"]),
)
add(
    "json curl -i",
    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nX-Total: 50\r\n\r\n"
    + json.dumps([{"id": n, "ok": n % 2 == 0} for n in range(50)]),
    (COUNT, [50]),
    ("SELECT count(*) FROM data WHERE ok", [25]),
)
add(
    "json exit behind",
    json.dumps([{"id": n} for n in range(120)]) + "\nexit status 1\n",
    (COUNT, [120]),
    said=["exit status 1"],
)
add(
    "jq pretty docs",
    "".join(json.dumps({"id": n, "name": f"n{n}", "tags": ["a", "b"]}, indent=2) + "\n" for n in range(40)),
    (COUNT, [40]),
    ("SELECT sum(id) FROM data", [780]),
)
add(
    "log brackets",
    "".join(f"[{n:>4}] [INFO] did {n}\n" if n % 5 else f"[{n:>4}] [ERROR] broke {n}\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT count(*) FROM data WHERE text LIKE '%[ERROR]%'", [12]),
)
add(
    "logfmt",
    "".join(
        f'ts=2026-11-20T10:{n:02}:00Z level={"error" if n % 6 == 0 else "info"} msg="thing {n}" dur={n}ms\n'
        for n in range(60)
    ),
    (COUNT, [60]),
    ("SELECT count(*) FROM data WHERE level='ERROR'", [10]),
    ("SELECT min(time) FROM data", ["2026-11-20T10:00:00"]),
)
add(
    "python traceback log",
    "".join(f"2026-11-20 10:{n:02}:00,123 INFO ok {n}\n" for n in range(40))
    + "2026-11-20 10:41:00,000 ERROR failed\nTraceback (most recent call last):\n  File "
    '"a.py", line 3, in <module>\n    f()\nValueError: bad 7\n',
    ("SELECT count(*) FROM data", [45]),
    said=["1 traceback", "ValueError: bad 7"],
)
add(
    "html colspan header",
    "<table><tr><th>Name</th><th colspan=2>Q1</th></tr>"
    + "".join(f"<tr><td>n{n}</td><td>{n}</td><td>{n * 2}</td></tr>" for n in range(60))
    + "</table>",
    ("SELECT count(*), sum(Q1) FROM table1", [(60, 1770)]),
    ("SELECT sum(Q1_2) FROM table1", [3540]),
)
add(
    "markdown no outer bars",
    "# T\n\nName | Count\n--- | ---:\n" + "".join(f"n{n} | {n}\n" for n in range(60)) + "\nEnd of it.\n",
    (COUNT, [60]),
    ("SELECT sum(count) FROM data", [1770]),
)
add(
    "org table",
    "".join(["| name | n |\n|------+---|\n"] + [f"| x{n} | {n} |\n" for n in range(60)]),
    (COUNT, [60]),
    ("SELECT sum(n) FROM data", [1770]),
)
add(
    "rst table",
    "====  ======  =====\nid    name    count\n====  ======  =====\n"
    + "".join(f"{n:<4}  {'n' + str(n):<6}  {n:>5}\n" for n in range(60))
    + "====  ======  =====\n",
    (COUNT, [60]),
    ("SELECT sum(count) FROM data", [1770]),
)
add(
    "pandas dots",
    "     id  amount\n"
    + "".join(f"{n:<3}  {n:>3}  {n:>4}.5\n" for n in range(30))
    + "..  ...     ...\n"
    + "".join(f"{n:<3}  {n:>3}  {n:>4}.5\n" for n in range(170, 200))
    + "\n[200 rows x 2 columns]\n",
    ("SELECT count(*) FROM lines", [64]),
)
add(
    "mysql -t vertical sum",
    "".join(
        f"*************************** {n}. row ***************************\n     Id: {n}\n   "
        f"User: u{n}\n   Time: {n * 10}\n"
        for n in range(1, 31)
    )
    + "30 rows in set (0.00 sec)\n",
    (COUNT, [30]),
    ("SELECT sum(Time) FROM data", [4650]),
)
add(
    "bom csv crlf",
    "\ufeffid,naïve,n\r\n" + "".join(f"{n},é{n},{n}\r\n" for n in range(60)),
    (COUNT, [60]),
    ("SELECT sum(n) FROM data WHERE id < 10", [45]),
)
add(
    "nmap",
    "Starting Nmap 7.95\nNmap scan report for host (10.0.0.1)\nHost is up (0.001s "
    "latency).\nNot shown: 960 closed ports\nPORT      STATE    SERVICE\n"
    + "".join(
        f"{str(n * 100) + '/tcp':<9} {'open' if n % 3 else 'filtered':<8} svc{n}\n" for n in range(1, 41)
    )
    + "\nNmap done: 1 IP address (1 host up) scanned in 1.23 seconds\n",
    (COUNT, [40]),
    ("SELECT count(*) FROM data WHERE state='filtered'", [13]),
)
add(
    "arp -a/route -n",
    "Kernel IP routing table\nDestination     Gateway         Genmask         Flags Metric Ref    Use Iface\n"
    + "".join(
        f"{'10.0.' + str(n) + '.0':<15} {'0.0.0.0':<15} {'255.255.255.0':<15} U     {n:<6} 0  "
        f"      0 eth{n % 4}\n"
        for n in range(40)
    ),
    (COUNT, [40]),
    ("SELECT sum(Metric) FROM data", [780]),
    ("SELECT Iface, count(*) FROM data GROUP BY 1 ORDER BY 1 LIMIT 1", [("eth0", 10)]),
)
add(
    "gh pr list tty",
    "\nShowing 30 of 45 open pull requests in o/r\n\nID     TITLE                  BRANCH        CREATED AT\n"
    + "".join(
        f"#{n:<5} Fix the thing {n:<8} fix/thing-{n:<3} about {n} hours ago\n" for n in range(100, 130)
    ),
    (COUNT, [30]),
    ("SELECT branch FROM data WHERE id = '#107'", ["fix/thing-107"]),
)
add(
    "flyctl",
    table(
        [("NAME", "OWNER", "STATUS", "LATEST DEPLOY")]
        + [
            (f"app-{n}", "personal", "deployed" if n % 3 else "suspended", f"{n}h ago" if n % 2 else "")
            for n in range(50)
        ],
        gap=1,
    ).replace("\n", " \n"),
    (COUNT, [50]),
    ("SELECT count(*) FROM data WHERE status='suspended'", [17]),
)
