/** What a program needs of the types: neither a newer `lib`, nor the types of Node.js, nor skipLibCheck. */

import { Spillgate, type Governed } from "spillgate-client";

const run = await new Spillgate({ baseUrl: "http://127.0.0.1:8377" }).session("run-1");
const governed: Governed = await run.govern("read_log", "call_1", "text", { fields: { model: "gpt-4o" } });
const shown: string | object[] = governed.content;
await run.end();
export { shown };
