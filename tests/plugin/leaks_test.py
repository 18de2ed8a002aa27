#!/usr/bin/env python3
"""Checks with LeakSanitizer that faults of plugins leak no memory: tests/plugin/leaks_test.py TESSERA PLUGIN_TEST PLUGINS

The compiler's LeakSanitizer library is loaded first into unchanged programs. When they end, it searches for unreachable
memory and ends them with another exit status. Catches: a table, bound kernel, handle or partly made registry that leaks
when a plugin is refused, and memory that a request with a failing kernel leaves in the server.

The last line is "N passed, N failed"."""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import MODEL, Served, run_cases  # noqa: E402  (the folder is known now)

LEAKED = 23  # LeakSanitizer's exit status
LEAKER = "char* volatile p; int main(int n, char**) { p = new char[77]; if (n == 1) p = nullptr; return p == nullptr ? 0 : 5; }"


def find_sanitizer():
    """Returns (the library's path or None, the reason). The library must find a leaking program and pass one without leaks."""
    found = subprocess.run(["c++", "-print-file-name=liblsan.so"], capture_output=True, text=True, check=False).stdout.strip()
    if not os.path.isabs(found):
        return None, "the compiler has no liblsan.so"
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/leaker"
        subprocess.run(["c++", "-x", "c++", "-O0", "-o", program, "-"], input=LEAKER, text=True, check=True)
        for arguments, expected in ((), LEAKED), (("keeps",), 5):
            ended = subprocess.run([program, *arguments], env={**os.environ, "LD_PRELOAD": found}, capture_output=True, check=False)
            if ended.returncode != expected:
                return None, f"LeakSanitizer does not work here: {ended.stderr.decode()[-300:]}"
    return found, ""


class Cases:
    def __init__(self, sanitizer, tessera, plugin_test, plugins):
        self.tessera, self.plugin_test, self.plugins = tessera, plugin_test, pathlib.Path(plugins)
        self.environment = {"LD_PRELOAD": sanitizer}

    def _run(self, *command):
        return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **self.environment}, timeout=120, check=False)

    def plugins_of_every_fault_leave_nothing(self):
        ended = self._run(self.plugin_test, "--gtest_brief=1")
        assert ended.returncode == 0 and "PASSED" in ended.stdout, ended.stdout[-1000:] + ended.stderr[-3000:]

    def a_start_that_is_refused_leaves_nothing(self):
        for fault in ("UNDEFINED", "OLD_ABI", "THROWS", "DOUBLE_OP"):
            ended = self._run(self.tessera, "serve", "--port", "0", "--model-path", MODEL, "--plugin", self.plugins / "add_norm.so",
                              "--plugin", self.plugins / f"fault_{fault}.so")
            assert ended.returncode == 2, (fault, ended)

    def requests_whose_kernels_fail_leave_nothing(self):
        with Served(self.tessera, ["--dtype", "float32", "--piecewise-cuda-graph-tokens", "16", "--cuda-graph-bs", "1,4", "--plugin",
                                   str(self.plugins / "failing_kernel.so")], environment=self.environment) as server:
            for tokens, good in (7, True), (5, False), (6, False), (5, False), (7, True):
                status, answer = server.post("/v1/completions", {"prompt": list(range(5, 5 + tokens)), "max_tokens": 2})
                assert (status == 200) == good, (tokens, answer)


def main():
    sanitizer, reason = find_sanitizer()
    if sanitizer is None:
        print(f"skipped: {reason}")
        return 77
    passed, failed = run_cases(Cases(sanitizer, *sys.argv[1:]))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
