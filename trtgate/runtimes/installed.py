"""Asks the runtime itself, where its package is installed here, what it thinks of a configuration."""

import json
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from trtgate.runtimes.base import Finding
from trtgate.runtimes.versions import parse_version

TIMEOUT_S = 180.0

# Each reads the text from its input and prints a list of [place, complaint]. Only what concerns the shape of the
# configuration is reported: the classes also look for a model and a device, which need not be here.
_TRTLLM = """
import json, sys
import yaml
from pydantic import ValidationError
from tensorrt_llm.llmapi.llm_args import TorchLlmArgs
SHAPE = ("extra_forbidden", "_type", "_parsing", "value_error", "greater_than", "less_than", "literal_error", "enum")
said = []
try:
    TorchLlmArgs(model="model", **(yaml.safe_load(sys.stdin) or {}))
except ValidationError as error:
    for item in error.errors():
        if item["loc"] and any(part in item["type"] for part in SHAPE):
            said.append([".".join(map(str, item["loc"])), item["msg"]])
except (OSError, RuntimeError):
    pass
print("\\n" + json.dumps(said))
"""
_VLLM = """
import importlib, json, sys
import yaml
from pydantic import TypeAdapter, ValidationError
from vllm.config import CompilationConfig
from vllm.engine.arg_utils import EngineArgs
text = sys.stdin.read()
data = {"compilation-config": text} if text.lstrip().startswith("{") else yaml.safe_load(text) or {}
data = {key.replace("-", "_"): value for key, value in data.items()}
group = data.get("compilation_config") or {}
group = json.loads(group) if isinstance(group, str) else group
known = {*EngineArgs.__dataclass_fields__, "model_tag"}
for place in ("launchers", "openai"):
    try:
        arguments = importlib.import_module(f"vllm.entrypoints.{place}.cli_args")
        known |= {*arguments.FrontendArgs.__dataclass_fields__}
    except ImportError:
        pass
said = [[key, "no such option"] for key in data if not {key, key.removeprefix("no_")} & known]
try:
    TypeAdapter(CompilationConfig).validate_python(group)
except ValidationError as error:
    said += [["compilation_config." + ".".join(map(str, item["loc"])), item["msg"]] for item in error.errors()]
except (KeyError, ValueError) as error:
    said.append(["compilation_config", str(error)])
print("\\n" + json.dumps(said))
"""
PACKAGES = {"tensorrt-llm": ("tensorrt_llm", "tensorrt-llm", _TRTLLM), "vllm": ("vllm", "vllm", _VLLM)}


def validate_installed(kind: str, text: str, wanted: str) -> list[Finding]:
    """Complaints of the installed package's own classes; empty where it is not installed or of another version.

    Runs in a process of its own, since the packages are large and print while they are imported.
    """
    if kind not in PACKAGES or find_spec(PACKAGES[kind][0]) is None:
        return []
    _, distribution, script = PACKAGES[kind]
    try:
        here = version(distribution)
    except PackageNotFoundError:
        return []
    if parse_version(here)[:2] != parse_version(wanted)[:2]:
        message = f"`{distribution}` `{here}` is installed here, `{wanted}` was asked for: its classes were not asked"
        return [Finding("note", "installed-version", message, "check where that version is installed")]
    command = [sys.executable, "-c", script]
    try:
        done = subprocess.run(
            command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [_unusable(distribution, f"no answer in {TIMEOUT_S:g} s")]
    last = done.stdout.strip().splitlines()[-1:] or [""]
    try:
        said = json.loads(last[0])
    except ValueError:
        return [_unusable(distribution, (done.stderr.strip().splitlines()[-1:] or ["no answer"])[0])]
    hint = f"the classes of `{distribution}` `{here}` say so"
    return [Finding("error", "refused", f"`{place}`: {complaint}", hint) for place, complaint in said]


def _unusable(distribution: str, why: str) -> Finding:
    message = f"the classes of `{distribution}` could not be asked: {why}"
    return Finding("note", "installed-unusable", message, "the other findings stand")
