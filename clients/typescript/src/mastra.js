/** Mastra: `const gate = spillgate(); new Agent({ …, inputProcessors: [gate], outputProcessors: [gate] })`. */

import { createTool } from "@mastra/core/tools";
import { Spillgate, isOwnTool, textBeside } from "./index.js";

/** @import { Options } from "./index.js" */
/** @import { ProcessInputStepArgs, ProcessOutputStepArgs, ProcessToolResultArgs } from "@mastra/core/processors" */

/**
 * One object as input and output processor: governs what every tool returns, and offers Spillgate's tools while there
 * is something to ask. The session is the memory thread's, unless one is configured. Errors of tools do not come by.
 * @param {Options} [options]
 */
export const spillgate = (options) => {
  const client = new Spillgate(options);
  /** @param {any} args */
  const sessionOf = ({ requestContext }) => client.sessionFor(requestContext?.get("MastraMemory")?.thread?.id);

  return {
    id: /** @type {const} */ ("spillgate"),

    async processToolResult(/** @type {ProcessToolResultArgs} */ args) {
      const { messageList, toolName, toolCallId, result } = args;
      if (isOwnTool(toolName)) return undefined;
      const options = { arguments: args.args, sessionId: sessionOf(args) };
      const governed = await client.govern(toolName, toolCallId, result, options);
      if (governed.complete) return undefined;
      messageList.updateToolInvocation({
        type: "tool-invocation",
        toolInvocation: {
          state: "result",
          toolName,
          toolCallId,
          args: /** @type {any} */ (args.args),
          result: textBeside(governed.content),
        },
      });
      return messageList;
    },

    async processInputStep(/** @type {ProcessInputStepArgs} */ args) {
      const sessionId = sessionOf(args);
      const { definitions, instructions } = await client.tools("mcp", { sessionId });
      if (!definitions.length) return {};
      const own = definitions.map(({ name, description, inputSchema }) => [
        name,
        createTool({
          id: name,
          description,
          inputSchema,
          execute: async (input) => client.call(name, /** @type {any} */ (input), { sessionId }),
        }),
      ]);
      const systemMessages = [...args.systemMessages, { role: /** @type {const} */ ("system"), content: instructions }];
      if (!instructions) systemMessages.pop();
      return { tools: { ...args.tools, ...Object.fromEntries(own) }, systemMessages };
    },

    async processOutputStep(/** @type {ProcessOutputStepArgs} */ args) {
      if (args.usage?.totalTokens) await client.report(args.usage.totalTokens, undefined, { sessionId: sessionOf(args) });
      return args.messageList;
    },
  };
};
