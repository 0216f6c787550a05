import assert from "node:assert/strict";
import { test } from "node:test";
import { generateText, jsonSchema, stepCountIs, tool, wrapLanguageModel } from "ai";
import { SpillgateTools, spillgate } from "../src/ai.js";
import { model } from "./model.js";
import { LOG, printed, service, tell, tellHandingOn, usedTokens } from "./story.js";

const readLog = (story, more = {}) =>
  tool({ description: "Reads the log.", inputSchema: jsonSchema({ type: "object" }), execute: story.readLog, ...more });
const asked = { prompt: "Which disk is full?", stopWhen: stepCountIs(5) };

tell("AI SDK: tools appear by prepareStep", async (story, options, stopped) => {
  const gate = new SpillgateTools({ ...options, sessionId: "ai" });
  const toModelOutput = ({ output }) => ({ type: "text", value: output.toUpperCase() });
  const tools = gate.govern({ read_log: readLog(story, stopped ? {} : { toModelOutput }) });
  const { text } = await generateText({
    ...asked, model: model(story), tools, instructions: "Be brief.", prepareStep: gate.prepareStep,
  });
  story.check(text);
  assert.equal(story.system[0], "Be brief.");
  if (stopped) return;
  assert.equal(story.system[1], "Be brief.");
  assert.equal(await usedTokens(options, "ai"), 40_002);
});

tell("AI SDK: as it is printed", async (story, options) => {
  const Tools = class extends SpillgateTools {
    constructor(given) {
      super({ ...options, ...given });
    }
  };
  const names = { generateText, SpillgateTools: Tools, model: model(story), ...asked, tools: { read_log: readLog(story) } };
  story.check(await printed("// AI SDK", "text", names));
});

tell("AI SDK: one function", async (story, options) => {
  const tools = spillgate({ read_log: readLog(story) }, { ...options, sessionId: "ai-one" });
  const { text } = await generateText({ ...asked, model: model(story), tools });
  story.check(text, { toolsAtOnce: true });
  assert.deepEqual(story.offered[0], ["read_log", "tool_output"]);
});

tell("AI SDK: the model middleware, and a tool that yields", async (story, options) => {
  const gate = new SpillgateTools({ ...options, sessionId: "ai-middleware" });
  const tools = {
    read_log: readLog(story, {
      async *execute() {
        yield "reading";
        yield await story.readLog();
      },
    }),
    ...gate.tools,
  };
  const wrapped = wrapLanguageModel({ model: model(story), middleware: gate.middleware });
  const { text } = await generateText({ ...asked, model: wrapped, tools });
  story.check(text);
});

test("AI SDK: a model that numbers its calls from call_0 in each turn loses nothing", async () => {
  const { url, stop } = await service();
  try {
    const options = { baseUrl: url, sessionId: "ai-turns" };
    const logs = [`one\n${LOG}`, "two", `three\n${LOG}`, "four"];
    for (const way of ["prepareStep", "middleware"]) {
      const seen = [];
      let turn = 0;
      const story = {
        step: (_, results) => {
          seen.push(...results.slice(seen.length));
          return seen.length < logs.length ? [["read_log", {}]] : [];
        },
      };
      const tools = {
        read_log: readLog(story, {
          execute: async () => logs[turn++],
          toModelOutput: ({ output }) => ({ type: "text", value: way === "middleware" ? output : output.toUpperCase() }),
        }),
      };
      const gate = new SpillgateTools(options);
      const given = way === "middleware"
        ? { model: wrapLanguageModel({ model: model(story), middleware: gate.middleware }), tools: { ...tools, ...gate.tools } }
        : { model: model(story), tools: gate.govern(tools), prepareStep: gate.prepareStep };
      const { text } = await generateText({ ...asked, ...given, stopWhen: stepCountIs(6) });
      assert.equal(text, "done");
      assert.deepEqual([seen[1], seen[3]], way === "middleware" ? ["two", "four"] : ["TWO", "FOUR"]);
      for (const n of [0, 2]) {
        const [handle] = /session-\S+?\/file-[0-9a-f-]{36}/.exec(seen[n]);
        assert.equal(await (await fetch(`${url}/results/${handle}/content`)).text(), logs[n]);
      }
    }
  } finally {
    await stop();
  }
});

test("AI SDK: the model middleware governs what is text or data in a result of any type", async () => {
  const answer = async (url, { body }) => {
    if (url.includes("/tools")) return Response.json({ tools: [], instructions: "" });
    const { content, is_error } = JSON.parse(body);
    const stored = { outcome: "store", complete: false, content: `stored, ${is_error}: ${content}` };
    return Response.json({ ...stored, handle: "session-a/file-b", budget: { exhausted: false } });
  };
  const { transformParams } = new SpillgateTools({ baseUrl: "http://spillgate", fetch: answer }).middleware;
  const picture = { type: "file-data", data: "AA==", mediaType: "image/png" };
  const outputs = [
    { type: "text", value: "a" },
    { type: "error-json", value: { code: 1 } },
    { type: "content", value: [{ type: "text", text: "a" }, picture, { type: "text", text: "b" }] },
    { type: "content", value: [picture] },
    { type: "execution-denied" },
  ];
  const results = outputs.map((output) => ({ type: "tool-result", toolName: "t", toolCallId: "c", output }));
  const { prompt } = await transformParams({ params: { prompt: [{ role: "tool", content: results }] } });
  assert.deepEqual(prompt[0].content.map((one) => one.output), [
    { type: "text", value: "stored, false: a" },
    { type: "error-text", value: 'stored, true: {"code":1}' },
    { type: "content", value: [{ type: "text", text: "stored, false: a\nb" }, picture] },
    { type: "content", value: [picture] },
    { type: "execution-denied" },
  ]);
});

tellHandingOn("AI SDK", async (story, options) => {
  const inputSchema = jsonSchema({ type: "object", properties: { text: { type: "string" } } });
  const save = tool({ description: "Saves a text.", inputSchema, execute: story.save });
  const gate = new SpillgateTools({ ...options, sessionId: "ai-handing-on" });
  const tools = gate.govern({ read_log: readLog(story), save });
  const run = await generateText({ ...asked, model: model(story), tools, prepareStep: gate.prepareStep });
  story.checkSaved(run.text);
  assert.ok(!JSON.stringify(run.steps.map((one) => one.response.messages)).includes(LOG.slice(0, 100)));
});

test("AI SDK: what a tool throws is governed", async () => {
  const { url, stop } = await service();
  try {
    const gate = new SpillgateTools({ baseUrl: url, sessionId: "ai-throws" });
    for (const [thrown, shown] of [[LOG, "Tool output is too large ("], ["no such disk", "no such disk"]]) {
      const tools = gate.govern({ read_log: readLog({}, { execute: async () => { throw new Error(thrown); } }) });
      const failed = tools.read_log.execute({}, { toolCallId: thrown.slice(0, 9), messages: [] });
      await assert.rejects(failed, (error) => error.message.startsWith(shown) && error.message.length < 1500);
    }
  } finally {
    await stop();
  }
});
