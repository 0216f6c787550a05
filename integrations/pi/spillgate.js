// Spillgate for pi: a tool result that is too large is stored, and the model reads a message instead.
// Whatever fails, the result stays as it is. `spillgate hook install pi` puts this file into the folder of
// extensions. The tools with which the model asks about what was stored appear once something is.
import { appendFile, lstat, mkdir, readFile, realpath, rename, stat } from "node:fs/promises"
import { request } from "node:http"
import { homedir } from "node:os"
import { dirname, isAbsolute, join } from "node:path"

const installed = {} // which service the plugin asks: `spillgate hook install` writes it
const { SPILLGATE_URL, SPILLGATE_UDS, SPILLGATE_STORAGE_URL, XDG_STATE_HOME } =
  process.env.SPILLGATE_URL || process.env.SPILLGATE_UDS ? process.env : { ...process.env, ...installed }
const url = SPILLGATE_URL?.replace(/\/+$/, "")
const key = process.env.SPILLGATE_KEY
const shell = "" // how any shell calls `spillgate`: `spillgate hook install` writes it
const hook = `/hooks/pi${shell && `?shell=${encodeURIComponent(shell)}`}`
const patience = Number(process.env.SPILLGATE_HOOK_TIMEOUT_MS) || 1000 // milliseconds, and 50 for each MB sent
const longestAnswer = 130_000 // milliseconds
const longestResolving = 45_000 // milliseconds: a query may wait 10 s and run 30 s
const base = XDG_STATE_HOME || join(homedir(), ".local", "state")
const state = join(isAbsolute(base) ? base : "/dev/null", "spillgate")
const mostBytes = 256 * 1024 * 1024
const payingBytes = 11_166 // three times a message of 650 bytes and an answer of 3 KB
const messageBytes = 1000

// Of an output that pi has cut: whether a message and an answer are well below what it shows.
function pays(shown) {
  const bytes = Buffer.byteLength(shown)
  return bytes >= payingBytes || bytes <= messageBytes
}

// Why a result stayed as it is; no part of the result.
async function log(error) {
  const file = join(state, "hook.log")
  await mkdir(state, { recursive: true, mode: 0o700 })
  if ((await stat(file).catch(() => null))?.size > 1 << 20) await rename(file, `${file}.1`)
  await appendFile(file, `${new Date().toISOString()} 'pi' passed: ${error.message}\n`)
}

// The user's own service, without SPILLGATE_URL: at a Unix socket that this user has bound, in a directory to which no
// other user may write. Whoever has a port may be another user.
const isOurs = (found, forbidden) => found.uid === process.geteuid?.() && !(found.mode & forbidden)

async function ownSockets() {
  if (SPILLGATE_UDS) return [SPILLGATE_UDS]
  const store = /^disk:(?:\/\/)?(.+)/.exec(SPILLGATE_STORAGE_URL ?? "")?.[1] ?? state
  const announced = await announcedSocket(join(state, "embedded", "address")).catch(() => "")
  return [join(store, "embedded", "socket"), announced].filter((path) => path)
}

// A service that listens elsewhere says so in this file, which is for this user alone.
async function announcedSocket(file) {
  const found = await lstat(file)
  return found.isFile() && isOurs(found, 0o077) ? JSON.parse(await readFile(file, "utf8")).socket : ""
}

async function checkSocket(path) {
  const [folder, socket] = [await lstat(dirname(path)), await lstat(path)]
  if (!folder.isDirectory() || !isOurs(folder, 0o022) || !socket.isSocket() || !isOurs(socket, 0))
    throw new Error(`What listens at ${path} is not known to be this user's.`)
}

function sentAt(socketPath, path, { body, ...options }) {
  return new Promise((done, fail) => {
    const sent = request({ socketPath, path, ...options }, (answer) => {
      const pieces = []
      const whole = () => Buffer.concat(pieces).toString()
      answer.on("error", fail).on("data", (piece) => pieces.push(piece))
      answer.on("end", () => done({ status: answer.statusCode, ok: answer.statusCode < 300, json: () => JSON.parse(whole()) }))
    })
    sent.on("error", fail).end(body)
  })
}

