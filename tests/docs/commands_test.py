#!/usr/bin/env python3
"""Tests the documents against the program: tests/docs/commands_test.py TESSERA [DOCUMENT …]

Catches: a command of a guide that the program refuses, an output or exit code other than stated, a link that leads
nowhere, a named source or function that does not exist, a requirement without a line in docs/conformance.md, and a
test named there that does not exist.

The word after ``` decides how a block is tested. Blocks are processed in order, in one new folder for each document, with
the program on the PATH. The folder contains models/demo, unless the document creates it:

  ```bash        run by bash -euo pipefail. It must end with 0, or as a comment "# exit code 2" says. A line
                 `tessera serve …` runs until the next such line, on a free port, which replaces 30000 from there on.
    ```text        after a bash block: lines of its output, in this order; … and gaps between lines stand for any text
  ```yaml        with "# NAME" as first line: the file NAME, which exists from the start
  anything else  each `tessera` command in it (ExecStart= and CMD too) is parsed with --print-config, for the CPU and
                 models/demo, because this machine may lack the devices, files and rights that it names

The last line is "N passed, N failed"."""

import functools
import json
import os
import pathlib
import re
import select
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ["README.md", "CONTRIBUTING.md", "SECURITY.md", *sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("docs/**/*.md"))]
BRINGS_MODELS = ["docs/extending.md"]  # its first block links models/ itself
TIMEOUT_S = 300  # limit for one command, with sanitizers too
REQUIREMENTS = {"A": 5, "B": 10, "C": 7, "D": 8, "E": 8, "F": 6, "G": 4, "H": 5, "I": 6, "J": 3, "K": 4, "L": 3}
PORT = re.compile(r"\b30000\b")


class Block:
    def __init__(self, line, mark, text):
        self.line, self.mark, self.text = line, mark, text


def blocks_of(path):
    found, start, mark, lines = [], None, "", []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        if not line.lstrip().startswith("```"):
            lines.append(line)
        elif start is None:
            start, mark, lines = number, line.strip()[3:].strip(), []
        else:
            found.append(Block(start, mark, "\n".join(lines)))
            start = None
    return found


def logical_lines(text):
    """Joins continued lines and drops comment lines; a C source keeps its #include lines."""
    joined = re.sub(r"\\\n\s*", " ", text)
    return [line for line in joined.splitlines() if line.strip() and not re.match(r"\s*#(?!include)", line)]


