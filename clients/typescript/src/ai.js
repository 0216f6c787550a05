/**
 * AI SDK: `const gate = new SpillgateTools()`, then
 * `generateText({ model, prompt, tools: gate.govern(tools), prepareStep: gate.prepareStep })`.
 */

import { jsonSchema, tool } from "ai";
import { Spillgate, TOOL, TOOL_NAMES, isOwnTool, textOf } from "./index.js";

/** @import { LanguageModelMiddleware, ModelMessage, ToolSet } from "ai" */
/** @import { Options } from "./index.js" */

/**
 * What `prepareStep` is given, of `ai` 6 and 7.
 * @typedef {object} Step
 * @property {readonly { usage: { totalTokens?: number | undefined } }[]} steps
 * @property {ModelMessage[]} messages
 * @property {unknown} [initialInstructions] of `ai` 7 alone
 */

/**
 * How the instructions join those of the run: in `ai` 6, which does not tell these, as a message before the others.
 * @param {string} instructions @param {ModelMessage[]} messages @param {{ initialInstructions?: unknown }} step
 * @returns {{ instructions?: string, messages?: ModelMessage[] }}
 */
function added(instructions, messages, step) {
  if (!("initialInstructions" in step)) return { messages: [{ role: "system", content: instructions }, ...messages] };
  const { initialInstructions: said } = step;
  if (said && typeof said !== "string") return {};
  return { instructions: [said, instructions].filter(Boolean).join("\n\n") };
}

/** Governs the tools of one run or of many; give a `sessionId` for each run, since the AI SDK names none. */
export class SpillgateTools {
  #client;
  /** Names of the tools that are not Spillgate's. @type {Set<string>} */
  #names = new Set();