// Only where nothing was sent, another socket is tried. ("FailedToOpenSocket" is Bun's.)
async function sent(path, options) {
  if (url?.startsWith("unix:")) return sentAt(url.replace(/^unix:\/*/, "/"), path, options)
  if (url) return fetch(url + path, options)
  let failed = new Error("No service answers. Start one with `spillgate service start`, or set SPILLGATE_URL.")
  for (const socketPath of await ownSockets()) {
    try {
      await checkSocket(socketPath)
      return await sentAt(socketPath, path, options)
    } catch (error) {
      if (!error.code) failed = error
      else if (!["ENOENT", "ECONNREFUSED", "FailedToOpenSocket"].includes(error.code)) throw error
    }
  }
  throw failed
}

async function ask(path, given, milliseconds) {
  const body = given && JSON.stringify(given)
  const answer = await sent(path, {
    method: body ? "POST" : "GET",
    headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
    body,
    redirect: "error", // Another host would get the result, and write what the model reads.
    signal: AbortSignal.timeout(Math.ceil(milliseconds + (body?.length ?? 0) / 20_000)),
  })
  if (!answer.ok) throw new Error(`The service answered ${answer.status}.`)
  return answer.json()
}

// pi cuts the output of a command, and leaves the whole of it in a file.
async function wholeContent({ content, details }) {
  const spilled = details?.fullOutputPath
  if (typeof spilled !== "string") return content
  const path = await realpath(spilled)
  const found = await lstat(path)
  const isOurs = found.isFile() && found.uid === process.getuid() && found.size <= mostBytes
  if (!isOurs || !/\/pi-bash-[^/]+\.log$/.test(path)) throw new Error("not an output of pi")
  return [{ type: "text", text: await readFile(path, "utf8") }, ...content.filter((block) => block.type !== "text")]
}

// Whether the arguments of a call refer to stored results: a string that is a reference, and nothing more.
const reference = /^spillgate:\/\/[^\s/?#]+\/[^\s/?#]+(?:[?#][^\r\n]*)?$/
function refers(value) {
  if (typeof value === "string") return reference.test(value)
  return typeof value === "object" && value !== null && Object.values(value).some(refers)
}

// Stored results in place of what refers to them. The reason of a block is what the model reads: the tool does not run.
async function handOn({ toolName, input }, sessionId) {
  if (/tool_output/.test(toolName) || !refers(input)) return undefined
  try {
    const call = { session_id: sessionId, tool_name: toolName, arguments: input }
    const given = await ask("/arguments", call, longestResolving)
    if (given.refusal) return { block: true, reason: given.refusal }
    Object.assign(input, given.arguments)
    return undefined
  } catch (error) {
    await log(error).catch(() => {})
    const reason =
      "The stored result cannot be read now, so the tool did not run. Try again later, or go on without it."
    return { block: true, reason }
  }
}

export default function (pi) {
  const registered = new Set()

  async function offerTools(sessionId) {
    const { tools } = await ask(`/tools?format=mcp&session_id=${encodeURIComponent(sessionId)}`, null, patience)
    for (const { name, description, inputSchema } of tools) {
      if (registered.has(name)) continue
      registered.add(name)
      pi.registerTool({
        name,
        label: name,
        description,
        parameters: inputSchema,
        async execute(id, given, signal, update, ctx) {
          const session_id = ctx.sessionManager.getSessionId()
          const { text } = await ask("/tools/call", { session_id, name, arguments: given }, longestAnswer)
          return { content: [{ type: "text", text }], details: {} }
        },
      })
    }
  }

  pi.on("session_start", (event, ctx) => offerTools(ctx.sessionManager.getSessionId()).catch(() => {}))

  pi.on("tool_call", (event, ctx) => handOn(event, ctx.sessionManager.getSessionId()))

  pi.on("tool_result", async (event, ctx) => {
    try {
      const { toolName, toolCallId, input, isError } = event
      const shown = event.content.map((block) => block.text ?? "").join("\n")
      if (event.details?.fullOutputPath && !pays(shown)) return undefined
      const sessionId = ctx.sessionManager.getSessionId()
      const sent = { sessionId, toolName, toolCallId, input, isError, content: await wholeContent(event) }
      const { content } = await ask(hook, { ...sent, cwd: process.cwd() }, patience)
      if (!content) return undefined
      await offerTools(sessionId).catch(() => {})
      return { content }
    } catch (error) {
      await log(error).catch(() => {})
      return undefined
    }
  })
}
