"""Real engines against the simulator, on a CPU, from one command:

    python live/check.py --vllm V --llamacpp L

V and L are the folders of environments that hold the engines (`setup_vllm_cpu.sh V` and
`setup_llama_cpp.sh L` of the shared folder make them: minutes and 3.4 GB, seconds and 0.2 GB). An
engine that is not there is skipped, and said so. Ends with 0 where nothing differs.

What is compared: `live/README.md`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
#: Option, variable that the tests read, and the file in the folder that shows the engine is there.
ENGINES = {
    "vllm": ("PREFIXBENCH_VLLM_PYTHON", "bin/vllm"),
    "llamacpp": ("PREFIXBENCH_LLAMACPP_PYTHON", "tiny.gguf"),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ENGINES:
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER")
    folders = vars(parser.parse_args())
    environment = dict(os.environ)
    for name, (variable, proof) in ENGINES.items():
        folder = folders[name]
        if folder is not None and not (folder / proof).exists():
            parser.error(f"--{name}: {folder} has no {proof}")
        if folder is not None:
            environment[variable] = str(folder.absolute() / "bin" / "python")
        elif variable not in environment:
            sys.stderr.write(f"skipped: {name} (no --{name} FOLDER given)\n")
    run = [sys.executable, "-m", "pytest", "-m", "live", "-rs", "tests/live"]
    return subprocess.run(run, cwd=REPOSITORY, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