  /** @param {Options} [options] */
  constructor(options) {
    this.#client = new Spillgate(options);
    /** Spillgate's own tools, for `tools` where the middleware governs. @type {ToolSet} */
    this.tools = Object.fromEntries(TOOL_NAMES.map((name) => [name, this.#own(name)]));
    this.prepareStep = this.prepareStep.bind(this);
  }

  /**
   * The same tools, whose results are governed, and Spillgate's own. Tools without `execute` stay as they are.
   * @param {ToolSet} tools
   * @returns {ToolSet}
   */
  govern(tools) {
    for (const name of Object.keys(tools)) this.#names.add(name);
    const governed = Object.entries(tools).map(([name, one]) => [name, this.#governed(name, one)]);
    return { ...Object.fromEntries(governed), ...this.tools };
  }

  /**
   * Offers Spillgate's tools while there is something to ask, and reports the usage of the step before.
   * @param {Step} step
   */
  async prepareStep({ steps, messages, ...step }) {
    const used = steps.at(-1)?.usage.totalTokens;
    if (used) await this.#client.report(used);
    const { names, instructions } = await this.#offered();
    return { activeTools: [...this.#names, ...names], ...(instructions ? added(instructions, messages, step) : {}) };
  }

  /**
   * For those who cannot touch the tools: governs the texts of results in the prompt, which holds all history at each
   * step, and hides Spillgate's tools until there is something to ask. `wrapLanguageModel({ model, middleware })`, and
   * `tools: { ...tools, ...gate.tools }`.
   * @type {LanguageModelMiddleware}
   */
  get middleware() {
    return {
      specificationVersion: "v4",
      transformParams: async ({ params }) => {
        const prompt = [];
        for (const message of params.prompt) {
          if (message.role !== "tool") prompt.push(message);
          else prompt.push({ ...message, content: await Promise.all(message.content.map((one) => this.#part(one))) });
        }
        const { names, instructions } = await this.#offered();
        const tools = params.tools?.filter((one) => !isOwnTool(one.name) || names.includes(one.name));
        if (instructions) prompt.unshift({ role: /** @type {const} */ ("system"), content: instructions });
        return { ...params, prompt, tools };
      },
    };
  }

  /** What is neither text nor data, such as a picture, stays. @template {{ type: string }} Part @param {Part} part */
  async #part(part) {
    const { output, toolName, toolCallId } = /** @type {any} */ (part);
    const isError = output?.type.startsWith("error-");
    const blocks = output?.type === "content" ? output.value : [];
    const texts = blocks.filter((/** @type {any} */ one) => one.type === "text");
    if (output?.value === undefined || (blocks.length && !texts.length)) return part;
    const value = blocks.length ? texts.map((/** @type {any} */ one) => one.text).join("\n") : output.value;
    const governed = await this.#client.govern(toolName, toolCallId, value, { isError });
    if (governed.complete) return part;
    const text = { type: "text", text: textOf(governed.content) };
    if (!blocks.length) return { ...part, output: { type: isError ? "error-text" : "text", value: text.text } };
    const others = blocks.filter((/** @type {any} */ one) => one.type !== "text");
    return { ...part, output: { type: "content", value: [text, ...others] } };
  }

  /** @param {string} name @param {any} one @returns {any} */
  #governed(name, one) {
    if (!one.execute) return one;
    /** Calls whose result was replaced: for these the tool's own `toModelOutput` does not fit. @type {Set<string>} */
    const replaced = new Set();
    const client = this.#client;
    return {
      ...one,
      async execute(/** @type {unknown} */ input, /** @type {any} */ options) {
        const given = await client.resolve(input, name);
        const fields = { passes_on: /** @type {const} */ ("any") };
        let result;
        try {
          result = given.refusal ?? (await one.execute.call(one, given.arguments, options));
          if (result?.[Symbol.asyncIterator]) {
            let last;
            for await (const preliminary of result) last = preliminary;
            result = last;
          }
        } catch (error) {
          if (!(error instanceof Error) || options.abortSignal?.aborted) throw error;
          // The model reads the message of what a tool throws.
          const failed = { arguments: input, fields, isError: true };
          const shown = await client.govern(name, options.toolCallId, error.message, failed);
          throw shown.complete ? error : new Error(textOf(shown.content), { cause: error });
        }
        const governed = await client.govern(name, options.toolCallId, result, { arguments: input, fields });
        // Ids repeat: some models number their calls from 0 in each turn.
        replaced.delete(options.toolCallId);
        if (governed.complete && given.refusal === null) return result;
        replaced.add(options.toolCallId);
        return governed.content;
      },
      ...(one.toModelOutput && {
        toModelOutput: (/** @type {any} */ given) =>
          replaced.has(given.toolCallId) ? { type: "text", value: given.output } : one.toModelOutput(given),
      }),
    };
  }

  /** @param {string} name @returns {any} */
  #own(name) {
    return tool({
      description: TOOL.description,
      inputSchema: jsonSchema(TOOL.inputSchema),
      execute: (input) => this.#client.call(name, /** @type {any} */ (input)),
    });
  }

  /** What the service offers now; its definitions become those of `tools`. */
  async #offered() {
    const { definitions, instructions } = await this.#client.tools("mcp");
    for (const { name, description, inputSchema } of definitions) {
      if (this.tools[name]) Object.assign(this.tools[name], { description, inputSchema: jsonSchema(inputSchema) });
    }
    return { names: definitions.map((one) => one.name), instructions };
  }
}

/**
 * `tools: spillgate(tools)`: the governed tools and `tool_output`, offered from the start. With `SpillgateTools` and its
 * `prepareStep`, what the policy offers appears only once something is stored.
 * @param {ToolSet} tools @param {Options} [options] @returns {ToolSet}
 */
export const spillgate = (tools, options) => {
  const others = TOOL_NAMES.filter((name) => name !== TOOL.name);
  const governed = Object.entries(new SpillgateTools(options).govern(tools));
  return Object.fromEntries(governed.filter(([name]) => name in tools || !others.includes(name)));
};
