/** LangChain 1.x: `createAgent({ model, tools, middleware: [spillgate()] })`. */

import { ToolMessage, createMiddleware } from "langchain";
import { Spillgate, isOwnTool } from "./index.js";

/** @import { Options, Usage } from "./index.js" */

/**
 * Governs what every tool returns, and offers Spillgate's tools while there is something to ask. The session is the
 * thread's (`configurable.thread_id`), unless one is configured. A tool that returns a Command is left alone.
 * @param {Options} [options]
 */
export const spillgate = (options) => {
  const client = new Spillgate(options);
  /** @param {any} runtime */
  const sessionOf = (runtime) => client.sessionFor((runtime?.configurable ?? runtime?.config?.configurable)?.thread_id);
  /** As the model's last reply counted it. @param {any} request @returns {Usage} */
  const usageOf = (request) => {
    const reply = request.state.messages.findLast((/** @type {any} */ one) => one.usage_metadata);
    return { sessionId: sessionOf(request.runtime), usedTokens: reply?.usage_metadata.total_tokens };
  };
  return createMiddleware({
    name: "spillgate",
    wrapModelCall: async (request, handler) => {
      const { definitions, instructions } = await client.tools("openai", { sessionId: sessionOf(request.runtime) });
      if (!definitions.length) return handler(request);
      const tools = [...request.tools, ...definitions];
      if (!instructions) return handler({ ...request, tools });
      return handler({
        ...request,
        tools,
        systemMessage: request.systemMessage.concat(request.systemMessage.text ? `\n\n${instructions}` : instructions),
      });
    },
    wrapToolCall: async (request, handler) => {
      const { name, id, args } = request.toolCall;
      const usage = usageOf(request);
      const tool_call_id = id ?? "";
      if (isOwnTool(name)) {
        return new ToolMessage({ content: await client.call(name, args, usage), tool_call_id, name });
      }
      const given = await client.resolve(args, name, { sessionId: usage.sessionId });
      if (given.refusal) return new ToolMessage({ content: given.refusal, tool_call_id, name, status: "error" });
      // The message of the model keeps the arguments that it wrote.
      const message = await handler({ ...request, toolCall: { ...request.toolCall, args: given.arguments } });
      if (!ToolMessage.isInstance(message)) return message;
      const isError = message.status === "error";
      const fields = { passes_on: /** @type {const} */ ("any") };
      const governed = await client.govern(name, id, message.content, { arguments: args, isError, fields, ...usage });
      if (governed.complete) return message;
      const { artifact, status, metadata } = message;
      const content = /** @type {any} */ (governed.content);
      return new ToolMessage({ content, tool_call_id, name, artifact, status, metadata, id: message.id });
    },
  });
};
