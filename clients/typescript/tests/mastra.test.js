import assert from "node:assert/strict";
import { Agent } from "@mastra/core/agent";
import { MockMemory } from "@mastra/core/memory";
import { createTool } from "@mastra/core/tools";
import { z } from "zod";
import { spillgate } from "../src/mastra.js";
import { model } from "./model.js";
import { printed, tell, usedTokens } from "./story.js";

tell("Mastra", async (story, options, stopped) => {
  const readLog = createTool({ id: "read_log", description: "Reads.", inputSchema: z.object({}), execute: story.readLog });
  // Its list of messages knows a call by its id alone.
  const idOf = (name) => `call-${name}`;
  const given = { id: "a", name: "a", instructions: "Be brief.", model: model(story, idOf), tools: { read_log: readLog } };
  const Remembering = class extends Agent {
    constructor(config) {
      super({ ...config, memory: new MockMemory() });
    }
  };
  const names = { ...given, Agent: Remembering, spillgate: () => spillgate(options) };
  const agent = await printed("// Mastra", "agent", names);
  const result = await agent.generate("Which disk is full?", { memory: { thread: "mastra/1", resource: "r" } });
  story.check(result.text);
  if (stopped) return;
  assert.equal(story.system[1], story.system[0]);
  assert.equal(await usedTokens(options, "mastra-1"), 40_002);
});
