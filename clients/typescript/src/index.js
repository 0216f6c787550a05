/** The client of Spillgate, the sidecar that bounds what the tools of agents return. */

import { inspect } from "node:util";
import { NoOwnService, fetchAt, fetchOwn } from "./own-service.js";

export { TOOL } from "./tool.js";

/** @import { components } from "../types/openapi.js" */

/** @typedef {components["schemas"]["ResultOut"]} ResultOut */
/** @typedef {components["schemas"]["ResultIn"]} ResultIn */
/** @typedef {components["schemas"]["SessionIn"]} SessionIn */
/** @typedef {components["schemas"]["BudgetOut"]} BudgetOut */
/** @typedef {{ type: string, [key: string]: unknown }} Block A content block of an MCP result. */
/** @typedef {Record<string, any>} Definition A tool, as the asked format has it. */

/**
 * @typedef {object} Options
 * @property {string} [baseUrl] Default: SPILLGATE_URL, or the user's own service. `unix:/path` is a Unix socket.
 * @property {string} [apiKey] Default: SPILLGATE_KEY.
 * @property {string | (() => string)} [sessionId] Default: SPILLGATE_SESSION. A function is asked for each call.
 * @property {number} [timeout] Bounds one try, in milliseconds (10,000).
 * @property {number} [patience] Bounds the retries of a call, in milliseconds (4,000).
 * @property {number} [cutChars] A result that the service did not take passes if it has at most that many
 *   characters (12,288); else it is cut there, and says so.
 * @property {Record<string, string> | (() => Record<string, string>)} [headers] Go with every request: tracing.
 * @property {typeof fetch} [fetch] In place of the global one, for a proxy say. It needs `baseUrl`.
 * @property {(milliseconds: number) => Promise<void>} [sleep]
 */

/**
 * @typedef {object} Usage
 * @property {number} [usedTokens] Tokens in the context, as the model's provider counted them last.
 * @property {number} [turn] Numbers the report.
 * @property {string} [sessionId] Not the client's own.
 */

/**
 * For `await using`. Empty where the compiler's `lib` has no `Symbol.asyncDispose`.
 * @typedef {Record<SymbolConstructor[keyof SymbolConstructor & "asyncDispose"], () => Promise<void>>} Disposed
 */

/**
 * @typedef {object} Size At least one of `bytes`, `tokens` and `rows`.
 * @property {number} [bytes]
 * @property {number} [tokens]
 * @property {number} [rows]
 * @property {number} [limit] The limit of a read that gets a part, which may go ahead.
 * @property {string} [model]
 * @property {string} [sessionId] Not the client's own.
 */

/** @typedef {Usage & { arguments?: unknown, isError?: boolean, fields?: Partial<ResultIn> }} ResultOptions */

/**
 * What became of a result. `content` is for the model: the result itself if it passed, else a text. `outcome` is the
 * service's word, as `pass` or `store`, or `unreached` if the service did not decide.
 * `exhausted`: the window is spent, take the final turn.
 * @typedef {object} Governed
 * @property {string | Block[]} content
 * @property {string} outcome
 * @property {boolean} complete
 * @property {string | null} handle
 * @property {boolean} exhausted
 * @property {ResultOut} [answer]
 */

/** The tools that a service may offer. `tools()` says which it offers now. */
export const TOOL_NAMES = ["tool_output", "tool_output_grep", "tool_output_lines", "tool_output_query"];

const OPTIONS = ["baseUrl", "apiKey", "sessionId", "timeout", "patience", "cutChars", "headers", "fetch", "sleep"];
const USAGE = ["usedTokens", "turn", "sessionId"];
const RESULT = [...USAGE, "arguments", "isError", "fields"];
const SIZE = ["bytes", "tokens", "rows", "limit", "model", "sessionId"];
const SESSION = ["context_window", "buffer_tokens", "max_output_tokens", "model", "policy", "reads"];

