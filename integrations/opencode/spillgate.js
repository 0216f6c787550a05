// Spillgate for OpenCode: a tool result that is too large is stored, and the model reads a message instead.
// Whatever fails, the result stays as it is. `spillgate hook install opencode` puts this file into the plugin
// folder, and adds the MCP server with which the model asks about what was stored.
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
const hook = `/hooks/opencode${shell && `?shell=${encodeURIComponent(shell)}`}`
const patience = Number(process.env.SPILLGATE_HOOK_TIMEOUT_MS) || 1000 // milliseconds, and 50 for each MB sent
const longestAnswer = 45_000 // milliseconds: a query may wait 10 s and run 30 s
const base = XDG_STATE_HOME || join(homedir(), ".local", "state")
const state = join(isAbsolute(base) ? base : "/dev/null", "spillgate")
const mostBytes = 256 * 1024 * 1024
const payingBytes = 11_166 // three times a message of 650 bytes and an answer of 3 KB
const messageBytes = 1000

// Of an output that OpenCode has cut: whether a message and an answer are well below what it shows.
function pays(shown) {
  const bytes = Buffer.byteLength(shown)
  return bytes >= payingBytes || bytes <= messageBytes
}

// Why a result stayed as it is; no part of the result.
async function log(error) {
  const file = join(state, "hook.log")
  await mkdir(state, { recursive: true, mode: 0o700 })
  if ((await stat(file).catch(() => null))?.size > 1 << 20) await rename(file, `${file}.1`)
  await appendFile(file, `${new Date().toISOString()} 'opencode' passed: ${error.message}\n`)
}

// OpenCode cuts the output of its own tools, and leaves the whole of it in a file.
async function wholeOutput(output) {
  const { truncated, outputPath } = output.metadata ?? {}
  if (!truncated || typeof outputPath !== "string") return output.output
  const path = await realpath(outputPath)
  const found = await lstat(path)
  const isOurs = found.isFile() && found.uid === process.getuid() && found.size <= mostBytes
  if (!isOurs || !/\/tool-output\/[^/]+$/.test(path)) throw new Error("not an output of OpenCode")
  return readFile(path, "utf8")
}

async function replace(input, output) {
  const isBuiltIn = typeof output.output === "string"
  if (!isBuiltIn && !Array.isArray(output.content)) return
  if (isBuiltIn && output.metadata?.truncated && !pays(output.output)) return
  const sent = isBuiltIn
    ? { output: await wholeOutput(output) }
    : { content: output.content, isError: output.isError }
  Object.assign(output, await ask(hook, { input, output: sent, cwd: process.cwd() }, patience))
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
  const body = JSON.stringify(given)
  const answer = await sent(path, {
    method: "POST",
    headers: { "content-type": "application/json", ...(key && { authorization: `Bearer ${key}` }) },
    body,
    redirect: "error", // Another host would get the result, and write what the model reads.
    signal: AbortSignal.timeout(Math.ceil(milliseconds + body.length / 20_000)),
  })
  if (!answer.ok) throw new Error(`The service answered ${answer.status}.`)
  return answer.json()
}

// Whether the arguments of a call refer to stored results: a string that is a reference, and nothing more.
const reference = /^spillgate:\/\/[^\s/?#]+\/[^\s/?#]+(?:[?#][^\r\n]*)?$/
function refers(value) {
  if (typeof value === "string") return reference.test(value)
  return typeof value === "object" && value !== null && Object.values(value).some(refers)
}

// Stored results in place of what refers to them. An error is what the model reads: the tool does not run.
async function handOn({ tool, sessionID }, args) {
  if (/tool_output/.test(tool) || !refers(args)) return
  let given
  try {
    given = await ask("/arguments", { session_id: sessionID, tool_name: tool, arguments: args }, longestAnswer)
  } catch (error) {
    await log(error).catch(() => {})
    throw new Error(
      "The stored result cannot be read now, so the tool did not run. Try again later, or go on without it.",
    )
  }
  if (given.refusal) throw new Error(given.refusal)
  Object.assign(args, given.arguments)
}

export const Spillgate = async () => ({
  "tool.execute.before": (input, output) => handOn(input, output.args),
  "tool.execute.after": (input, output) => replace(input, output).catch((error) => log(error).catch(() => {})),
})
