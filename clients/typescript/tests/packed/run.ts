/** A program of a project that has `ai` 6 or 7: its types are checked, then it runs. */

import { SpillgateTools, spillgate } from "spillgate-client/ai";
import type { Options } from "spillgate-client";
import { generateText, jsonSchema, stepCountIs, tool, wrapLanguageModel, type LanguageModel, type ToolSet } from "ai";
import * as mocks from "ai/test";

interface Story {
  readLog(): Promise<string>;
  step(offered: string[], results: string[], system: string): [string, object][];
}

type Prompt = { role: string; content: any }[];

/** The model of either version: it tells the story. */
function model(story: Story): LanguageModel {
  const { MockLanguageModelV4, MockLanguageModelV3 } = mocks as Record<string, any>;
  const Model = MockLanguageModelV4 ?? MockLanguageModelV3;
  return new Model({
    doGenerate: async ({ prompt, tools = [] }: { prompt: Prompt; tools?: { name: string }[] }) => {
      const results = prompt.filter((one) => one.role === "tool").flatMap((one) => one.content);
      const system = prompt.filter((one) => one.role === "system").map((one) => one.content).join("\n");
      const calls = story.step(tools.map((one) => one.name), results.map((one) => String(one.output.value)), system);
      const content = calls.map(([toolName, input], n) => ({
        type: "tool-call", toolCallId: `call_${n}`, toolName, input: JSON.stringify(input),
      }));
      return {
        content: calls.length ? content : [{ type: "text", text: "done" }],
        finishReason: { unified: calls.length ? "tool-calls" : "stop", raw: undefined },
        usage: {
          inputTokens: { total: 40_000, noCache: 40_000, cacheRead: 0, cacheWrite: 0 },
          outputTokens: { total: 2, text: 2, reasoning: 0 },
        },
        warnings: [],
      };
    },
  });
}

export async function tell(story: Story, options: Options): Promise<string> {
  const gate = new SpillgateTools({ ...options, sessionId: "packed" });
  const own: ToolSet = {
    read_log: tool({ description: "Reads the log.", inputSchema: jsonSchema({ type: "object" }), execute: story.readLog }),
  };
  const { text } = await generateText({
    model: model(story),
    system: "Be brief.",
    prompt: "Which disk is full?",
    tools: gate.govern(own),
    prepareStep: gate.prepareStep,
    stopWhen: stepCountIs(5),
  });
  return text;
}

/** The other two ways in, for their types. */
export const others = (options: Options, languageModel: Parameters<typeof wrapLanguageModel>[0]["model"]) => [
  spillgate({}, options),
  wrapLanguageModel({ model: languageModel, middleware: new SpillgateTools(options).middleware }),
];
