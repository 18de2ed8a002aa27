"""Helpers of this folder's scripts: the program under test, its models, and ways to run it."""

import array
import json
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "models" / "demo"
GOLDENS = ROOT / "tests" / "data" / "goldens"
LLAMA = GOLDENS / "llama"
SHARED = pathlib.Path(os.environ.get("TESSERA_SHARED_DIR", ROOT.parent / "shared"))
SHARED_CONFIGS = SHARED / "data" / "configs"
# The first argument of each script.
PROGRAM = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None

# Flags for few sizes, since these tests do not depend on the number of sizes.
FEW_SIZES = ["--piecewise-cuda-graph-tokens", "8,32", "--cuda-graph-bs", "1,4", "--max-running-requests", "4",
             "--chunked-prefill-size", "32"]


def tessera(*arguments):
    command = [str(PROGRAM), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=200, stdin=subprocess.DEVNULL, check=False)


def read_safetensors(path):
    """Returns {name: (shape, float32 or int32 values)}."""
    data = pathlib.Path(path).read_bytes()
    header_bytes = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + header_bytes]).items():
        if name == "__metadata__":
            continue
        begin, end = (8 + header_bytes + offset for offset in entry["data_offsets"])
        tensors[name] = (entry["shape"], array.array({"F32": "f", "I32": "i"}[entry["dtype"]], data[begin:end]))
    return tensors


class CliTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def ok(self, *arguments):
        result = tessera(*arguments)
        self.assertEqual(result.returncode, 0, result.stderr)
        return result

    def ok_json(self, *arguments):
        """Returns the only object on standard output."""
        result = self.ok(*arguments, "--json")
        self.assertEqual(result.stderr, "")
        return json.loads(result.stdout)

    def fails(self, exit_code, words, *arguments):
        """Checks that the command fails with one line of error that has all of `words`."""
        result = tessera(*arguments)
        self.assertEqual(result.returncode, exit_code, f"{arguments}: {result.stderr}")
        errors = [line for line in result.stderr.splitlines() if line.startswith("tessera: error: ")]
        self.assertEqual(len(errors), 1, f"{arguments}: {result.stderr}")
        self.assertEqual(result.stderr.splitlines()[-1], errors[0])
        for word in words:
            self.assertIn(word, errors[0], arguments)
        return result


class Serving:
    """`tessera serve` of the bundled model on a free port, with a key. After the end `said` has its standard error, if that
    is a pipe."""
    def __init__(self, stderr=subprocess.DEVNULL, flags=()):
        self.stderr, self.flags = stderr, flags
        self.ends = 0  # the exit status that is expected

    def __enter__(self):
        self.process = subprocess.Popen([str(PROGRAM), "serve", "--model-path", str(DEMO), "--port", "0", "--api-key",
                                         "secret", "--served-model-name", "demo", "--drain-timeout", "0", *FEW_SIZES, *self.flags],
                                        stdout=subprocess.PIPE, stderr=self.stderr, text=True)
        self.url = self.process.stdout.readline().split()[-1]
        self.ready = time.monotonic()
        self.context = json.loads(self.get("/v1/models"))["data"][0]["max_model_len"]
        return self

    def get(self, path):
        request = urllib.request.Request(self.url + path, headers={"Authorization": "Bearer secret"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.read().decode()

    def metric(self, name):
        """Returns the sum of all metrics with names that end in `name`."""
        lines = [line for line in self.get("/metrics").splitlines() if not line.startswith("#")]
        return sum(float(line.split()[-1]) for line in lines if line.split("{")[0].split()[0].endswith(name))

    def kill(self):
        """Kills the server by SIGKILL, as the kernel does when memory runs out."""
        self.ends = -signal.SIGKILL
        self.process.kill()

    def __exit__(self, *_):
        self.process.terminate()
        self.said = self.process.communicate(timeout=60)[1]
        assert self.process.returncode == self.ends, self.process.returncode


class LineResult(unittest.TextTestResult):
    """Prints one line for each test."""

    def startTest(self, test):
        unittest.TestResult.startTest(self, test)
        self.faults_before = len(self.failures) + len(self.errors)

    def stopTest(self, test):
        faults = len(self.failures) + len(self.errors) - self.faults_before
        skipped = bool(self.skipped) and self.skipped[-1][0] is test
        word = "FAILED" if faults else "skipped" if skipped else "ok"
        reason = f" ({self.skipped[-1][1]})" if skipped else ""
        self.stream.writeln(f"{word}: {test.id().removeprefix('__main__.')}{reason}")
        self.stream.flush()
        self.failed_tests = getattr(self, "failed_tests", 0) + bool(faults)
        super().stopTest(test)


def main():
    """Runs the tests of the script that was started; "N passed, N failed" is the last line."""
    module = sys.modules["__main__"]
    if PROGRAM is None:
        sys.exit(module.__doc__)
    # Keeps this test's measurements and history out of the user's folders.
    cache = tempfile.TemporaryDirectory()
    os.environ["TESSERA_CACHE_DIR"] = cache.name
    os.environ["TESSERA_HISTORY"] = ""
    names = sys.argv[2:]
    loader = unittest.defaultTestLoader
    tests = loader.loadTestsFromNames(names, module) if names else loader.loadTestsFromModule(module)
    result = unittest.TextTestRunner(stream=sys.stdout, resultclass=LineResult, verbosity=0).run(tests)
    failed = getattr(result, "failed_tests", 0)
    print(f"{result.testsRun - failed - len(result.skipped)} passed, {failed} failed")
    sys.exit(0 if failed == 0 and result.testsRun > 0 else 1)
