/** OpenAI Agents SDK: `new Agent({ name, tools: new SpillgateTools({ sessionId }).govern([tool]) })`. */

import { defineToolOutputGuardrail, tool } from "@openai/agents";
import { Spillgate, TOOL_NAMES, textOf } from "./index.js";

/** @import { FunctionTool, RunContext, Tool } from "@openai/agents" */
/** @import { Definition, Options, Usage } from "./index.js" */

/** The SDK names no session: give a `sessionId`, which may be a function. */
export class SpillgateTools {
  #client;
  /** By session. @type {Map<string, Promise<Definition[]>>} */
  #asking = new Map();

  /** @param {Options} [options] */
  constructor(options) {
    this.#client = new Spillgate(options);
    /** For a tool's `outputGuardrails`, and an MCP server's `toolOutputGuardrails`. */
    this.guardrail = this.#guardrail({});
    /** Spillgate's own tools, which are enabled while there is something to ask. */
    this.tools = TOOL_NAMES.map((name) => this.#own(name));
  }

  /**
   * The tools of an agent: each with the guardrail, and Spillgate's own. Hosted tools stay as they are.
   * @param {Tool<any>[]} tools
   * @returns {Tool<any>[]}
   */
  govern(tools) {
    const guardrail = this.#guardrail({ passes_on: "any" });
    const guarded = tools.map((one) => {
      if (one.type !== "function") return one;
      /** @type {FunctionTool<any, any, any>["invoke"]} */
      const invoke = async (context, input, details) => {
        const given = await this.#client.resolve(input, one.name);
        return given.refusal ?? one.invoke(context, given.arguments, details);
      };
      return { ...one, invoke, outputGuardrails: [...(one.outputGuardrails ?? []), guardrail] };
    });
    return [...guarded, ...this.tools];
  }

  /** @param {{ passes_on?: "any" }} fields */
  #guardrail(fields) {
    return defineToolOutputGuardrail({
      name: "spillgate",
      run: async ({ context, toolCall, output }) => {
        const { name, callId, arguments: args } = /** @type {any} */ (toolCall);
        const options = { arguments: args, fields, ...usageOf(context) };
        const governed = await this.#client.govern(name, callId, textOf(output), options);
        if (governed.complete) return { behavior: { type: "allow" } };
        return { behavior: { type: "rejectContent", message: textOf(governed.content) } };
      },
    });
  }

  /** @param {string} name @returns {FunctionTool<any, any, any>} */
  #own(name) {
    /** @type {any} */
    const own = tool({
      name,
      description: name,
      strict: false,
      parameters: { type: "object", properties: {}, required: [], additionalProperties: true },
      execute: (input, context) => this.#client.call(name, /** @type {any} */ (input), usageOf(context)),
      isEnabled: async () => {
        const offered = (await this.#offered()).find((one) => one.name === name);
        if (offered) Object.assign(own, { description: offered.description, parameters: offered.inputSchema });
        return offered !== undefined;
      },
    });
    return own;
  }

  /** The SDK asks about all tools at once: that is one question to the service. */
  #offered() {
    const sessionId = this.#client.sessionFor();
    const asking = this.#asking.get(sessionId) ?? this.#client.tools("mcp", { sessionId }).then(({ definitions }) => {
      this.#asking.delete(sessionId);
      return definitions;
    });
    this.#asking.set(sessionId, asking);
    return asking;
  }
}

/** As the model's last reply counted it. @param {RunContext<any>} [context] @returns {Usage} */
const usageOf = (context) => ({ usedTokens: context?.usage?.requestUsageEntries?.at(-1)?.totalTokens });