class Serving:
    """A `tessera serve` command of a document."""

    def __init__(self, line, folder, environment):
        line, given = re.subn(r"(--port[ =])\d+", r"\g<1>0", line)
        self.errors = folder / "serve.log"
        with open(self.errors, "w", encoding="utf-8") as errors:
            self.process = subprocess.Popen(["bash", "-c", f"exec env {line}{'' if given else ' --port 0'}"], cwd=folder,
                                            env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        ready, _, _ = select.select([self.process.stdout], [], [], TIMEOUT_S)
        told = self.process.stdout.readline() if ready else ""
        match = re.search(r"http://[\d.]+:(\d+)", told)
        self.port = match[1] if match else None

    def end(self):
        """Stops the server by SIGTERM; returns its exit code and its output."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
        return self.process.returncode, self.errors.read_text()


class Document:
    def __init__(self, name, program, checks):
        self.name, self.checks = name, checks
        self.blocks = blocks_of(ROOT / name)
        self.folder = pathlib.Path(tempfile.mkdtemp())
        programs = self.folder / ".bin"
        programs.mkdir()
        (programs / "tessera").symlink_to(program)
        if name not in BRINGS_MODELS:
            (self.folder / "models").symlink_to(ROOT / "models")
        self.environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "HOME": str(self.folder),
                            "TESSERA_CACHE_DIR": str(self.folder / "cache"), "HF_HUB_OFFLINE": "1"}
        self.server = None

    def run(self):
        try:
            for block in self.blocks:
                if block.mark == "yaml" and (file := re.match(r"# (\S+\.yaml)\b", block.text)):
                    (self.folder / file[1]).write_text(block.text + "\n")
            output = ""
            for block in self.blocks:
                self.check_bodies_have_a_type(block)
                if block.mark == "bash":
                    output = self.run_bash(block)
                elif block.mark == "text":
                    self.expect_lines(block, output)
                else:
                    self.parse_commands(block)
            self.end_server()
        finally:
            if self.server is not None:
                self.server.end()
            shutil.rmtree(self.folder, ignore_errors=True)

    def where(self, block):
        return f"{self.name}:{block.line}"

    def run_bash(self, block):
        wanted = re.search(r"# exit code (\d+)", block.text)
        output, script = "", []
        for line in [*logical_lines(block.text), None]:
            serving = (line is not None and wanted is None and
                       re.match(r"(?:\w+=\S+ )*tessera serve\b(?!.*--print-config)", line))
            if line is not None and not serving:
                script.append(line)
                continue
            if script:
                output += self.run_script(block, "\n".join(script), int(wanted[1]) if wanted else 0)
            script = []
            if serving:
                self.start_server(block, line)
        return output

    def run_script(self, block, script, wanted):
        if PORT.search(script):
            if self.server is None:
                self.start_server(block, "tessera serve --model-path models/demo")
            script = PORT.sub(self.server.port or "0", script)
        began = time.monotonic()
        try:
            done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=self.folder, env=self.environment,
                                  stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                  timeout=TIMEOUT_S, check=False)
            code, output = done.returncode, done.stdout
        except subprocess.TimeoutExpired as late:
            code, output = None, (late.stdout or b"").decode(errors="replace")
        took = time.monotonic() - began
        self.checks.check(f"{self.where(block)}: {first_line(script)} ({took:.1f} s)", code == wanted,
                          f"exit code {code}, not {wanted}:\n{output}")
        return output

    def start_server(self, block, line):
        self.end_server()
        self.server = Serving(line, self.folder, self.environment)
        self.checks.check(f"{self.where(block)}: {first_line(line)} serves", self.server.port is not None,
                          self.server.errors.read_text())

    def end_server(self):
        if self.server is None:
            return
        code, said = self.server.end()
        self.server = None
        self.checks.check(f"{self.name}: SIGTERM ends the server", code == 0, f"exit code {code}:\n{said}")

    def expect_lines(self, block, output):
        squeezed = [" ".join(line.split()) for line in output.splitlines()]
        at = 0
        missing = None
        for line in block.text.splitlines():
            wanted = re.escape(" ".join(line.split())).replace("…", ".*")
            while at < len(squeezed) and not re.fullmatch(wanted, squeezed[at]):
                at += 1
            if wanted and at == len(squeezed):
                missing = line
                break
        self.checks.check(f"{self.where(block)}: the output stated", missing is None,
                          f"\"{missing}\" is not in\n{output}")

    def parse_commands(self, block):
        for line in logical_lines(block.text):
            words = command_words(line)
            if words is None:
                continue
            if words[:1] and words[0] in ("pull", "cache", "make-checkpoint", "quantize", "calibrate"):
                self.check_flags_are_known(block, words)
                continue
            done = subprocess.run(["tessera", *elsewhere(words), "--print-config"], cwd=self.folder, text=True,
                                  env=self.environment, capture_output=True, timeout=TIMEOUT_S, check=False)
            self.checks.check(f"{self.where(block)}: tessera {' '.join(words)} is accepted", done.returncode == 0,
                              done.stderr)

    def check_bodies_have_a_type(self, block):
        """Without a header curl sends a body as a form, which the server refuses."""
        for line in logical_lines(block.text):
            if not re.search(r"\bcurl\b.* (?:-d|--data\S*) ", line):
                continue
            self.checks.check(f"{self.where(block)}: {first_line(line)} says what its body is",
                              re.search(r"(?i)-H ['\"]Content-Type: ", line) is not None, line)

    def check_flags_are_known(self, block, words):
        told = subprocess.run(["tessera", words[0], "--help"], cwd=self.folder, env=self.environment, text=True,
                              capture_output=True, timeout=TIMEOUT_S, check=False).stdout
        unknown = [word for word in words if word.startswith("--") and word.split("=")[0] not in told]
        self.checks.check(f"{self.where(block)}: tessera {' '.join(words)} has known flags", not unknown, str(unknown))


def first_line(text):
    line = text.splitlines()[0]
    return line if len(line) <= 90 else line[:89] + "…"


def command_words(line):
    """Returns the arguments of the `tessera` command in a line of any kind of block, or None."""
    if match := re.match(r"\s*(?:CMD|ENTRYPOINT) (\[.*\])\s*$", line):
        words = json.loads(match[1])
        return words[1:] if words[0].endswith("tessera") else None
    line = re.sub(r"^ExecStart=", "", line)
    match = re.match(r"\s*(?:\$ )?(?:\w+=\S* )*(?:\S*/)?tessera ([a-z-].*)$", line)
    if match is None or "…" in line:
        return None
    words = shlex.split(match[1], comments=True)
    shell = [i for i, word in enumerate(words) if word in (">", "|", "&&", "<", "2>", "&")]
    return words[:shell[0]] if shell else words


def elsewhere(words):
    """Changes a command so that it runs on a machine without a GPU and without the model."""
    moved = []
    for previous, word in zip([None, *words], words):
        if previous in ("--model-path", "--model"):
            word = "models/demo/config.json" if word.endswith("config.json") else "models/demo"
        elif previous == "--device":
            word = "cpu"
        elif previous == "--config":
            word = pathlib.Path(word).name
        # Models of the hub have revisions, and GGUF models have projectors; models/demo has neither.
        if not {"--revision", "--mmproj"} & {previous, word}:
            moved.append(word)
    if "--model-path" not in moved and "--model" not in moved and "--config" not in moved and "--url" not in moved:
        moved += ["--model-path", "models/demo"]
    return moved


class Checks:
    def __init__(self):
        self.passed = self.failed = 0

    def check(self, what, good, why=""):
        print(f"{'ok' if good else 'FAILED'}: {what}", flush=True)
        if not good and why:
            print("  " + why.rstrip().replace("\n", "\n  "), flush=True)
        self.passed += good
        self.failed += not good


def anchors_of(path):
    headings = re.findall(r"^#+ (.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(name, checks):
    path = ROOT / name
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text()):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if not target.exists() or (anchor and anchor not in anchors_of(target)):
            broken.append(link)
    checks.check(f"{name}: links lead somewhere", not broken, str(broken))


PLACEHOLDERS = ["docs/adding-a-model.md", "docs/adding-an-op.md"]  # their examples name what does not exist yet
SOURCE_FOLDERS = ("src", "include", "plugins", "examples", "python", "tools", "tests", "fuzz", "cmake", "deploy")
SOURCE_SUFFIXES = {".h", ".cpp", ".cu", ".cuh", ".py", ".c", ".rs", ".js", ".sh", ".cmake", ".json"}


@functools.cache
def sources():
    """Returns the sources' paths, each from the root and from each of its folders on, and every word in the sources."""
    paths, words = set(), set()
    for path in [path for folder in SOURCE_FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in SOURCE_SUFFIXES]:
        parts = path.relative_to(ROOT).parts
        paths |= {"/".join(parts[i:]) for i in range(len(parts))}
        words |= set(re.findall(r"[A-Za-z_]\w+", path.read_text(errors="replace")))
    return paths, words


def check_names(name, checks):
    """Checks that each `file.h`, `function()` and `file: Suite.Test` of a page is in the sources."""
    if name in PLACEHOLDERS:
        return
    paths, words = sources()
    text = (ROOT / name).read_text()
    files = re.findall(r"`([\w./-]*\w\.(?:h|cpp|cu|cuh|py))`", text)
    functions = re.findall(r"`[\w:]*?(\w+)\(\)`", text)
    tests = re.findall(r"`(\w+): ([A-Za-z]\w*)\.(\w+)`", text)
    unknown = ([word for word in files if word not in paths] + [word for word in functions if word not in words] +
               sorted({f"{file}: {suite}.{test}" for file, suite, test in tests if not test_exists(file, suite, test)}))
    checks.check(f"{name}: the {len(files)} files, {len(functions)} functions and {len(tests)} tests named there exist",
                 not unknown, "\n".join(unknown))


def test_exists(file, suite, test):
    for path in [path for folder in ("src", "tests", "plugins") for path in ROOT.glob(f"{folder}/**/{file}.cpp")]:
        if re.search(rf"^(?:TYPED_)?TEST(?:_[FP])?\({suite}, {test}\)", path.read_text(), re.MULTILINE):
            return True
    for path in [*ROOT.glob(f"tests/**/{file}.py"), *ROOT.glob(f"plugins/**/{file}.py")]:
        text = path.read_text()
        begin = re.search(rf"^class {suite}\b.*$", text, re.MULTILINE)
        if begin and re.search(rf"^    def {test}\(", re.split(r"^class ", text[begin.end():], 1, re.MULTILINE)[0],
                               re.MULTILINE):
            return True
    return False


def check_requirements(checks):
    text = (ROOT / "docs/conformance.md").read_text()
    wanted = {f"{section}{i}" for section, count in REQUIREMENTS.items() for i in range(1, count + 1)}
    lines = re.findall(r"^\| ([A-L]\d+) \|", text, re.MULTILINE)
    checks.check("every requirement has one line", sorted(lines) == sorted(wanted),
                 f"missing {sorted(wanted - set(lines))}, in all {sorted(lines)}")


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    checks = Checks()
    names = sys.argv[2:] or DOCUMENTS
    readmes = [] if sys.argv[2:] else sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("src/**/README.md"))
    for name in readmes:
        check_links(name, checks)
        check_names(name, checks)
    for name in names:
        check_links(name, checks)
        check_names(name, checks)
        Document(name, pathlib.Path(sys.argv[1]).resolve(), checks).run()
    if "docs/conformance.md" in names:
        check_requirements(checks)
    print(f"{checks.passed} passed, {checks.failed} failed")
    return 1 if checks.failed else 0


if __name__ == "__main__":
    sys.exit(main())