const WAITS = [500, 1000, 2000];
const CALL_TIMEOUT = 130_000; // The longest deadline of an extraction is 120 s.
const RESOLVE_TIMEOUT = 45_000; // A query for an argument may wait 10 s and run 30 s.
const AWAY_TIMEOUT = 2_000;
const MAX_CALL_ID = 256;
const MAX_ARGUMENT_BYTES = 1 << 20;
const MAX_RESULT_JSON_BYTES = 1 << 20; // A larger result is sent as text, which the service streams.
const MAX_ANSWER_BYTES = 256 << 20; // An answer with a result of the largest upload is smaller.
const MAX_QUERY = 6000; // The service takes a URL of 8 KiB. With a longer query, a text is sent without its arguments.
const REFERENCE = /^spillgate:\/\/[^\s/?#]{1,400}\/[^\s/?#]{1,120}(?:[?#][^\r\n]*)?$/;
const UNRESOLVED =
  "The stored result cannot be read now, so the tool did not run. Try again later, or go on without it.";
const TOO_DEEP = "The arguments are nested too deeply. The tool did not run.";
const OWN_TOOL = /(?:^|[^A-Za-z0-9])tool_output(?:_grep|_lines|_query)?$/;

/** `tool_output` and the tools like it, with or without the prefix of an MCP client. @param {string} name */
export const isOwnTool = (name) => OWN_TOOL.test(name);

/** A framework's own id as a session id, which begins with a letter, a digit or `_`. @param {string} name */
export const safeSessionId = (name) => name.replace(/[^A-Za-z0-9._:@=+~-]/g, "-").replace(/^\W/, "_$&").slice(0, 128);

/**
 * A copy of what JSON can hold in which `textFor(reference)` stands for each string that refers to a stored result; the
 * value itself if none does. @param {any} value @param {(reference: string) => unknown} textFor @returns {any}
 */
const replaced = (value, textFor) => {
  if (typeof value === "string") return REFERENCE.test(value) ? textFor(value) : value;
  if (Array.isArray(value)) {
    const items = value.map((one) => replaced(one, textFor));
    return items.some((one, index) => one !== value[index]) ? items : value;
  }
  if (value === null || typeof value !== "object" || ![Object.prototype, null].includes(Object.getPrototypeOf(value))) return value;
  const members = Object.entries(value).map(([name, one]) => [name, replaced(one, textFor)]);
  return members.some(([name, one]) => one !== value[name]) ? Object.fromEntries(members) : value;
};

/** Whether a reference is in a value of any depth, or in one that holds itself. @param {any} value */
const refers = (value) => {
  const waiting = [value];
  const seen = new Set();
  while (waiting.length) {
    const one = waiting.pop();
    if (typeof one === "string" && REFERENCE.test(one)) return true;
    if (one === null || typeof one !== "object" || seen.has(one)) continue;
    seen.add(one);
    for (const inner of Object.values(one)) waiting.push(inner);
  }
  return false;
};

/**
 * A tool's result as the text that a model would read: JSON for what is neither text nor bytes, or, where JSON cannot
 * hold it, what Node.js prints. @param {unknown} value @returns {string}
 */
export const textOf = (value) => {
  if (typeof value === "string") return value;
  if (ArrayBuffer.isView(value)) return new TextDecoder("utf-8", { ignoreBOM: true }).decode(value);
  if (isBlocks(value)) return value.map((one) => (typeof one.text === "string" ? one.text : textOf({ ...one }))).join("\n");
  try {
    return JSON.stringify(value) ?? "";
  } catch {
    return inspect(value, { depth: Infinity, maxArrayLength: Infinity, maxStringLength: Infinity });
  }
};

const PICTURES = new Set(["image", "image_url", "input_image", "audio", "input_audio"]);

/** The text of what replaces a result, without the pictures that pass beside it. @param {string | Block[]} content */
export const textBeside = (content) =>
  textOf(typeof content === "string" ? content : content.filter((one) => !PICTURES.has(one.type)));

/** The text of arguments that the service takes: a result is governed without larger ones. @param {unknown} given */
const argumentsOf = (given) => {
  const text = textOf(given);
  return text && Buffer.byteLength(JSON.stringify(text)) <= MAX_ARGUMENT_BYTES ? text : undefined;
};

/** The id of the call names another one: the result is then sent again, under its own. */
const REUSED = "idempotency_key_reused";

/**
 * An id of its own where there is none: a retry of this call must be the same call. The SHA-256 of one that is too long.
 * @param {string | null | undefined} callId
 */
const sentCallId = async (callId) => {
  if (!callId) return `call-${crypto.randomUUID()}`;
  return [...callId].length <= MAX_CALL_ID ? callId : sha256(callId);
};

/** @param {string} text */
const sha256 = async (text) => {
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text)));
  return Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
};

