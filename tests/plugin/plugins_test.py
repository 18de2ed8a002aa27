#!/usr/bin/env python3
"""Plugins in the program: tests/plugin/plugins_test.py TESSERA PLUGINS

PLUGINS is the folder of the test plugins and of the examples' plugins, as the build made them. Catches: a plugin's
operator that is not served through graphs or computes something else, a split op that is not cut out or sees padding, a
compiler with a handle that a second process does not load, a family with fields or tensors that are not renamed, a
plugin with an error that ends the server, and a server that starts partly loaded.

The last line is "N passed, N failed"."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from served import MODEL, Served, run_cases  # noqa: E402  (the folder is known now)

PROMPT = "Once upon a time"
FLAGS = ["--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs", "1,4", "--context-length", "256",
         "--disable-radix-cache", "--enable-deterministic-inference"]
LINES = 12  # one of the prompt and one of each decode


class Cases:
    def __init__(self, tessera, plugins):
        self.tessera, self.plugins = tessera, pathlib.Path(plugins)
        self.cache = tempfile.TemporaryDirectory()

    def _plugin(self, name):
        return ["--plugin", str(self.plugins / f"{name}.so")]

    def _run(self, *words, model=MODEL):
        """Returns (exit status, output, errors)."""
        command = [self.tessera, words[0], "--model-path", str(model), *words[1:]]
        ended = subprocess.run(command, capture_output=True, text=True, timeout=120,
                               env={**os.environ, "TESSERA_CACHE_DIR": self.cache.name}, check=False)
        return ended.returncode, ended.stdout, ended.stderr

    def _generate(self, *flags, model=MODEL):
        status, output, errors = self._run("generate", "--prompt", PROMPT, "--max-new-tokens", str(LINES), "--temperature",
                                           "0", *flags, model=model)
        assert status == 0, errors
        return output, errors

    def _complete(self, server, prompt, tokens=4):
        return server.post("/v1/completions", {"prompt": prompt, "max_tokens": tokens, "temperature": 0})

    def an_operator_is_served_through_graphs(self):
        status, text, errors = self._run("explain", "--graph", "body", *self._plugin("add_norm"))
        assert status == 0, errors
        # Six layers have two norms each, and one last norm follows. The first norm has no residual to add.
        assert len(re.findall(r"= my_add_norm\(", text)) == 12 and "add_rms_norm(" not in text, text
        with Served(self.tessera, FLAGS) as plain, Served(self.tessera, [*FLAGS, *self._plugin("add_norm")]) as server:
            status, answer = self._complete(server, PROMPT, LINES)
            assert status == 200, answer
            assert answer["choices"][0]["text"] == self._complete(plain, PROMPT, LINES)[1]["choices"][0]["text"]
            _, metrics = server.get("/metrics")
            replays = [float(n) for n in re.findall(r"^\S*graph_replays_total\S* (\S+)$", metrics, re.MULTILINE)]
            assert sum(replays) >= LINES, metrics
        status, _, errors = self._run("verify", *FLAGS, *self._plugin("add_norm"))
        assert status == 0, errors

    def a_split_op_is_cut_at_and_sees_no_padding(self):
        status, text, errors = self._run("explain", "--graph", "stitched", *self._plugin("watch"))
        assert status == 0, errors
        assert re.search(r"split op \d+: watch\n  in:  %unwatched", text), text
        output, errors = self._generate("--log-level", "engine=info", *FLAGS, *self._plugin("watch"))
        assert output == self._generate(*FLAGS)[0]
        seen = re.findall(r"watch: (\d+) tokens, largest hidden value (\d+\.\d+)", errors)
        # Batches of warm-up and captures come first, then the prompt, then one token at a time.
        assert [int(tokens) for tokens, _ in seen[-(LINES - 1):]] == [1] * (LINES - 1), seen
        assert 1 < int(seen[-LINES][0]) < 16 and all(0 < float(value) < 1000 for _, value in seen), seen
        status, _, errors = self._run("generate", "--prompt", PROMPT, "--max-new-tokens", "2",
                                      "--cuda-graph-split-ops", "attention", *self._plugin("watch"))
        assert status == 0, f"a forward is cut at what cannot be captured, whatever the split ops: {errors}"

    def a_compilers_handle_is_loaded_by_a_second_process(self):
        flags = ["--dtype", "float32", *FLAGS, *self._plugin("gate"), "--piecewise-cuda-graph-compiler", "gate"]
        plain = self._generate("--dtype", "float32", *FLAGS)[0]
        first = self._generate(*flags)[0]
        assert "gate: compiles\ngraph @" in first and "silu_mul(" in first, first
        assert first.endswith(plain), (first, plain)
        second = self._generate(*flags)[0]
        assert "gate: compiles" not in second and "gate: loaded" in second and second.endswith(plain), second
        status, text, errors = self._run("explain", "--graph", "program:2", *flags)
        assert status == 0 and "gate by gate_c" in text, text + errors

    def a_family_is_read_by_its_difference_from_another(self):
        with tempfile.TemporaryDirectory() as folder:
            for file in MODEL.iterdir():
                content = file.read_bytes()
                if file.name == "config.json":
                    config = json.loads(content)
                    config["architectures"] = ["StorytellerForCausalLM"]
                    config["width"] = config.pop("hidden_size")
                    content = json.dumps(config).encode()
                if file.name == "model.safetensors":  # the new names have the same length
                    size = 8 + int.from_bytes(content[:8], "little")
                    content = content[:size].replace(b'"model.', b'"story.') + content[size:]
                (pathlib.Path(folder) / file.name).write_bytes(content)
            status, _, errors = self._run("generate", "--prompt", PROMPT, model=folder)
            assert status == 1 and "StorytellerForCausalLM" in errors, errors
            assert self._generate(*self._plugin("storyteller"), model=folder)[0] == self._generate()[0]

    def plugins_work_together_and_from_a_configuration_file(self):
        config = pathlib.Path(self.cache.name) / "config.yaml"
        names = ["watch", "add_norm", "gate"]
        config.write_text("plugin:\n" + "".join(f"  - {self.plugins / name}.so\n" for name in names) +
                          "piecewise-cuda-graph-compiler: gate\ndtype: float32\n")
        output, errors = self._generate("--config", str(config), "--log-level", "engine=info")
        assert output.endswith(self._generate("--dtype", "float32")[0]) and "watch: " in errors, output + errors

    def a_kernels_error_fails_its_request_alone(self):
        with Served(self.tessera, [*FLAGS, "--dtype", "float32", *self._plugin("failing_kernel")]) as server:
            ids = list(range(5, 15))
            status, answer = self._complete(server, ids)
            assert status == 200, answer
            status, answer = self._complete(server, ids[:5])
            assert status >= 500 and "this is a bad number of tokens" in json.dumps(answer), answer
            status, answer = self._complete(server, ids[:6])
            assert status >= 429 and "six tokens are too many" in json.dumps(answer), answer
            assert self._complete(server, ids[:7])[0] == 200
            assert server.get("/health")[0] == 200

    def a_faulty_plugin_starts_no_server(self):
        for fault, words in (("CRASH", "it crashed while registering (Segmentation fault)"),
                             ("THROWS", "threw an exception, which it must not: out of the blue"),
                             ("DOUBLE_OP", "fault_op"), ("NO_INFO", "it has no symbol tessera_plugin")):
            status, output, errors = self._run("serve", "--port", "0", *self._plugin("add_norm"),
                                               *self._plugin(f"fault_{fault}"))
            assert status == 2 and output == "", (status, output)
            assert words in errors and f"fault_{fault}.so" in errors and errors.count("\n") == 1, errors
        status, _, errors = self._run("serve", "--plugin", "nowhere.so")
        assert status == 2 and "plugin nowhere.so: there is no such file" in errors, errors

    def a_device_without_kernels_says_so(self):
        status, _, errors = self._run("generate", "--prompt", PROMPT, "--device", "host_test", *self._plugin("host_device"))
        assert status == 1 and "this device has no kernel for operator" in errors, errors
        status, _, errors = self._run("generate", "--prompt", PROMPT, "--device", "host_test")
        assert status == 2 and "host_test" in errors, errors


if __name__ == "__main__":
    passed, failed = run_cases(Cases(*sys.argv[1:]))
    print(f"{passed} passed, {failed} failed")
    sys.exit(0 if failed == 0 else 1)
