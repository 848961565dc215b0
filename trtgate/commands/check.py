"""`trtgate check`: what a runtime makes of a configuration written by hand, before anything is started."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import fill
from typing import TYPE_CHECKING, Annotated

import typer

from trtgate.commands.options import JsonOption, QuietOption
from trtgate.console import WIDTH, Console, size_list

if TYPE_CHECKING:
    from trtgate.runtimes.base import Finding, Inspection

FileArgument = Annotated[Path, typer.Argument(help="The YAML of the runtime, or vLLM's compilation JSON.")]
RuntimeOption = Annotated[
    str, typer.Option("--runtime", help="Who reads it: `tensorrt-llm`, `vllm` or `reference`.")
]
VersionOption = Annotated[
    str | None, typer.Option("--version", help="Version of the runtime, such as `1.2.0`.")
]
BatchOption = Annotated[
    int | None, typer.Option("--max-batch-size", min=1, help="Batch limit given beside the file.")
]
TokensOption = Annotated[
    int | None, typer.Option("--max-num-tokens", min=1, help="Token limit of a step given beside the file.")
]
LengthOption = Annotated[
    int | None, typer.Option("--max-seq-len", min=2, help="Length limit given beside the file.")
]
StrictOption = Annotated[bool, typer.Option("--strict", help="Exit with 2 on warnings too.")]


def check(
    file: FileArgument,
    kind: RuntimeOption,
    version: VersionOption = None,
    max_batch_size: BatchOption = None,
    max_num_tokens: TokensOption = None,
    max_seq_len: LengthOption = None,
    strict: StrictOption = False,
    as_json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Show the sizes that a configuration asks for and really gets, and every finding; exit code 2 on errors."""
    from trtgate.errors import ExitCode, UsageError
    from trtgate.record import read_text
    from trtgate.runtimes import runtime_for
    from trtgate.runtimes.installed import validate_installed

    console = Console(as_json, quiet)
    runtime = runtime_for(kind)
    if version is None and kind != "reference":
        raise UsageError(
            "`--version` is missing", f"give the version of `{kind}` that will read the file, as in `1.2.0`"
        )
    given = {
        "max_batch_size": max_batch_size,
        "max_num_tokens": max_num_tokens,
        "max_seq_len": max_seq_len,
    }
    limits = {name: value for name, value in given.items() if value is not None}
    text, number = read_text(file), version or str(runtime.versions[-1])
    seen = runtime.inspect(text, number, limits)
    findings = (*seen.findings, *validate_installed(kind, text, number))
    console.record(
        {"runtime": kind, "version": number, **asdict(seen), "findings": list(map(asdict, findings))}
    )
    console.show(_text(f"{file} as `{kind}` {number} reads it", seen, findings))
    refused = ("error", "warning") if strict else ("error",)
    raise typer.Exit(
        ExitCode.USAGE if any(found.severity in refused for found in findings) else ExitCode.DONE
    )


def _text(title: str, seen: "Inspection", findings: "Sequence[Finding]") -> str:
    lines = [title, ""]
    for name in ("decode", "tokens"):
        asked, effective = getattr(seen.requested, name), getattr(seen.effective, name)
        lines += [f"{name} requested  {size_list(asked)}", f"{name} effective  {size_list(effective)}"]
    lines.append("")
    for found in findings:
        lines.append(_folded(f"{found.severity}: {found.message}", ""))
        if found.hint:
            lines.append(_folded(f"hint: {found.hint}", "  "))
    words = ("error", "warning", "note")
    counts = {word: sum(found.severity == word for found in findings) for word in words}
    lines.append(", ".join(f"{count} {word}{'' if count == 1 else 's'}" for word, count in counts.items()))
    return "\n".join(lines)


def _folded(text: str, indent: str) -> str:
    return fill(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)