/**
 * Path, body and headers of POST /results: JSON, or a large result's text with the fields in the query. Of blocks, that
 * is their text.
 * @param {Record<string, unknown>} fields @param {string | Block[]} content
 * @returns {[string, unknown, Record<string, string>]}
 */
const requestOf = (fields, content) => {
  const text = textOf(content);
  if (Buffer.byteLength(text) <= MAX_RESULT_JSON_BYTES) return ["/results", { ...fields, content }, {}];
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(fields))
    if (value != null) query.set(name, typeof value === "string" ? value : JSON.stringify(value));
  if (query.toString().length > MAX_QUERY) query.delete("tool_arguments");
  return [`/results?${query}`, text, { "Content-Type": "text/plain; charset=utf-8" }];
};

/** The body of a response. Throws if it is larger than MAX_ANSWER_BYTES. @param {Response} response */
const bodyOf = async (response) => {
  const reader = response.body?.getReader();
  const pieces = [];
  let size = 0;
  for (let read = await reader?.read(); read?.value; read = await reader?.read()) {
    size += read.value.length;
    if (size > MAX_ANSWER_BYTES) {
      await reader?.cancel();
      throw new RangeError("The answer is too large.");
    }
    pieces.push(read.value);
  }
  return new TextDecoder().decode(Buffer.concat(pieces));
};

/** @param {unknown} value @returns {value is Block[]} */
const isBlocks = (value) =>
  Array.isArray(value) && value.length > 0 && value.every((one) => typeof one?.type === "string");

/** @param {any} value @returns {value is BudgetOut} */
const isBudget = (value) => typeof value?.exhausted === "boolean";

/** Each has a name, where its format puts it. @param {any} value @returns {value is Definition[]} */
const areDefinitions = (value) =>
  Array.isArray(value) && value.every((one) => typeof (one?.function ?? one)?.name === "string");

/** Throws a TypeError if `given` has another name than these. @param {object} given @param {string[]} known */
const refuseUnknown = (given, known) => {
  const unknown = Object.keys(given).find((name) => !known.includes(name));
  if (unknown !== undefined)
    throw new TypeError(`Spillgate has no option ${JSON.stringify(unknown)}. Known are ${known.join(", ")}.`);
};

/** A field of an answer; "" if it is no text. @param {any} answer @param {string} name @returns {string} */
const textIn = (answer, name) => (typeof answer?.[name] === "string" ? answer[name] : "");

/**
 * What the service has looked through for secrets: of large blocks, the text alone.
 * @param {string | Block[]} sent @returns {string | Block[]}
 */
const searched = (sent) => {
  if (typeof sent === "string" || Buffer.byteLength(textOf(sent)) <= MAX_RESULT_JSON_BYTES) return sent;
  return sent.map((one) => (typeof one.text === "string" ? { type: one.type, text: one.text } : one));
};

/**
 * Undefined if the answer is not that of a service.
 * @param {any} answer @param {string | Block[]} sent @returns {Governed | undefined}
 */
const governedOf = (answer, sent) => {
  const passed = answer?.redacts === true ? searched(sent) : sent;
  const { outcome, complete, handle, budget, content = passed } = answer ?? {};
  const isWhole =
    typeof outcome === "string" &&
    typeof complete === "boolean" &&
    (handle === null || typeof handle === "string") &&
    (typeof content === "string" || isBlocks(content)) &&
    isBudget(budget);
  if (!isWhole) return undefined;
  return { content, outcome, complete: complete && passed === sent, handle, exhausted: budget.exhausted, answer };
};

/** The URL before a route; at a Unix socket it names no place. @param {string} [baseUrl] */
const rootOf = (baseUrl) => {
  if (!baseUrl || baseUrl.startsWith("unix:")) return "http://localhost";
  return (baseUrl.includes("://") ? baseUrl : `http://${baseUrl}`).replace(/\/+$/, "");
};

