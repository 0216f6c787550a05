/** The client against a running service, and away from it. */

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";
import { createServer as createTcpServer } from "node:net";
import { after, before, test } from "node:test";
import { Spillgate, TOOL, isOwnTool, safeSessionId } from "../src/index.js";
import { LOG, service } from "./story.js";

let url;
let stop;
before(async () => ({ url, stop } = await service()));
after(async () => await stop?.());

test("a run governs, offers, calls, reports and ends", async () => {
  process.env.SPILLGATE_URL = ""; // As good as unset.
  const client = new Spillgate({ baseUrl: url.replace("http://", ""), timeout: undefined, cutChars: undefined });
  assert.doesNotThrow(() => new Spillgate());
  delete process.env.SPILLGATE_URL;
  const run = await client.session("run-js", { context_window: 100_000, model: "gpt-4o" });
  assert.deepEqual((await run.tools()).definitions, []);
  const small = await run.govern("read_log", "call_1", "two\nlines", { arguments: { path: "a" } });
  assert.deepEqual([small.content, small.outcome, small.complete], ["two\nlines", "pass", true]);
  const large = await run.govern("read_log", "call_2", LOG, { usedTokens: 40_000, turn: 1 });
  const again = await run.govern("read_log", "call_2", LOG, { usedTokens: 40_000, turn: 1 });
  assert.deepEqual([large.outcome, large.complete, large.handle], ["store", false, again.handle]);
  assert.match(large.content, /^Tool output is too large \(/);
  const { definitions, instructions } = await run.tools("anthropic");
  assert.deepEqual(definitions.map((one) => one.name), ["tool_output"]);
  assert.equal(instructions, "");
  const [listed] = (await run.tools("mcp")).definitions;
  assert.deepEqual({ name: listed.name, description: listed.description, inputSchema: listed.inputSchema }, TOOL);
  const grep = { handle: large.handle, pattern: "ERROR" };
  assert.match(await run.call("tool_output", grep, { usedTokens: 41_000 }), /4508: line 4507 ERROR/);
  assert.match(await run.call("tool_output_lines", '{"handle": "x"}'), /`lines` is missing/);
  const blocks = [{ type: "text", text: "a" }, { type: "image", data: "AA==", mimeType: "image/png" }];
  assert.deepEqual((await run.govern("shot", "call_3", blocks)).content, blocks);
  assert.equal((await run.govern("mcp__spillgate__tool_output", "call_4", LOG)).outcome, "pass");
  assert.equal((await run.report(50_000, 7)).used_tokens, 50_000);
  const loop = {};
  loop.self = loop;
  for (const given of [{ n: 1n }, loop, { text: "x".repeat(1.1e6) }, [NaN]])
    assert.equal((await run.govern("t", null, LOG, { arguments: given, usedTokens: null, sessionId: "" })).outcome, "store");
  const shown = [Buffer.from("\ufeffé"), new Uint8Array([104, 105]), { n: 1n }, loop, [{ type: "text", text: null }]];
  const texts = ["\ufeffé", "hi", "{ n: 1n }", "<ref *1> { self: [Circular *1] }", shown[4]];
  for (const [index, one] of shown.entries()) assert.deepEqual((await run.govern("t", null, one)).content, texts[index]);
  assert.ok((await run.govern("t", "call_5", "word ".repeat(50), { usedTokens: 99_999, turn: 8 })).exhausted);
  await run.end();
  const ended = await client.govern("t", "call_6", LOG, { sessionId: "run-js" });
  assert.deepEqual([ended.outcome, ended.complete], ["unreached", false]);
});

test("an option that no method knows is an error", async () => {
  const unknown = (name) => ({ name: "TypeError", message: new RegExp(`no option "${name}"`) });
  assert.throws(() => new Spillgate({ baseURL: "http://127.0.0.1:1" }), unknown("baseURL"));
  const client = new Spillgate({ baseUrl: "http://127.0.0.1:1", patience: 0 });
  await assert.rejects(client.govern("t", null, "x", { session_id: "s" }), unknown("session_id"));
  await assert.rejects(client.check("t", { byte: 1 }), unknown("byte"));
  await assert.rejects(client.tools("mcp", { session: "s" }), unknown("session"));
  await assert.rejects(client.call("tool_output", {}, { used: 1 }), unknown("used"));
  await assert.rejects(client.report(1, 1, { session: "s" }), unknown("session"));
  await assert.rejects(client.session("s", { window: 1 }), unknown("window"));
});

test("a size is checked before the tool is called", async () => {
  const client = new Spillgate({ baseUrl: url });
  assert.equal((await client.check("read_file", { bytes: 100 })).allowed, true);
  const refused = await client.check("read_file", { bytes: 481_213 });
  assert.deepEqual([refused.allowed, refused.trigger], [false, "size_cap"]);
  assert.match(refused.content, /^Error: File content \(~481213 bytes\)/);
  assert.equal((await client.check("read_file", { bytes: 481_213, limit: 50 })).allowed, true);
  const away = new Spillgate({ baseUrl: "http://127.0.0.1:1", patience: 0 });
  assert.equal((await away.check("read_file", { bytes: 481_213 })).allowed, true);
});

test("a large result is sent as text, with its fields in the query, and kept whole", async () => {
  delete process.env.SPILLGATE_URL;
  const asked = [];
  const fetching = (url, request) => {
    asked.push(request.headers["Content-Type"]);
    return fetch(url, request);
  };
  const client = new Spillgate({ baseUrl: url, sessionId: "large-js", timeout: 100_000, fetch: fetching });
  const text = "a line of é \u{1F600}\n".repeat(70_000);
  assert.ok(Buffer.byteLength(text) > 1 << 20);
  for (const [callId, sent] of [["call_1", text], ["call_2", [{ type: "text", text }, { type: "image", data: "AA==" }]]]) {
    const options = { arguments: { path: "a b&c" }, isError: true, usedTokens: 10, turn: 1, fields: { policy: { max_bytes: 100 } } };
    const { outcome, handle } = await client.govern("read_log", callId, sent, options);
    assert.equal(outcome, "store");
    const info = await (await fetch(`${url}/results/${handle}`)).json();
    assert.deepEqual([info.tool_name, info.is_error, info.tool_arguments], ["read_log", true, '{"path":"a b&c"}']);
    const kept = await (await fetch(`${url}/results/${handle}/content`)).text();
    assert.ok(kept === (sent === text ? text : `${text}\n{"type":"image","data":"AA=="}`));
  }
  const long = { arguments: "x".repeat(20_000), sessionId: "unbounded", fields: { policy: { max_bytes: 0 } } };
  const passed = await client.govern("read_log", "call_3", text.slice(0, 900_000), long);
  assert.deepEqual([passed.outcome, passed.content.length], ["pass", 900_000]);
  assert.deepEqual(asked, Array(3).fill("text/plain; charset=utf-8"));
});

test("of large blocks only what was searched for secrets passes", async () => {
  const client = new Spillgate({ baseUrl: url, sessionId: "redacts-js", timeout: 100_000 });
  const picture = { type: "image", data: "AA==" };
  const options = { fields: { policy: { max_bytes: 0, redact: ["secrets"] } } };
  for (const [lines, isWhole] of [[10, true], [150_000, false]]) {
    const text = { type: "text", text: "a line\n".repeat(lines), _meta: { trace: "x" } };
    const { outcome, complete, content } = await client.govern("t", `r${lines}`, [text, picture], options);
    assert.deepEqual([outcome, complete], ["pass", isWhole]);
    assert.ok(JSON.stringify(content) === JSON.stringify([isWhole ? text : { type: "text", text: text.text }, picture]));
  }
});

test("what was lost is sent again until patience is over, and fails open", async () => {
  const busy = { code: "overloaded", retryable: true, detail: "Later.", stored: false };
  const passed = { outcome: "pass", complete: true, handle: null, budget: { exhausted: false } };
  const scripted = (...script) => {
    const asked = [];
    const slept = [];
    const answer = async (url, request) => {
      asked.push({ url, ...request });
      const next = script.shift();
      if (!next) throw new TypeError("fetch failed");
      const [status, body, headers = {}] = next;
      return new Response(JSON.stringify(body), { status, headers });
    };
    const sleep = async (milliseconds) => void slept.push(milliseconds);
    return { asked, slept, options: { baseUrl: "http://spillgate", fetch: answer, sleep } };
  };

  let { asked, slept, options } = scripted(null, [503, busy, { "Retry-After": "1" }], [200, passed]);
  let traces = 0;
  const client = new Spillgate({ ...options, apiKey: "sk-1", headers: () => ({ traceparent: `00-${++traces}` }) });
  assert.equal((await client.govern("t", null, "small")).outcome, "pass");
  assert.deepEqual(slept, [500, 1000]);
  assert.equal(new Set(asked.map((one) => one.body)).size, 1, "a retry is not the same call");
  assert.deepEqual(asked.map((one) => one.headers.traceparent), ["00-1", "00-2", "00-3"]);
  assert.equal(asked[0].headers.Authorization, "Bearer sk-1");

  const [short, ...long] = ["é".repeat(256), `a${"x".repeat(256)}`, `b${"x".repeat(256)}`];
  ({ asked, options } = scripted(...Array(3).fill([200, passed])));
  for (const callId of [short, ...long]) await new Spillgate(options).govern("t", callId, "small");
  const hashes = long.map((callId) => createHash("sha256").update(callId).digest("hex"));
  assert.deepEqual(asked.map((one) => JSON.parse(one.body).tool_call_id), [short, ...hashes]);

  ({ asked, slept, options } = scripted());
  const away = new Spillgate({ ...options, cutChars: 100, sessionId: () => "run/1" });
  const cut = await away.govern("t", "c", "x".repeat(250));
  const said = "[150 characters not shown: the result was too large, and is not stored]";
  assert.deepEqual([cut.content, cut.outcome, cut.complete], [`${"x".repeat(100)}\n${said}`, "unreached", false]);
  assert.deepEqual(slept, [500, 1000, 2000]);
  assert.deepEqual((await away.govern("t", "d", [{ type: "text", text: "a" }])).content, [{ type: "text", text: "a" }]);
  assert.match((await away.govern("t", "e", "x".repeat(99) + "🌷".repeat(9))).content, /^x{99}\n\[18 characters not shown/);
  assert.deepEqual(await away.tools(), { definitions: [], instructions: "" });
  assert.equal(await away.report(1), undefined);
  assert.match(await away.call("tool_output", {}), /^Stored outputs cannot be reached now./);
  assert.equal(asked.length, 9, "while the service is away, each call is tried once");
  assert.equal(asked[7].url, "http://spillgate/sessions/run%2F1/usage");

  ({ slept, options } = scripted([503, busy, { "Retry-After": "30" }]));
  assert.equal((await new Spillgate(options).govern("t", "c", "small")).content, "small");
  assert.deepEqual(slept, [], "the service asked for more time than there was patience");

  const slow = { code: "too_many_requests", retryable: true, detail: "Slow down.", stored: false };
  const later = [429, slow, { "Retry-After": "30" }];
  ({ slept, options } = scripted(later, later, [429, slow, { "Retry-After": "1" }], [200, passed]));
  const limited = new Spillgate(options);
  assert.equal((await limited.govern("t", "c", "small")).outcome, "unreached");
  assert.equal(await limited.call("tool_output", { handle: "h" }), "Slow down.");
  assert.equal((await limited.govern("t", "c", "small")).outcome, "pass");
  assert.deepEqual(slept, [1000], "a service that answers is not away");

  const refused = { code: "unauthorized", retryable: false, detail: "Send a key.", stored: false };
  ({ slept, options } = scripted([401, refused], [200, { text: "found", is_error: false }]));
  const wrong = new Spillgate(options);
  assert.deepEqual([(await wrong.govern("t", "c", "small")).outcome, slept], ["unreached", []]);
  assert.equal(await wrong.call("tool_output", { handle: "h" }), "found");
});

const ANSWERS = JSON.parse(readFileSync(new URL("../../../tests/clients/answers.json", import.meta.url), "utf8"));

for (const { name, status, body, times = 1, retry_after, outcome } of ANSWERS) {
  test(`no answer makes a method reject: ${name}`, async () => {
    // As on the wire: fetch reads headers as Latin-1.
    const headers = retry_after ? { "Retry-After": retry_after } : {};
    const fetch = async () => new Response(body.repeat(times), { status, headers });
    const client = new Spillgate({ baseUrl: "http://spillgate", fetch, sleep: async () => {}, patience: 0 });
    const governed = await client.govern("t", "c", "small");
    assert.equal(governed.outcome, outcome);
    assert.equal(typeof governed.exhausted, "boolean");
    assert.ok(typeof governed.content === "string" || Array.isArray(governed.content));
    const { definitions, instructions } = await client.tools();
    for (const one of definitions) assert.equal(typeof (one.function ?? one).name, "string");
    assert.equal(typeof instructions, "string");
    assert.equal(typeof (await client.call("tool_output", {}, { usedTokens: 1 })), "string");
    assert.equal(typeof ((await client.report(1))?.exhausted ?? true), "boolean");
    await (await client.session()).end();
  });
}

test("a second result under one id is sent again under an id of the client's own", async () => {
  const client = new Spillgate({ baseUrl: url });
  const governed = [];
  for (const text of [LOG, `${LOG}!`, `${LOG}?`, `${LOG}!`]) governed.push(await client.govern("t", "call_0", text));
  assert.deepEqual(governed.map((one) => one.outcome), Array(4).fill("store"));
  assert.equal(governed[1].handle, governed[3].handle);
  assert.equal(new Set(governed.map((one) => one.handle)).size, 3);
});

test("a result is not sent on to the host that an answer names", async () => {
  const reached = [];
  const servers = [0, 1].map((number) =>
    createServer((request, response) => {
      reached.push(number);
      const { port } = servers[1].address();
      const passed = JSON.stringify({ outcome: "store", complete: false, content: "forged", budget: {} });
      response.writeHead(number ? 200 : 307, { location: `http://127.0.0.1:${port}/results` }).end(passed);
    }).listen(0, "127.0.0.1"),
  );
  try {
    await Promise.all(servers.map((server) => new Promise((done) => server.on("listening", done))));
    const client = new Spillgate({ baseUrl: `http://127.0.0.1:${servers[0].address().port}`, sleep: async () => {} });
    assert.equal((await client.govern("t", "c", "small")).content, "small");
    assert.ok(reached.length && !reached.includes(1));
  } finally {
    for (const server of servers) server.close().closeAllConnections();
  }
});

test("an answer that never ends is given up, and no bytes of a service make a call reject", async () => {
  const head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n";
  const answers = [
    `${head}Content-Length: 999999999999999\r\n\r\n{}`,
    `${head}Transfer-Encoding: chunked\r\n\r\n-1\r\n{}`,
    `${head}Transfer-Encoding: chunked\r\n\r\nffffffffffffff\r\n{}`,
    `${head}${"A: b\r\n".repeat(10_000)}\r\n`,
    `${head}Content-Length: 100001\r\n\r\n{${"[".repeat(100_000)}`,
    `${head}Content-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}`,
    `HTTP/1.1 503 No\r\nRetry-After: ${"9".repeat(400)}\r\nContent-Length: 2\r\n\r\n{}`,
    "\0\xff",
    "",
  ];
  let answer = "";
  const server = createTcpServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => socket.end(answer));
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const options = { baseUrl: `http://127.0.0.1:${server.address().port}`, patience: 0, timeout: 100_000 };
  try {
    for (answer of answers) {
      const client = new Spillgate(options);
      assert.equal((await client.govern("t", "c", "small")).outcome, "unreached");
    }
  } finally {
    server.close();
  }
  const piece = Buffer.alloc(16 << 20, " ");
  let isGivenUp = false;
  const endless = () => ({ pull: (body) => body.enqueue(piece), cancel: () => (isGivenUp = true) });
  const babbling = async () => new Response(new ReadableStream(endless()));
  const client = new Spillgate({ ...options, fetch: babbling });
  assert.equal((await client.govern("t", "c", "small")).outcome, "unreached");
  assert.ok(isGivenUp);
});

test("a reference is resolved or refused, however deep", async () => {
  const reference = "spillgate://session-s/file-00000000-0000-4000-8000-000000000000";
  const client = new Spillgate({ baseUrl: "http://127.0.0.1:9", patience: 0 });
  const within = [];
  within.push(within);
  let deep = reference;
  for (let depth = 0; depth < 50_000; depth++) deep = [deep];
  const text = `${"[".repeat(50_000)}"${reference}"${"]".repeat(50_000)}`;
  for (const nested of [deep, [within, reference], text]) assert.match((await client.resolve(nested)).refusal, /too deeply/);
  assert.match((await client.resolve(reference)).refusal, /cannot be read now/);
  for (const other of [within, "no JSON", `see ${reference}`, '"spillgate://']) assert.equal((await client.resolve(other)).refusal, null);
});

test("names", () => {
  assert.deepEqual(["tool_output", "mcp__spillgate__tool_output_grep", "my_tool_outputs"].map(isOwnTool), [true, true, false]);
  const names = ["thread/7 ü", "+49 30", "_x", "7".repeat(200)];
  assert.deepEqual(names.map(safeSessionId), ["thread-7--", "_+49-30", "_x", "7".repeat(128)]);
  assert.throws(() => new Spillgate({ baseUrl: "http://sidecar:port" }), TypeError);
  assert.throws(() => new Spillgate({ fetch }), /needs `baseUrl`/);
});
