"""A process that waits on its pipe for requests and answers each with a line of JSON, so that the sides of a comparison can take turns."""
import json
import pathlib
import re
import subprocess

from record import Fault, require_program


class LiveProcess:
    def __init__(self, name, command, environment):
        self.name = name
        require_program(command[0])
        self.process = subprocess.Popen([str(word) for word in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env=environment)
        self.ready = self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Fault(f"{self.name} ended with code {self.process.wait()}; its message is above")
        return json.loads(line)

    def send(self, words):
        self.process.stdin.write(f"{words}\n")
        self.process.stdin.flush()

    def ask(self, words):
        self.send(words)
        return self.answer()

    def peak_bytes(self):
        return self._bytes("VmHWM")

    def resident_bytes(self):
        return self._bytes("VmRSS")

    def _bytes(self, name):
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(rf"{name}:\s+(\d+)", status).group(1))

    def end(self):
        self.process.stdin.close()
        self.process.wait()
