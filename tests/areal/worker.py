"""A process in AReaL's environment that answers questions, one line of JSON each way.

Notable:
- AReaL prints on stdout: answers come through a pipe of their own
- an exception is an answer too: its type and its words
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


class Refused(Exception):
    """The process answered with an exception; ``args`` are its type's name and its words."""


class Worker:
    """``python -m MODULE``, asked by its owner; ends with it."""

    def __init__(self, python: str, module: str, **environment: str) -> None:
        names = {"OMP_NUM_THREADS": "1", "TORCHDYNAMO_DISABLE": "1", "PYTHONPATH": str(ROOT)}
        read, write = os.pipe()
        self.said = tempfile.TemporaryFile("w+")  # noqa: SIM115 - as long as the process
        self.process = subprocess.Popen(
            [python, "-m", module, str(write)],
            cwd=ROOT,
            env=os.environ | names | environment,
            stdin=subprocess.PIPE,
            stdout=self.said,
            stderr=subprocess.STDOUT,
            pass_fds=[write],
            text=True,
        )
        os.close(write)
        self.answers = os.fdopen(read)

    def ask(self, **question: Any) -> Any:
        """The answer to one question; raises Refused where it is an exception."""
        assert self.process.stdin
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        line = self.answers.readline()
        if not line:
            self.said.seek(0)
            raise RuntimeError(f"AReaL's process ended: {self.said.read()[-4000:]}")
        answer = json.loads(line)
        if "refused" in answer:
            error = Refused(*answer["refused"])
            error.add_note(answer["traceback"])
            raise error
        return answer["result"]

    def close(self) -> None:
        self.process.communicate()
        self.answers.close()
        self.said.close()


def serve(answer: Callable[..., Any]) -> None:
    """Answer the owner's questions until there are no more."""
    with os.fdopen(int(sys.argv[1]), "w") as answers:
        for line in sys.stdin:
            try:
                reply = {"result": answer(**json.loads(line))}
            except Exception as error:
                refusal = [type(error).__name__, str(error)]
                reply = {"refused": refusal, "traceback": traceback.format_exc()}
            print(json.dumps(reply), file=answers, flush=True)
