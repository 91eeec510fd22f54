// A working session of an SDK's client with a server it starts: SDK (1 or 2), ERA (auto or legacy), NAME, COMMAND...
const [sdk, era, name, command, ...args] = process.argv.slice(2);
const home = sdk === "1" ? "@modelcontextprotocol/sdk/client" : "@modelcontextprotocol/client";
const { Client } = await import(sdk === "1" ? `${home}/index.js` : home);
const { StdioClientTransport } = await import(sdk === "1" ? `${home}/stdio.js` : `${home}/stdio`);

const client = new Client({ name: "js-agent", version: "1" }, { versionNegotiation: { mode: era } });
const transport = new StdioClientTransport({ command, args, env: process.env });
await client.connect(transport);

async function call(tool, fields) {
  const result = await client.callTool({ name: tool, arguments: { name, ...fields } });
  const told = JSON.parse(result.content[0].text);
  return told.ok ? told.data : told.error;
}

const tools = (await client.listTools()).tools.length;
const made = await call("sandbox_create", { memory: 512 });
await call("sandbox_fs_write", { path: "a/b.txt", content: "from js" });
const ran = await call("sandbox_exec", { command: "cat", args: ["a/b.txt"] });
const read = await call("sandbox_fs_read", { path: "a/b.txt" });
const refused = await call("sandbox_remove", {});
const removed = await call("sandbox_remove", { confirm: true });
const pid = transport.pid;
await client.close();
console.log(
  JSON.stringify({
    tools,
    state: made.state,
    ran: [ran.exit_code, ran.stdout],
    read: read.content,
    refused: refused.code,
    removed: removed.removed,
    pid,
  }),
);
