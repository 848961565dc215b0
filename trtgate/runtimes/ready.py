"""Decides whether a server serves: health, the expected model, one generated token from our own process."""

from dataclasses import dataclass
from typing import Any, Literal

import psutil
import requests

PROBE_TIMEOUT_S = 5.0
PROMPT = [1, 2, 3]  # as token ids, so that no tokenizer is needed

Stage = Literal["unreachable", "unhealthy", "no-model", "wrong-model", "no-token", "ready"]


@dataclass(frozen=True, slots=True)
class Probe:
    """How far a server got; `detail` says what was seen, `model` is the name to use once it is ready."""

    stage: Stage
    detail: str = ""
    model: str = ""


def new_session() -> requests.Session:
    """A session that never goes through a proxy."""
    session = requests.Session()
    session.trust_env = False
    return session


def probe(session: requests.Session, url: str, model: str, token_timeout_s: float) -> Probe:
    """Look once, from the cheapest question to a token; `model` empty takes the first one listed."""
    try:
        health = session.get(f"{url}/health", timeout=PROBE_TIMEOUT_S)
        if health.status_code != 200:
            return Probe("unhealthy", f"`/health` answers {health.status_code}")
        listed = _models(session.get(f"{url}/v1/models", timeout=PROBE_TIMEOUT_S))
    except requests.RequestException as error:
        return Probe("unreachable", type(error).__name__)
    if not listed:
        return Probe("no-model", "`/v1/models` lists nothing")
    name = next((entry for entry in listed if not model or entry == model), None)
    if name is None:
        return Probe("wrong-model", f"`/v1/models` lists `{', '.join(listed)}`, not `{model}`")
    return _token(session, url, name, token_timeout_s)


def _models(response: requests.Response) -> list[str]:
    try:
        data = response.json() if response.ok else {}
    except ValueError:
        return []
    cards = data.get("data") if isinstance(data, dict) else None
    return [str(card["id"]) for card in cards or [] if isinstance(card, dict) and "id" in card]


def _token(session: requests.Session, url: str, model: str, timeout_s: float) -> Probe:
    body = {"model": model, "prompt": PROMPT, "max_tokens": 1, "temperature": 0.0}
    try:
        answer = session.post(f"{url}/v1/completions", json=body, timeout=(PROBE_TIMEOUT_S, timeout_s))
    except requests.Timeout:
        return Probe("no-token", f"`/health` answers 200 but no token came in {timeout_s:g} s", model)
    except requests.RequestException as error:
        return Probe("unreachable", type(error).__name__, model)
    if answer.status_code == 200 and _tokens(answer) > 0:
        return Probe("ready", "", model)
    shown = answer.text[:200].strip()
    return Probe(
        "no-token", f"`/v1/completions` answers {answer.status_code} without a token: {shown}", model
    )


def _tokens(answer: requests.Response) -> int:
    try:
        data: Any = answer.json()
    except ValueError:
        return 0
    if not isinstance(data, dict):
        return 0
    usage = data.get("usage") or {}
    if isinstance(usage.get("completion_tokens"), int):
        return int(usage["completion_tokens"])
    choices = data.get("choices") or [{}]
    return len(str(choices[0].get("text") or ""))


def listener(port: int) -> int | None:
    """The process that listens on a TCP port; `None` for none, 0 for one that may not be seen."""
    try:
        connections = psutil.net_connections(kind="tcp")
    except psutil.AccessDenied:
        return None
    for connection in connections:
        local = connection.laddr
        if connection.status == psutil.CONN_LISTEN and local and local.port == port:
            return connection.pid or 0
    return None


def process_name(pid: int | None) -> str:
    """A process as named in a message."""
    if not pid:
        return "an unknown process"
    try:
        return f"`{psutil.Process(pid).name()}` (pid {pid})"
    except psutil.Error:
        return f"pid {pid}"


def address(host: str) -> str:
    """The address under which a server that listens on `host` is reached from here."""
    return {"localhost": "127.0.0.1", "0.0.0.0": "127.0.0.1", "": "127.0.0.1"}.get(host, host)  # noqa: S104


def describe(session: requests.Session, url: str) -> tuple[str | None, dict[str, Any]]:
    """Version and effective settings as the server reports them; `None` and `{}` where it has no route."""
    version = _object(session, f"{url}/version").get("version")
    return (str(version) if version is not None else None), _object(session, f"{url}/server_info")


def _object(session: requests.Session, url: str) -> dict[str, Any]:
    try:
        answer = session.get(url, timeout=PROBE_TIMEOUT_S)
        data = answer.json() if answer.ok else {}
    except (requests.RequestException, ValueError):
        return {}
    return data if isinstance(data, dict) else {}
