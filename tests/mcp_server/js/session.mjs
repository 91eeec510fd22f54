// A working session with the TypeScript SDK: make a sandbox, run a command, use a file, remove it. Prints what it saw.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";

const [command, ...args] = process.argv.slice(2);
const client = new Client({ name: "js-agent", version: "1" });
await client.connect(new StdioClientTransport({ command, args, env: process.env, stderr: "inherit" }));

const call = async (name, input) => (await client.callTool({ name, arguments: input })).structuredContent?.data;
const { tools } = await client.listTools();
const made = await call("sandbox_create", { name: "from-js", memory: 512 });
await call("sandbox_fs_write", { name: "from-js", path: "a.txt", content: "from JavaScript" });
const ran = await call("sandbox_exec", { name: "from-js", command: "cat", args: ["a.txt"] });
const refused = await client.callTool({ name: "sandbox_remove", arguments: { name: "from-js" } });
const removed = await call("sandbox_remove", { name: "from-js", confirm: true });
const { resources } = await client.listResources();
await client.close();
console.log(JSON.stringify({
  tools: tools.length, state: made.state, stdout: ran.stdout, refused: refused.isError, removed: removed.removed, resources: resources.length,
}));
