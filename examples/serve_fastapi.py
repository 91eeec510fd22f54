"""Serve a FastAPI app in a sandbox and ask it something: `python examples/serve_fastapi.py`.

The app listens on the sandbox's own loopback, so it needs no network. With `--keep` the sandbox stays, for
`sbx exec serve-fastapi -- curl -s localhost:8000` and the like. The image must have `fastapi` and `uvicorn`.
"""

from __future__ import annotations

import asyncio
import sys

from sbxtui import Sandbox

NAME = "serve-fastapi"
APP = """\
from fastapi import FastAPI

app = FastAPI()


@app.get("/")
def hello() -> dict[str, str]:
    return {"message": "Hello from FastAPI in a sandbox!"}
"""
# Ends when the app answered, or with an error when it did not within 20 s.
ASK = """\
import time, urllib.request
deadline = time.monotonic() + 20
while True:
    try:
        print(urllib.request.urlopen("http://127.0.0.1:8000/", timeout=5).read().decode())
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.1)
"""
SERVE = "nohup python3 -m uvicorn app:app --host 127.0.0.1 --port 8000 >server.log 2>&1 </dev/null &"


async def serve(sandbox: Sandbox) -> int:
    """Write the app, start it, ask it; 0 when it answered, 1 when the image cannot serve it."""
    missing = await sandbox.exec("python3", ["-c", "import fastapi, uvicorn"])
    if missing.exit_code != 0:
        print("This image has no FastAPI: add `fastapi` and `uvicorn` to it, and give it as SBX_IMAGE_ARN.")
        return 1
    await sandbox.write_file("app.py", APP)
    await sandbox.exec("sh", ["-c", SERVE])
    answer = await sandbox.exec("python3", ["-c", ASK])
    print(answer.stdout_text or (await sandbox.read_file("server.log")).decode(errors="replace"), end="")
    return answer.exit_code


async def main() -> int:
    """Make the sandbox and serve in it."""
    sandbox = await Sandbox.create(NAME, memory=512)
    if "--keep" in sys.argv:
        code = await serve(sandbox)
        sandbox.close()
        return code
    async with sandbox:
        return await serve(sandbox)


if __name__ == "__main__":
    raise SystemExit(asyncio.run(main()))
