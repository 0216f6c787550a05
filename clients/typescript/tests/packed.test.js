/** The package as a project has it: packed, installed beside each `ai` that it takes, and still there after a later install. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Story, service } from "./story.js";

const HERE = fileURLToPath(new URL("..", import.meta.url));
const AI_VERSIONS = ["6.0.326", "7.0.173"];
// Those that the types of `ai` import.
const NEEDED_TYPES = ["@types/node@20.19.43", "@types/json-schema@7.0.15"];
const OPTIONS = ["--silent", "--no-audit", "--no-fund", "--ignore-scripts"];

const run = (folder, program, ...given) => execFileSync(program, given, { cwd: folder, encoding: "utf8", stdio: "pipe" });

/** Calls `work` with a new folder, which is then removed. */
async function inFolder(work) {
  const folder = mkdtempSync(join(tmpdir(), "spillgate-packed-"));
  try {
    return await work(folder);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

for (const version of AI_VERSIONS) {
  test(`installed from its tarball beside ai ${version}, and after a later npm install`, () =>
    inFolder(async (folder) => {
      const [packed] = JSON.parse(run(HERE, "npm", "pack", "--json", "--ignore-scripts", "--pack-destination", folder));
      assert.ok(packed.files.some((file) => file.path === "types/ai.d.ts"));
      assert.ok(packed.files.every((file) => /^(src|types)\/|^(LICENSE|README.md|package.json)$/.test(file.path)));
      writeFileSync(join(folder, "package.json"), '{ "private": true, "type": "module" }');
      run(folder, "npm", "install", ...OPTIONS, `./${packed.filename}`, `ai@${version}`);
      run(folder, "npm", "install", ...OPTIONS, ...NEEDED_TYPES);
      run(folder, "npm", "install", ...OPTIONS);
      const installed = JSON.parse(readFileSync(join(folder, "node_modules/spillgate-client/package.json"), "utf8"));
      assert.equal(installed.name, "spillgate-client");
      assert.equal(JSON.parse(readFileSync(join(folder, "node_modules/ai/package.json"), "utf8")).version, version);
      cpSync(join(HERE, "tests/packed"), folder, { recursive: true });
      run(folder, join(HERE, "node_modules/.bin/tsc"), "--project", folder);
      const { url, stop } = await service();
      try {
        const { tell } = await import(pathToFileURL(join(folder, "run.js")));
        const story = new Story();
        story.check(await tell(story, { baseUrl: url, patience: 0 }));
        assert.match(story.system[1], /^Be brief./);
      } finally {
        await stop();
      }
    }));
}
