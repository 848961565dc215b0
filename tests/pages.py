"""A local server that answers each request with the next page of a script, and the pages of a live runtime."""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

METRIC = "vllm:iteration_tokens_total"


@dataclass
class Script:
    """Bodies in order, the last one for ever; None answers 503. `then` is called after the last body was given."""

    bodies: Sequence[str | None]
    then: Callable[[], None] | None = None
    asked: int = 0
    paths: list[str] = field(default_factory=list)
    url: str = ""


@contextmanager
def pages(script: Script) -> Iterator[Script]:
    """Serve the script under `script.url`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = script.bodies[min(script.asked, len(script.bodies) - 1)]
            script.asked += 1
            script.paths.append(self.path)
            data = (body or "").encode()
            self.send_response(503 if body is None else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
            if script.asked == len(script.bodies) and script.then is not None:
                script.then()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    script.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield script
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)


def row(
    number: int, *, generations: int = 0, contexts: int = 0, tokens: int = 0, **more: Any
) -> dict[str, Any]:
    """One iteration as TensorRT-LLM gives it."""
    batch = {
        "numScheduledRequests": contexts + generations,
        "numContextRequests": contexts,
        "numCtxTokens": tokens,
        "numGenRequests": generations,
    }
    return {"iter": number, "inflightBatchingStats": batch, **more}


def decode_rows(first: int, sizes: Sequence[int]) -> str:
    """The answer of `/metrics` with decode steps of these sizes."""
    return json.dumps([row(first + at, generations=size) for at, size in enumerate(sizes)])


def page(buckets: dict[str, float], metric: str = METRIC, labels: str = 'engine="0"') -> str:
    """An exposition with one histogram, its buckets cumulative."""
    lines = [f"# TYPE {metric} histogram"]
    lines += [f'{metric}_bucket{{{labels},le="{edge}"}} {value}' for edge, value in buckets.items()]
    return "\n".join([*lines, f"{metric}_sum{{{labels}}} 12.0", 'other_total{engine="0"} 3.0', ""])
