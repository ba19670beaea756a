"""A shell in which the commands of one document run, as a reader would type them.

The one thing a reader has and a test has not is the port 8000: each port the document names is
exchanged for a free one on the way in, and put back on the way out.
"""

from __future__ import annotations

import os
import queue
import re
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

_PATIENCE_S = 60
_PORT = re.compile(r"(?<=:)80\d\d\b|(?<=--port )80\d\d\b")
_DEFAULT_PORT = "8000"


class Session:
    """Context manager around one `bash`; what it started ends with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._free_ports: dict[str, str] = {}

    def __enter__(self) -> Self:
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self._folder,
            env=reader_environment(self._folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.close()
        os.killpg(self._shell.pid, signal.SIGTERM)
        self._shell.wait(_PATIENCE_S)
        self._reader.join(_PATIENCE_S)
        self._shell.stdout.close()

    def run(self, command: str, *, background_lines: int = 0) -> tuple[list[str], int]:
        """The lines a command prints, and its exit code.

        A command that goes to the background is waited for until it printed `background_lines`.
        """
        mark = f"-- {secrets.token_hex(8)}"
        line = f'{self.with_free_ports(command)}\ncode=$?; echo; echo "{mark} $code"; (exit $code)'
        assert self._shell.stdin is not None
        self._shell.stdin.write(line + "\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        code = None
        while code is None or len(_without_edges(printed)) < background_lines:
            text = self._next_line(command, printed)
            if text.startswith(mark):
                code = int(text.removeprefix(mark))
            else:
                printed.append(self._with_documented_ports(text))
        return _without_edges(printed), code

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line.rstrip())
        self._lines.put(None)

    def _next_line(self, command: str, printed: list[str]) -> str:
        try:
            line = self._lines.get(timeout=_PATIENCE_S)
        except queue.Empty:
            line = None
        assert line is not None, f"no answer to {command!r} after {printed}"
        return line

    def with_free_ports(self, command: str) -> str:
        """What a reader would type, with ports that are free here."""
        if command.startswith("prefixbench serve") and "--port" not in command:
            command = command.replace("serve", f"serve --port {_DEFAULT_PORT}", 1)
        return _PORT.sub(lambda found: self._free_port(found.group()), command)

    def _free_port(self, documented: str) -> str:
        if documented not in self._free_ports:
            with socket.socket() as chosen:
                chosen.bind(("127.0.0.1", 0))
                self._free_ports[documented] = str(chosen.getsockname()[1])
        return self._free_ports[documented]

    def _with_documented_ports(self, text: str) -> str:
        for documented, free in self._free_ports.items():
            text = text.replace(f":{free}", f":{documented}")
        return text


def reader_environment(folder: Path) -> Mapping[str, str]:
    """The environment of a person who activated the virtual environment; output in written order.

    Caches go to a folder beside the document's own.
    """
    scripts = Path(sys.executable).parent
    return {
        **os.environ,
        "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        "PYTHONUNBUFFERED": "1",
        "XDG_CACHE_HOME": str(folder.parent / "cache"),
    }


def _without_edges(lines: list[str]) -> list[str]:
    """The lines without empty ones at both ends."""
    return "\n".join(lines).strip("\n").split("\n") if any(lines) else []
