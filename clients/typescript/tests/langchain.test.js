import assert from "node:assert/strict";
import { BaseChatModel } from "@langchain/core/language_models/chat_models";
import { AIMessage, ToolMessage, createAgent, tool } from "langchain";
import { spillgate } from "../src/langchain.js";
import { printed, tell, tellHandingOn, usedTokens } from "./story.js";

class Model extends BaseChatModel {
  constructor(story, offered = []) {
    super({});
    Object.assign(this, { story, offered });
  }

  _llmType() {
    return "story";
  }

  bindTools(tools) {
    return new Model(this.story, tools.map((one) => one.function?.name ?? one.name));
  }

  async _generate(messages) {
    const results = messages.filter(ToolMessage.isInstance).map((one) => one.text);
    const system = messages.filter((one) => one.type === "system").map((one) => one.text);
    const calls = this.story.step(this.offered, results, system.join("\n"));
    const message = new AIMessage({
      content: calls.length ? "" : "done",
      tool_calls: calls.map(([name, args], n) => ({ name, args, id: `call_${n}` })),
      usage_metadata: { input_tokens: 40_000, output_tokens: 2, total_tokens: 40_002 },
    });
    return { generations: [{ message, text: message.text }] };
  }
}

tell("LangChain", async (story, options, stopped) => {
  const readLog = tool(story.readLog, { name: "read_log", description: "Reads the log.", schema: { type: "object", properties: {} } });
  const create = (given) => createAgent({ ...given, systemPrompt: "Be brief." });
  const names = { createAgent: create, model: new Model(story), tools: [readLog], spillgate: () => spillgate(options) };
  const agent = await printed("// LangChain", "agent", names);
  const messages = [{ role: "user", content: "Which disk is full?" }];
  const state = await agent.invoke({ messages }, { configurable: { thread_id: "langchain/1" } });
  story.check(state.messages.at(-1).text);
  assert.equal(story.system[0], "Be brief.");
  if (stopped) return;
  assert.equal(story.system[1], "Be brief.");
  assert.equal(await usedTokens(options, "langchain-1"), 40_002);
});

tellHandingOn("LangChain", async (story, options) => {
  const readLog = tool(story.readLog, { name: "read_log", description: "Reads the log.", schema: { type: "object", properties: {} } });
  const schema = { type: "object", properties: { text: { type: "string" } } };
  const save = tool(story.save, { name: "save", description: "Saves a text.", schema });
  const agent = createAgent({ model: new Model(story), tools: [readLog, save], middleware: [spillgate(options)] });
  const messages = [{ role: "user", content: "Save it." }];
  const state = await agent.invoke({ messages }, { configurable: { thread_id: "langchain-handing-on" } });
  story.checkSaved(state.messages.at(-1).text);
});
