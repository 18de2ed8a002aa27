#!/usr/bin/env python3
"""Completion and the manual page of the tessera command. tests/cli/cli_completion_test.py PROGRAM [TEST …]

Catches: a completion that a shell cannot read or that offers wrong words, a manual page that man cannot format, and
a command without arguments that does not say what is missing. Prints a line for each test; the last line is "N passed, N failed"."""

import re
import shutil
import subprocess

from program import CliTest, main, tessera


def run(command, text):
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)


class Completion(CliTest):
    def offered(self, *words):
        """Returns bash's completions of the last word."""
        script = self.folder / "tessera.bash"
        script.write_text(self.ok("completion", "bash").stdout)
        quoted = " ".join("'" + word + "'" for word in words)
        result = run(["bash", "--norc", "-c", f"source {script}; COMP_WORDS=(tessera {quoted}); "
                      f"COMP_CWORD={len(words)}; _tessera; printf '%s\\n' \"${{COMPREPLY[@]}}\""], "")
        self.assertEqual(result.stderr, "")
        return result.stdout.split()

    def test_bash(self):
        self.assertEqual(self.offered("se"), ["serve"])
        self.assertEqual(self.offered("serve", "--max-q"), ["--max-queued-requests"])
        self.assertIn("--max-model-len", self.offered("serve", "--max-"))
        self.assertEqual(self.offered("serve", "--metrics-style", "v"), ["vllm"])
        self.assertEqual(self.offered("serve", "--metrics-style", "=", "sg"), ["sglang"])
        self.assertEqual(self.offered("serve", "--port", ""), [])
        self.assertEqual(self.offered("bench", "pro"), ["profile"])
        self.assertIn("explain", self.offered("help", ""))
        self.assertEqual(self.offered("cache", "--po"), [])
        (self.folder / "a model").mkdir()
        (self.folder / "file.yaml").touch()
        self.assertEqual(self.offered("serve", "--config", f"{self.folder}/fi"), [f"{self.folder}/file.yaml"])
        self.assertEqual(" ".join(self.offered("serve", "--model-path", f"{self.folder}/")), f"{self.folder}/a model")

    def test_zsh_reads_its_completion(self):
        self.reads("zsh")

    def test_fish_reads_its_completion(self):
        self.reads("fish")

    def reads(self, shell):
        if shutil.which(shell) is None:
            self.skipTest(f"{shell} is not installed")
        result = run([shell, "-n"], self.ok("completion", shell).stdout)
        self.assertEqual((result.returncode, result.stderr), (0, ""))

    def test_manual_page(self):
        page = self.ok("man").stdout
        if shutil.which("groff") is None:
            self.skipTest("groff is not installed")
        result = run(["groff", "-k", "-man", "-ww", "-Tutf8", "-P-cbou"], page)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        flags = set(re.findall(r"--[a-z][a-z0-9-]+", self.ok("serve", "--help").stdout))
        self.assertEqual(flags - set(re.findall(r"--[a-z][a-z0-9-]+", result.stdout)), set())


class BareCommands(CliTest):
    def test_help_and_what_is_missing(self):
        for command, words in (("bench", ("prefill", "serve", "startup")), ("cache", ("info", "clear")),
                               ("pull", ("org/name",)), ("make-checkpoint", ("config.json", "folder")), ("completion", ("zsh",))):
            result = tessera(command)
            self.assertEqual((result.returncode, result.stdout), (2, ""))
            self.assertIn(f"Usage: tessera {command}", result.stderr)
            error = result.stderr.splitlines()[-1]
            self.assertTrue(error.startswith(f"tessera: error: {command} "), error)
            for word in words:
                self.assertIn(word, error)

    def test_version_and_help(self):
        self.assertEqual(self.ok("-v").stdout, self.ok("--version").stdout)
        self.assertEqual(self.ok("help", "bench").stdout, self.ok("bench", "--help").stdout)
        self.fails(2, ["\"nothing\" is no command"], "help", "nothing")


if __name__ == "__main__":
    main()
