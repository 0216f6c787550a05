"""What a competent user would write in an afternoon: the reference for speed.

FastAPI with a pydantic body, an exact tiktoken count, a file for what is too large, one SQLite insert a
request. No budgets, no retries, no durability: less than Spillgate does.
"""

import os
import sqlite3
import uuid
from pathlib import Path

from fastapi import FastAPI
from pydantic import BaseModel

from bench.ranks import o200k_base

folder = Path(os.environ["TWIN_FOLDER"])
encoding = o200k_base()
database = sqlite3.connect(folder / "twin.db", check_same_thread=False, isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("PRAGMA synchronous=NORMAL")
database.execute(
    "CREATE TABLE IF NOT EXISTS entries (id TEXT, tool TEXT, bytes INT, tokens INT, outcome TEXT)"
)
app = FastAPI()


class Result(BaseModel):
    tool_name: str
    content: str


@app.post("/results")
async def results(result: Result) -> dict[str, object]:
    tokens = len(encoding.encode_ordinary(result.content))
    size = len(result.content.encode())
    name = str(uuid.uuid4())
    stored = size > 12288
    if stored:
        (folder / name).write_text(result.content)
    database.execute(
        "INSERT INTO entries VALUES (?, ?, ?, ?, ?)",
        (name, result.tool_name, size, tokens, "store" if stored else "pass"),
    )
    content = f"Tool output is too large ({size} bytes). Handle: {name}" if stored else result.content
    return {"outcome": "store" if stored else "pass", "content": content, "tokens": tokens}


@app.get("/livez")
async def livez() -> dict[str, str]:
    return {"status": "ok"}
