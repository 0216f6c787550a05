/** A model of the AI SDK that tells the story. Mastra takes it, too. */

import { MockLanguageModelV4 } from "ai/test";

const text = (output) => (output.type === "text" ? output.value : JSON.stringify(output.value));

/** `idOf`: the id of the n-th call of a turn. */
export const model = (story, idOf = (_, n) => `call_${n}`) =>
  new MockLanguageModelV4({
    doGenerate: async ({ prompt, tools = [] }) => {
      const parts = prompt.filter((one) => one.role === "tool").flatMap((one) => one.content);
      const system = prompt.filter((one) => one.role === "system").map((one) => one.content);
      const calls = story.step(tools.map((one) => one.name), parts.map((one) => text(one.output)), system.join("\n"));
      return {
        content: calls.length
          ? calls.map(([toolName, input], n) => ({
              type: "tool-call", toolCallId: idOf(toolName, n), toolName, input: JSON.stringify(input),
            }))
          : [{ type: "text", text: "done" }],
        finishReason: { unified: calls.length ? "tool-calls" : "stop", raw: undefined },
        usage: {
          inputTokens: { total: 40_000, noCache: 40_000, cacheRead: 0, cacheWrite: 0 },
          outputTokens: { total: 2, text: 2, reasoning: 0 },
        },
        warnings: [],
      };
    },
  });
