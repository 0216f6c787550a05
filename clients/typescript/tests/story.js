/** A real service for the tests of the adapters, and what every framework's model must see in three steps. */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { readFileSync } from "node:fs";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const SPILLGATE = fileURLToPath(new URL("../../../.venv/bin/spillgate", import.meta.url));
const PAGE = new URL("../../../docs/clients.md", import.meta.url);
const lines = Array.from({ length: 6000 }, (_, n) => `line ${n} ${n === 4507 ? `ERROR disk ${n} is full` : "ok"}\n`);
export const LOG = lines.join("");

/** Starts a service; `stop` ends it. With STARTED_SERVICE, that one is used, and not ended. */
export async function service() {
  const started = process.env.STARTED_SERVICE;
  if (started) return { url: started, stop: async () => {} };
  // It is not to be found by the hooks of the person who runs the tests.
  const settings = { SPILLGATE_PORT: "0", SPILLGATE_STORAGE_URL: "memory:", SPILLGATE_LOG_FORMAT: "json", XDG_STATE_HOME: "/dev/null" };
  const child = spawn(SPILLGATE, ["serve"], { env: { ...process.env, ...settings }, stdio: ["ignore", "ignore", "pipe"] });
  const ended = new Promise((done) => child.once("exit", done));
  const stop = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  const said = [];
  for await (const line of createInterface(child.stderr)) {
    said.push(line);
    const told = line.startsWith("{") ? JSON.parse(line) : {};
    if (told.event === "listening") {
      child.stderr.resume();
      return { url: told.address, stop };
    }
  }
  throw new Error(said.join("\n"));
}

/** What the model sees, step by step; a framework's fake model tells it by `step`. */
export class Story {
  offered = [];
  results = [];
  system = [];

  /** @param {(() => Promise<void>) | null} stop is called by the tool in mid-run */
  constructor(stop = null) {
    this.stop = stop;
    this.readLog = this.readLog.bind(this);
  }

  async readLog() {
    await this.stop?.();
    return LOG;
  }

  /** The calls that the model makes now: [name, arguments]; none: it says `done`. */
  step(offered, results, system = "") {
    this.offered.push(offered);
    this.results.push(results);
    this.system.push(system);
    if (this.offered.length === 1) return [["read_log", {}]];
    if (this.offered.length > 2 || this.stop) return [];
    const found = /session-\S+?\/file-[0-9a-f-]{36}/.exec(results.at(-1));
    assert.ok(found, results.at(-1).slice(0, 300));
    return [["tool_output", { handle: found[0], extract: "Which disk is full? ERROR" }]];
  }

  check(reply, { toolsAtOnce = false } = {}) {
    assert.equal(reply, "done");
    assert.ok(toolsAtOnce || !this.offered[0].includes("tool_output"), "the tools came too early");
    if (this.stop) {
      const [text] = this.results[1];
      assert.ok(text.startsWith(LOG.slice(0, 12_288)));
      const left = LOG.length - 12_288;
      assert.ok(text.endsWith(`[${left} characters not shown: the result was too large, and is not stored]`));
      assert.equal(this.offered.length, 2);
      assert.ok(toolsAtOnce || !this.offered[1].includes("tool_output"));
      return;
    }
    assert.ok(this.offered[1].includes("tool_output"));
    assert.match(this.results[1][0], new RegExp(`^Tool output is too large \\(${LOG.length} bytes, 6000 lines, `));
    const answer = this.results[2].at(-1);
    assert.match(answer, /^ABSTRACT FROM TOOL OUTPUT read_log WITH HANDLE session-/);
    assert.ok(answer.includes("4507 ERROR disk 4507 is full"));
  }
}

/** Reads a log, saves it unread, and refers to it once more in a way that is refused. */
class HandingOn extends Story {
  saved = [];

  save = ({ text }) => {
    this.saved.push(text);
    return "saved";
  };

  step(offered, results) {
    this.offered.push(offered);
    this.results.push(results);
    if (this.offered.length === 1) return [["read_log", {}]];
    const reference = `spillgate://${/session-\S+?\/file-[0-9a-f-]{36}/.exec(results[0])[0]}`;
    return [[["save", { text: reference }]], [["save", { text: `${reference}#rows=1` }]], []][this.offered.length - 2];
  }

  checkSaved(reply) {
    assert.equal(reply, "done");
    const [message, saved, refusal] = this.results.at(-1);
    assert.ok(message.includes("\nTo hand it to another tool unread, pass spillgate://<handle> as the whole argument."));
    assert.deepEqual(this.saved, [LOG]);
    assert.equal(saved, "saved");
    assert.ok(refusal.endsWith(" The tool did not run."), refusal);
  }
}

/** Runs `run(story, options)`: the model hands a stored result to a tool. */
export function tellHandingOn(name, run) {
  test(`${name}: a stored result is handed on unread`, async () => {
    const { url, stop } = await service();
    try {
      await run(new HandingOn(), { baseUrl: url });
    } finally {
      await stop();
    }
  });
}

/** What a block of docs/clients.md makes: it begins with `comment`, its imports come by `names`, it makes `made`. */
export async function printed(comment, made, names) {
  const blocks = readFileSync(PAGE, "utf8").match(/(?<=^```js\n)[^]*?(?=^```)/gm);
  const code = blocks.find((one) => one.startsWith(comment)).replace(/^import .*\n/gm, "");
  const AsyncFunction = (async () => {}).constructor;
  return new AsyncFunction(...Object.keys(names), `${code}\nreturn ${made};`)(...Object.values(names));
}

/** Runs `run(story, options)` with a service that answers, and with one that its tool stops. */
export function tell(name, run) {
  for (const stopped of [false, true]) {
    test(`${name}, ${stopped ? "with the service stopped in mid-run" : "and the model asks back"}`, async () => {
      const { url, stop } = await service();
      try {
        await run(new Story(stopped ? stop : null), { baseUrl: url, patience: 0 }, stopped);
      } finally {
        await stop();
      }
    });
  }
}

/** The tokens that a session has reported. */
export async function usedTokens(options, session) {
  const answer = await fetch(`${options.baseUrl}/sessions/${session}`);
  return (await answer.json()).budget.used_tokens;
}