/** What sends a request to the service. @param {string} [baseUrl] @returns {(url: string, init: RequestInit) => Promise<Response>} */
const fetchFor = (baseUrl) => {
  if (!baseUrl) return fetchOwn;
  if (!baseUrl.startsWith("unix:")) return (url, init) => fetch(url, init);
  const path = baseUrl.replace(/^unix:\/*/, "/");
  return (url, init) => fetchAt(path, url, init);
};

/** Speaks to a running service. No method rejects because of the service: what it does not take fails open. */
export class Spillgate {
  #options;
  #fetch;
  #away = false;
  #unreached = "";

  /** @param {Options} [options] */
  constructor(options = {}) {
    refuseUnknown(options, OPTIONS);
    const baseUrl = options.baseUrl || process.env.SPILLGATE_URL;
    if (options.fetch && !baseUrl) throw new TypeError("A `fetch` of your own needs `baseUrl`, or SPILLGATE_URL.");
    this.#fetch = options.fetch ?? fetchFor(baseUrl);
    new URL(rootOf(baseUrl)); // Throws now rather than with the first result.
    const { timeout = 10_000, patience = 4_000, cutChars = 12_288, apiKey } = options;
    this.#options = { ...options, timeout, patience, cutChars, baseUrl, apiKey: apiKey || process.env.SPILLGATE_KEY };
  }

  /** The session that is configured, if any. @returns {string | undefined} */
  get configuredSession() {
    const { sessionId } = this.#options;
    return (typeof sessionId === "function" ? sessionId() : sessionId) || process.env.SPILLGATE_SESSION || undefined;
  }

  /** The session of a framework's conversation, unless one is configured. @param {string} [name] */
  sessionFor(name) {
    return this.configuredSession ?? (name ? safeSessionId(name) : "default");
  }

  /**
   * What the model is to read instead of a tool's result. `content` is a text, MCP content blocks, or what JSON can
   * hold. The same `callId` with the same content is stored and accounted once.
   * @param {string} toolName
   * @param {string | null | undefined} callId
   * @param {unknown} content
   * @param {ResultOptions} [options]
   * @returns {Promise<Governed>}
   */
  async govern(toolName, callId, content, options = {}) {
    refuseUnknown(options, RESULT);
    const sent = isBlocks(content) ? content : textOf(content);
    if (isOwnTool(toolName)) return { content: sent, outcome: "pass", complete: true, handle: null, exhausted: false };
    const body = {
      ...options.fields,
      session_id: options.sessionId || this.sessionFor(),
      tool_name: toolName.slice(0, 256) || "tool",
      tool_call_id: await sentCallId(callId),
      tool_arguments: argumentsOf(options.arguments),
      is_error: options.isError,
      context: usageOf(options),
    };
    const ask = () => {
      const [path, written, headers] = requestOf(body, sent);
      return this.#ask("POST", path, written, { Prefer: "return=minimal", ...headers });
    };
    let answer = await ask();
    if (answer?.code === REUSED) {
      // Some agents, or their models, count calls from 0 again and again. A retry has the same id again.
      body.tool_call_id = await sha256(JSON.stringify([body.tool_name, body.tool_call_id, sent]));
      answer = await ask();
    }
    return governedOf(answer, sent) ?? this.#cut(sent);
  }

  /**
   * Whether a result of that size would pass, before the tool is called. Nothing is stored or charged. If not, `content`
   * is what the model may be told instead. If the service cannot be reached, it is allowed.
   * @param {string} toolName
   * @param {Size} size
   * @returns {Promise<{ allowed: boolean, trigger: string | null, content: string | null }>}
   */
  async check(toolName, size) {
    refuseUnknown(size, SIZE);
    const { limit, sessionId, ...given } = size;
    const body = { ...given, paginated: limit != null, session_id: sessionId || this.sessionFor(), tool_name: toolName.slice(0, 256) || "tool" };
    const answer = await this.#ask("POST", "/check", body);
    if (answer?.allowed !== false) return { allowed: true, trigger: null, content: null };
    return { allowed: false, trigger: textIn(answer, "trigger") || null, content: textIn(answer, "content") || null };
  }

  /**
   * The tools to offer the model now, and their part of the system prompt: both empty while nothing is stored, and once
   * the window is spent.
   * @param {"openai" | "anthropic" | "mcp"} [format]
   * @param {{ sessionId?: string }} [options]
   * @returns {Promise<{ definitions: Definition[], instructions: string }>}
   */
  async tools(format = "openai", options = {}) {
    refuseUnknown(options, ["sessionId"]);
    const { sessionId } = options;
    const query = new URLSearchParams({ session_id: sessionId || this.sessionFor(), format });
    const response = await this.#send("GET", `/tools?${query}`);
    const { tools, instructions } = response?.answer ?? {};
    const isWhole = areDefinitions(tools) && typeof instructions === "string";
    return isWhole ? { definitions: tools, instructions } : { definitions: [], instructions: "" };
  }

  /**
   * The text that answers a model's call of one of these tools, whatever went wrong.
   * @param {string} name
   * @param {Record<string, unknown> | string} args
   * @param {Usage} [options]
   * @returns {Promise<string>}
   */
  async call(name, args, options = {}) {
    refuseUnknown(options, USAGE);
    const { usedTokens, turn, sessionId } = options;
    if (usedTokens != null) await this.report(usedTokens, turn, { sessionId });
    const body = { session_id: sessionId || this.sessionFor(), name: name.slice(0, 128), arguments: args || {} };
    const answer = await this.#ask("POST", "/tools/call", body, {}, CALL_TIMEOUT);
    if (!answer) return "Stored outputs cannot be reached now. Go on without them, or try once more later.";
    return textIn(answer, "text") || textIn(answer, "detail") || "The stored output could not be read.";
  }

  /**
   * The arguments of a model's call of another tool, an object or its JSON, with the text of each stored result that a
   * string refers to. If there is a `refusal`, give it to the model, and do not call the tool. Without such a string
   * nothing is sent.
   * @template Arguments
   * @param {Arguments} args
   * @param {string} [toolName]
   * @param {{ sessionId?: string | undefined }} [options]
   * @returns {Promise<{ arguments: Arguments, refusal: string | null }>}
   */
  async resolve(args, toolName = "tool", options = {}) {
    refuseUnknown(options, ["sessionId"]);
    /** @type {any} */
    let given = args;
    /** @type {string[]} */
    const references = [];
    const isJson = typeof args === "string" && !REFERENCE.test(args);
    try {
      if (isJson) given = args.includes('"spillgate:') ? JSON.parse(args) : "";
      replaced(given, (reference) => references.push(reference));
    } catch (error) {
      // No JSON, or a value that is nested too deeply or holds itself.
      return { arguments: args, refusal: error instanceof RangeError && refers(given) ? TOO_DEEP : null };
    }
    if (!references.length) return { arguments: args, refusal: null };
    const session_id = options.sessionId || this.sessionFor();
    const body = { session_id, tool_name: toolName.slice(0, 256) || "tool", arguments: references };
    const answer = await this.#ask("POST", "/arguments", body, {}, RESOLVE_TIMEOUT);
    const texts = answer?.arguments;
    if (!Array.isArray(texts) || texts.length !== references.length) {
      return { arguments: args, refusal: textIn(answer, "refusal") || UNRESOLVED };
    }
    const resolved = replaced(given, () => texts.shift());
    return { arguments: isJson ? JSON.stringify(resolved) : resolved, refusal: null };
  }

  /**
   * Reports the committed context.
   * @param {number} usedTokens
   * @param {number} [turn]
   * @param {{ sessionId?: string }} [options]
   * @returns {Promise<BudgetOut | undefined>}
   */
  async report(usedTokens, turn, options = {}) {
    refuseUnknown(options, ["sessionId"]);
    const { sessionId } = options;
    const answer = await this.#ask("POST", `${this.#path(sessionId)}/usage`, { used_tokens: usedTokens, turn });
    return isBudget(answer?.budget) ? answer.budget : undefined;
  }

  /**
   * Opens a session and gives a client that belongs to it. `end()` ends it, as `await using` does: its stored results
   * are deleted. `end({ keepResults: true })` leaves them until their retention ends.
   * @param {string} [sessionId]
   * @param {SessionIn} [fields]
   * @returns {Promise<Spillgate & { end: (options?: { keepResults?: boolean }) => Promise<void> } & Disposed>}
   */
  async session(sessionId = `run-${crypto.randomUUID()}`, fields = {}) {
    refuseUnknown(fields, SESSION);
    await this.#ask("PUT", this.#path(sessionId), fields);
    const client = new Spillgate({ ...this.#options, sessionId });
    const end = async ({ keepResults = false } = {}) => {
      await this.#send("DELETE", this.#path(sessionId) + (keepResults ? "?keep_results=true" : ""));
    };
    // Node.js 20.0 to 20.4 lacks the symbol.
    const disposed = /** @type {Disposed} */ (Symbol.asyncDispose ? { [Symbol.asyncDispose]: () => end() } : {});
    return Object.assign(client, { end }, disposed);
  }

  /** @param {string} [sessionId] */
  #path(sessionId) {
    return `/sessions/${encodeURIComponent(sessionId || this.sessionFor())}`;
  }

  /**
   * The answer, a problem that a retry does not cure in time included; undefined if the service is away. The same call again
   * is the same call. While the service is away each call is tried once.
   * @param {string} method @param {string} path @param {unknown} body
   * @param {Record<string, string>} [headers] @param {number} [timeout]
   * @returns {Promise<any>}
   */
  async #ask(method, path, body, headers, timeout) {
    let left = this.#away ? 0 : this.#options.patience;
    const sleep = this.#options.sleep ?? ((ms) => new Promise((done) => setTimeout(done, ms)));
    let response;
    for (const wait of [...WAITS, Infinity]) {
      const began = performance.now();
      response = await this.#send(method, path, body, headers, timeout);
      const told = response?.answer?.retryable;
      if (response && !(typeof told === "boolean" ? told : response.status >= 500)) {
        if (response.status >= 400 && response.answer?.code !== REUSED) {
          console.warn(`Spillgate refused: ${textIn(response.answer, "detail") || response.status}`);
        }
        return response.answer;
      }
      const pause = Math.max(wait, (response?.retryAfter ?? 0) * 1000);
      left -= pause + Math.round(performance.now() - began);
      if (left < 0) break;
      await sleep(pause);
    }
    if (response?.status === 429) {
      // The service answers: it is the tenant that has to slow down.
      console.warn(`Spillgate refused: ${textIn(response.answer, "detail") || 429}`);
      return response.answer;
    }
    const detail = textIn(response?.answer, "detail") || this.#unreached || "Spillgate cannot be reached, or cannot store.";
    if (!this.#away) console.warn(`${detail} Results are passed or cut here.`);
    this.#away = true;
    return undefined;
  }

  /**
   * @param {string} method @param {string} path @param {unknown} [body]
   * @param {Record<string, string>} [headers] @param {number} [timeout]
   */
  async #send(method, path, body, headers, timeout) {
    const { baseUrl, apiKey, headers: more } = this.#options;
    const longest = timeout ?? this.#options.timeout;
    try {
      const response = await this.#fetch(rootOf(baseUrl) + path, {
        method,
        headers: {
          "Content-Type": "application/json",
          ...(apiKey ? { Authorization: `Bearer ${apiKey}` } : {}),
          ...headers,
          ...(typeof more === "function" ? more() : more),
        },
        body: body === undefined || typeof body === "string" ? body : JSON.stringify(body),
        redirect: "error", // Another host would get the result, and write what the model reads.
        signal: AbortSignal.timeout(this.#away ? Math.min(longest, AWAY_TIMEOUT) : longest),
      });
      const text = await bodyOf(response);
      const answer = text.startsWith("{") ? JSON.parse(text) : undefined;
      if (response.ok) this.#away = false;
      const after = response.headers.get("retry-after") ?? "";
      return { status: response.status, retryAfter: /^\d+$/.test(after) ? Number(after) : 0, answer };
    } catch (error) {
      // Not reached, or the answer was lost or is no JSON.
      if (error instanceof NoOwnService) this.#unreached = error.message;
      return undefined;
    }
  }

  /** You hold the only copy: small results pass, large ones become their head. @param {string | Block[]} content */
  #cut(content) {
    const text = textOf(content);
    const most = this.#options.cutChars;
    const fate = { outcome: "unreached", handle: null, exhausted: false };
    if (text.length <= most) return { ...fate, content, complete: true };
    const head = text.slice(0, most).replace(/[\uD800-\uDBFF]$/, ""); // Providers of models refuse half a character.
    const left = text.length - head.length;
    const shown = `${head}\n[${left} characters not shown: the result was too large, and is not stored]`;
    return { ...fate, content: shown, complete: false };
  }
}

/** @param {Usage} usage */
const usageOf = ({ usedTokens, turn }) => (usedTokens == null ? undefined : { used_tokens: usedTokens, turn: turn ?? undefined });
