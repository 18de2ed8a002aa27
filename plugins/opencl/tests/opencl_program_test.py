#!/usr/bin/env python3
"""The program on an OpenCL device: plugins/opencl/tests/opencl_program_test.py TESSERA PLUGIN LAYER

Catches: a server that does not start with the plugin or gives other answers than on the CPU, command buffers that are
not launched although graphs are reported, and a device without the extension that does not report why.

LAYER is a library between OpenCL's loader and its drivers (watching_layer.cpp). The last line is "N passed, N failed"."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "tests" / "server"))
from served import Served, run_cases  # noqa: E402  (found by the line above)

MODEL = ROOT / "models" / "demo"
PROMPT = "Once upon a time, in the forest, there lived a brave fox named Ruby."
FLAGS = ["--dtype", "float32", "--piecewise-cuda-graph-tokens", "8,32", "--cuda-graph-bs", "1,4", "--max-running-requests", "4",
         "--chunked-prefill-size", "32", "--max-total-tokens", "2048", "--context-length", "256"]


class Cases:
    def __init__(self, tessera, plugin, layer):
        self.tessera, self.layer = tessera, layer
        self.on_device = ["--plugin", plugin, "--device", "opencl"]
        self.folder = tempfile.TemporaryDirectory()

    def _run(self, command, *flags, **environment):
        return subprocess.run([self.tessera, command, *flags], capture_output=True, text=True, timeout=200, check=False,
                              env={**os.environ, "OPENCL_LAYERS": self.layer, "TESSERA_CACHE_DIR": self.folder.name, **environment})

    def _generate(self, *flags, **environment):
        result = self._run("generate", "--model-path", str(MODEL), "--prompt", PROMPT, "--max-new-tokens", "12", "--json",
                           "--temperature", "0", *FLAGS, *flags, **environment)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def _explain(self, **environment):
        return self._run("explain", "--model-path", str(MODEL), *FLAGS, *self.on_device, **environment)

    def _counts(self, path):
        """The layer's counts of the process with the most launches: {"kernels": …, "copies": …, "graphs": …, "launches": …,
        "most": …}"""
        lines = pathlib.Path(path).read_text().splitlines()
        found = [dict(zip(words[::2], map(int, words[1::2]))) for words in map(str.split, lines)]
        return max(found, key=lambda counts: counts["launches"] + counts["kernels"])

    def tokens_are_the_cpus(self):
        counts = os.path.join(self.folder.name, "counts")
        ours = self._generate(*self.on_device, OPENCL_TEST_COUNTS=counts)
        assert ours["output_ids"] == self._generate()["output_ids"], ours
        assert {f["runner"] for f in ours["graphs"]["forwards"]} == {"prefill", "decode"}, ours["graphs"]["forwards"]
        # Each of 11 decoded tokens launches the same command buffer, fed with the token before; the prompt launches one
        # command buffer for each layer's piece.
        launched = self._counts(counts)
        assert launched["graphs"] >= 7 and launched["most"] >= 11, launched

    def serves(self):
        with Served(self.tessera, [*FLAGS, *self.on_device]) as server:
            status, body = server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 12, "temperature": 0,
                                                           "return_graph_info": True})
            assert status == 200, body
            text = body["choices"][0]["text"]
            assert text == self._generate()["text"], text
            runners = [entry["runner"] for entry in body["graph_info"][0]["forwards"]]
            assert runners == ["prefill", "decode"], runners
            status, body = server.post("/v1/chat/completions", {
                "messages": [{"role": "user", "content": "Tell me of a fox."}], "max_tokens": 8, "temperature": 1, "seed": 7,
                "logprobs": True, "top_logprobs": 3})
            assert status == 200 and len(body["choices"][0]["logprobs"]["content"]) > 0, body

    def verify(self):
        result = self._run("verify", "--model-path", str(MODEL), *FLAGS, *self.on_device)
        assert result.returncode == 0, result.stdout + result.stderr

    def without_the_extension(self):
        hidden = {"OPENCL_TEST_HIDE": "1", "OPENCL_TEST_COUNTS": os.path.join(self.folder.name, "eager")}
        told = self._explain(**hidden)
        assert told.returncode == 0 and "lacks cl_khr_command_buffer" in told.stdout, told.stdout + told.stderr
        ours = self._generate(*self.on_device, **hidden)
        assert ours["output_ids"] == self._generate()["output_ids"], ours
        counts = self._counts(hidden["OPENCL_TEST_COUNTS"])
        assert counts["launches"] == 0 and counts["kernels"] > 100, counts

    def a_device_that_is_not_there(self):
        result = self._run("generate", "--model-path", str(MODEL), "--prompt", PROMPT, *self.on_device[:2], "--device", "opencl:9")
        assert result.returncode == 1 and "there is no device 9" in result.stderr, result.stderr


def main():
    cases = Cases(*(os.path.abspath(path) for path in sys.argv[1:4]))
    if "CI" not in os.environ and "no device 0" in cases._explain().stderr:
        print("there is no OpenCL driver (pocl-opencl-icd)")
        sys.exit(77)
    passed, failed = run_cases(cases)
    print(f"{passed} passed, {failed} failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
