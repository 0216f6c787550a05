import assert from "node:assert/strict";
import { test } from "node:test";
import { Agent, Runner, tool } from "@openai/agents";
import { SpillgateTools } from "../src/openai-agents.js";
import { printed, tell, tellHandingOn, usedTokens } from "./story.js";

const model = (story) => ({
  async getResponse({ input, tools }) {
    const items = typeof input === "string" ? [] : input.filter((one) => one.type === "function_call_result");
    const results = items.map(({ output }) => (typeof output === "string" ? output : output.text));
    const calls = story.step(tools.map((one) => one.name), results);
    const output = calls.length
      ? calls.map(([name, args]) => ({
          type: "function_call", callId: `${name}-${results.length}`, name, arguments: JSON.stringify(args), status: "completed",
        }))
      : [{ type: "message", role: "assistant", status: "completed", content: [{ type: "output_text", text: "done" }] }];
    const usage = { requests: 1, inputTokens: 40_000, outputTokens: 2, totalTokens: 40_002 };
    return { output, usage };
  },
});

tell("OpenAI Agents", async (story, options, stopped) => {
  const parameters = { type: "object", properties: {}, required: [], additionalProperties: true };
  const readLog = tool({ name: "read_log", description: "Reads.", strict: false, parameters, execute: story.readLog });
  const Tools = class extends SpillgateTools {
    constructor(given) {
      super({ ...options, ...given });
    }
  };
  const names = { Agent, SpillgateTools: Tools, model: model(story), readLog, currentRun: () => "openai-agents" };
  const { gate, agent } = await printed("// OpenAI Agents", "{ gate, agent }", names);
  const result = await new Runner({ tracingDisabled: true }).run(agent, "Which disk is full?");
  story.check(result.finalOutput);
  if (stopped) return;
  assert.equal(await usedTokens(options, "openai-agents"), 40_002);
  assert.deepEqual(gate.tools[0].parameters.required, ["handle"]);
});

test("runs at the same time are each offered the tools of their own session", async () => {
  let sessionId = "stores nothing";
  const asked = [];
  const answer = async (url) => {
    asked.push(new URL(url).searchParams.get("session_id"));
    const tools = asked.at(-1) === "stores" ? [{ name: "tool_output", description: "Answers.", inputSchema: {} }] : [];
    return Response.json({ tools, instructions: "" });
  };
  const gate = new SpillgateTools({ baseUrl: "http://spillgate", sessionId: () => sessionId, fetch: answer });
  const enabled = () => Promise.all(gate.tools.map((one) => one.isEnabled()));
  const first = enabled();
  sessionId = "stores";
  assert.deepEqual([await enabled(), await first], [[true, false, false, false], Array(4).fill(false)]);
  assert.deepEqual(asked, ["stores nothing", "stores"]);
});

tellHandingOn("OpenAI Agents", async (story, options) => {
  const parameters = { type: "object", properties: {}, required: [], additionalProperties: true };
  const readLog = tool({ name: "read_log", description: "Reads.", strict: false, parameters, execute: story.readLog });
  const save = tool({ name: "save", description: "Saves.", strict: false, parameters, execute: story.save });
  const gate = new SpillgateTools({ ...options, sessionId: "openai-agents-handing-on" });
  const agent = new Agent({ name: "a", model: model(story), tools: gate.govern([readLog, save]) });
  const result = await new Runner({ tracingDisabled: true }).run(agent, "Save it.");
  story.checkSaved(result.finalOutput);
});
