// The public API: requests with the key of this tab, problems as errors, and streams of events.

const KEYS = "spillgate-keys";

/** The keys of this tab, the one in use first, each with the tenant that an admin's key looks at (after a space). They
 *  are forgotten when the tab is closed. */
export const keys = {
  all: () => JSON.parse(sessionStorage.getItem(KEYS) ?? "[]"),
  use: (key) => keys.save([key, ...keys.all().filter((one) => one !== key)]),
  drop: (key) => keys.save(keys.all().filter((one) => one !== key)),
  save: (list) => sessionStorage.setItem(KEYS, JSON.stringify(list)),
};

/** An answer other than 2xx: `code`, `detail` and `status` of its problem. */
export class Problem extends Error {
  constructor(status, told) {
    super(told.detail || `The service answered ${status}.`);
    this.status = status;
    this.code = told.code ?? "";
  }
}

/** The service could not be reached. */
export class Away extends Error {}

export async function request(path, { method = "GET", accept = "application/json", body, signal, key = keys.all()[0] } = {}) {
  const headers = { Accept: accept };
  const [token, tenant] = (key ?? "").split(" ");
  if (token) headers.Authorization = `Bearer ${token}`;
  if (tenant) headers["Spillgate-Tenant"] = tenant;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, body: body && JSON.stringify(body), signal, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Away("The service does not answer.");
  }
  if (!answer.ok) {
    const told = await answer.json().catch(() => ({}));
    throw new Problem(answer.status, told);
  }
  return answer;
}

export function query(values) {
  const entries = Object.entries(values).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return entries.length ? `?${new URLSearchParams(entries)}` : "";
}

export async function get(path, values = {}, options = {}) {
  return (await request(path + query(values), options)).json();
}

export async function post(path, body, options = {}) {
  return (await request(path, { ...options, method: "POST", body })).json();
}

/** The commands of stored results, by handle. Empty with a key that may not read stored text. */
export async function storedCommands(values, options) {
  const page = await get("/results", values, options).catch(refused);
  return new Map((page?.results ?? []).map((one) => [one.handle, one.command]));
}

/** The words of the questions about a session's results, by the id of the entry. Empty with such a key. */
export async function askedWords(id, options) {
  const page = await get(`/sessions/${encodeURIComponent(id)}/questions`, { limit: 1000 }, options).catch(refused);
  return new Map((page?.questions ?? []).map((one) => [one.entry_id, one.question]));
}

function refused(error) {
  if (!(error instanceof Problem) || ![403, 404, 410].includes(error.status)) throw error;
}

/** Calls `step(event, data)` for each event of an answer. */
export async function events(path, body, step, signal) {
  const answer = await request(path, { method: "POST", accept: "text/event-stream", body, signal });
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const lines = part.split("\n");
      const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
      const data = lines.filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (name) step(name, JSON.parse(data));
    }
  }
}
