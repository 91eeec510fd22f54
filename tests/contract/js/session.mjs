// One life of a sandbox through AWS's JavaScript client; prints what it saw as one JSON document.
// Everything it knows of the server comes from the environment, as `sbx local env` prints it.
import {
  CreateMicrovmAuthTokenCommand,
  GetMicrovmCommand,
  LambdaMicrovmsClient,
  RunMicrovmCommand,
  TerminateMicrovmCommand,
  paginateListManagedMicrovmImages,
  paginateListMicrovmImages,
  paginateListMicrovms,
} from "@aws-sdk/client-lambda-microvms";
import { CreateBucketCommand, GetObjectCommand, PutObjectCommand, S3Client } from "@aws-sdk/client-s3";
import { Readable } from "node:stream";

const DEADLINE_MS = 60_000;
const GUEST_PORT = 8080;
const client = new LambdaMicrovmsClient({});

async function all(paginate) {
  const items = [];
  for await (const page of paginate({ client }, {})) items.push(...page.items);
  return items;
}

async function waitFor(what, probe) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const answer = await probe();
    if (answer) return answer;
    if (Date.now() > deadline) throw new Error(`${what} did not come true in ${DEADLINE_MS} ms`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

async function stateOf(microvmIdentifier) {
  try {
    return (await client.send(new GetMicrovmCommand({ microvmIdentifier }))).state;
  } catch (error) {
    if (error.name === "ResourceNotFoundException") return "TERMINATED";
    throw error;
  }
}

async function healthz(endpoint, headers) {
  const answer = await fetch(`https://${endpoint}/healthz`, { headers }).catch((error) => ({ status: 0, error }));
  if (answer.error && !["ECONNREFUSED", "ECONNRESET"].includes(answer.error.cause?.code)) throw answer.error;
  return answer.status;
}

// A body that is known, and one that comes: that goes in chunks, with its checksum behind them.
async function objects() {
  const s3 = new S3Client({});
  await s3.send(new CreateBucketCommand({ Bucket: "theirs" }));
  const got = [];
  for (const [key, body, more] of [
    ["known", "known".repeat(9), {}],
    ["coming", Readable.from([Buffer.from("coming".repeat(30_000)), Buffer.from("!")]), { ContentLength: 180_001 }],
  ]) {
    await s3.send(new PutObjectCommand({ Bucket: "theirs", Key: key, Body: body, ...more }));
    const answer = await s3.send(new GetObjectCommand({ Bucket: "theirs", Key: key, ChecksumMode: "ENABLED" }));
    got.push((await answer.Body.transformToString()).length, Boolean(answer.ChecksumCRC32));
  }
  return got;
}

const images = [...(await all(paginateListMicrovmImages)), ...(await all(paginateListManagedMicrovmImages))];
const image = images.find((one) => one.imageArn.endsWith(":sbx-base")) ?? images[0];
const started = await client.send(new RunMicrovmCommand({ imageIdentifier: image.imageArn, maximumDurationInSeconds: 600 }));
const id = started.microvmId;
const report = { image: image.imageArn, id };
try {
  await waitFor("RUNNING", async () => {
    const { state, stateReason } = await client.send(new GetMicrovmCommand({ microvmIdentifier: id }));
    if (state === "TERMINATED") throw new Error(`the sandbox ended before it ran: ${stateReason}`);
    return state === "RUNNING";
  });
  report.objects = await objects();
  report.listed = (await all(paginateListMicrovms)).some((one) => one.microvmId === id);
  const { authToken } = await client.send(
    new CreateMicrovmAuthTokenCommand({
      microvmIdentifier: id,
      expirationInMinutes: 5,
      allowedPorts: [{ port: GUEST_PORT }],
    }),
  );
  const port = { "X-aws-proxy-port": String(GUEST_PORT) };
  report.healthz = await waitFor("healthz", async () => {
    const status = await healthz(started.endpoint, { ...authToken, ...port });
    return status === 200 && status;
  });
  report.withoutToken = await healthz(started.endpoint, port);
  report.otherPort = await healthz(started.endpoint, { ...authToken, "X-aws-proxy-port": String(GUEST_PORT + 1) });
} finally {
  await client.send(new TerminateMicrovmCommand({ microvmIdentifier: id }));
}
report.end = await waitFor("TERMINATED", async () => (await stateOf(id)) === "TERMINATED" && "TERMINATED");
process.stdout.write(`${JSON.stringify(report)}\n`);
