"""A scripted runtime: prints what its script says, then answers, hangs or dies; standard library only."""

import json
import os
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

SLEEPER = (
    "import os, sys, time\n"
    "if os.fork(): os._exit(0)\n"
    "os.setsid()\n"
    "if os.fork(): os._exit(0)\n"
    "open(sys.argv[1] + '.new', 'w').write(str(os.getpid()))\n"
    "os.rename(sys.argv[1] + '.new', sys.argv[1])\n"
    "time.sleep(600)\n"
)


def main() -> int:
    script, host, port = json.loads(Path(sys.argv[1]).read_text()), sys.argv[2], int(sys.argv[3])
    if script.get("ignore_term"):
        import signal

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if script.get("daemon"):
        env = {} if script.get("daemon_without_mark") else None
        subprocess.run([sys.executable, "-c", SLEEPER, script["daemon"]], check=True, env=env)
        while not Path(script["daemon"]).exists():
            time.sleep(0.001)
    server = None
    if script.get("early"):
        server = listen(script, host, port)
    for line in script.get("lines", []):
        if isinstance(line, dict):
            time.sleep(line.get("wait_s", 0))
            sys.stdout.write(line["raw"])
        else:
            sys.stdout.write(line + "\n")
        sys.stdout.flush()
    if "exit" in script:
        return script["exit"]
    if script.get("hang"):
        time.sleep(600)
    server = server or listen(script, host, port)
    while True:
        time.sleep(1)


def listen(script: dict, host: str, port: int) -> ThreadingHTTPServer:
    server = ThreadingHTTPServer((host, port), handler(script))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    return server


def handler(script: dict) -> type[BaseHTTPRequestHandler]:
    reads = iter(script.get("metrics", []))

    class Handler(BaseHTTPRequestHandler):
        def log_request(self, *_: object) -> None:
            return

        def do_GET(self) -> None:
            answers = {
                "/health": (script.get("health", 200), ""),
                "/version": (200, {"version": script.get("version", "1.2.0")}),
                "/v1/models": (200, {"data": [{"id": name} for name in script.get("models", ["tiny"])]}),
                "/server_info": (200, script.get("server_info", {"max_batch_size": 8})),
            }
            if self.path == "/metrics":
                self.answer(200, next(reads, []))
            elif self.path == "/prometheus/metrics" and "exposition" in script:
                self.answer(200, script["exposition"])
            else:
                self.answer(*answers.get(self.path, (404, "")))

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            how = script.get("completion", "ok")
            if how == "hang":
                time.sleep(600)
            if how == "die":
                sys.stdout.write(script["last_words"] + "\n")
                sys.stdout.flush()
                os._exit(1)
            if how == "late":
                sys.stdout.write(script["late"] + "\n")
                sys.stdout.flush()
                how = "ok"
            status = {"ok": 200, "empty": 200, "busy": 503}[how]
            text, count = ("a", 1) if how == "ok" else ("", 0)
            self.answer(status, {"choices": [{"text": text}], "usage": {"completion_tokens": count}})

        def answer(self, status: int, body: object) -> None:
            data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain" if isinstance(body, str) else "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

    return Handler


if __name__ == "__main__":
    sys.exit(main())
