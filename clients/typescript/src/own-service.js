/**
 * The user's own service: it listens at a Unix socket that this user has bound, in a directory to which no other user may
 * write. A port is known by its number alone, and its holder may be another user.
 */

import { lstatSync, readFileSync } from "node:fs";
import { request } from "node:http";
import { homedir } from "node:os";
import { dirname, isAbsolute, join } from "node:path";
import { Readable } from "node:stream";

const MOST_FILE_BYTES = 4096;
const GROUP_AND_OTHERS = 0o077;
const OTHERS_MAY_WRITE = 0o022;
const ABSENT = ["ENOENT", "ECONNREFUSED", "FailedToOpenSocket"]; // The last is Bun's.
const NO_BODY = [204, 205, 304];

/** @param {import("node:fs").Stats} found @param {number} forbidden */
const isOurs = (found, forbidden) => found.uid === process.geteuid?.() && !(found.mode & forbidden);

/** The socket of a service that says in a file of this user where it listens; "" for none. @param {string} file */
const announcedSocket = (file) => {
  try {
    const found = lstatSync(file);
    if (!found.isFile() || !isOurs(found, GROUP_AND_OTHERS) || found.size > MOST_FILE_BYTES) return "";
    const { socket } = JSON.parse(readFileSync(file, "utf8"));
    return typeof socket === "string" ? socket : "";
  } catch {
    return ""; // There is none, or a service is just writing it.
  }
};

/** Where the socket may be. */
const ownSockets = () => {
  const { SPILLGATE_UDS, SPILLGATE_STORAGE_URL, XDG_STATE_HOME } = process.env;
  if (SPILLGATE_UDS) return [SPILLGATE_UDS];
  const base = XDG_STATE_HOME || join(homedir(), ".local", "state");
  const state = join(isAbsolute(base) ? base : "/dev/null", "spillgate");
  const store = /^disk:(?:\/\/)?(.+)/.exec(SPILLGATE_STORAGE_URL ?? "")?.[1] ?? state;
  const sockets = [join(store, "embedded", "socket"), announcedSocket(join(state, "embedded", "address"))];
  return sockets.filter((path) => path !== "");
};

/** The message says what to do, in a sentence. */
export class NoOwnService extends Error {}

/** Throws unless this user has bound the socket. @param {string} path */
const checkSocket = (path) => {
  const folder = lstatSync(dirname(path));
  const socket = lstatSync(path);
  if (!folder.isDirectory() || !isOurs(folder, OTHERS_MAY_WRITE) || !socket.isSocket() || !isOurs(socket, 0))
    throw new NoOwnService(`Nothing was sent: what listens at ${path} is not known to be this user's.`);
};

/**
 * `fetch` at a Unix socket. It follows no redirect.
 * @param {string} socketPath @param {string} url @param {RequestInit} init @returns {Promise<Response>}
 */
export const fetchAt = (socketPath, url, init) =>
  new Promise((resolve, reject) => {
    const { pathname, search } = new URL(url);
    const { method = "GET", headers, body, signal } = init;
    /** @type {Record<string, string>} */
    const fields = {};
    new Headers(headers).forEach((value, name) => (fields[name] = value));
    const options = { socketPath, path: pathname + search, method, headers: fields, signal: signal ?? undefined };
    const sent = request(options, (answer) => {
      const status = answer.statusCode ?? 500;
      const received = new Headers();
      for (const [name, value] of Object.entries(answer.headers)) if (value !== undefined) received.set(name, String(value));
      const content = NO_BODY.includes(status) ? null : /** @type {ReadableStream} */ (Readable.toWeb(answer));
      if (content === null) answer.resume();
      resolve(new Response(content, { status, headers: received }));
    });
    sent.on("error", reject);
    sent.end(typeof body === "string" ? body : undefined);
  });

/** Whether nothing listens. @param {unknown} error */
const isAbsent = (error) => error instanceof Error && "code" in error && ABSENT.includes(String(error.code));

/** `fetch` at the user's own service. Rejects if there is none. @param {string} url @param {RequestInit} init */
export const fetchOwn = async (url, init) => {
  let failed = new NoOwnService("No service of this user runs. Start one with `spillgate service start`, or set SPILLGATE_URL.");
  for (const path of ownSockets()) {
    try {
      checkSocket(path);
      return await fetchAt(path, url, init);
    } catch (error) {
      // Only where nothing was sent, another socket is tried.
      if (error instanceof NoOwnService) failed = error;
      else if (!isAbsent(error)) throw error;
    }
  }
  throw failed;
};
