#!/usr/bin/env python3
"""The tessera command: failed starts, configuration files, the cache folder. tests/cli/cli_start_test.py PROGRAM [TEST …]

Catches: a failed start without advice or report, a plan that exceeds a limit of mapped memory, a configuration file that
overrides the command line, a cache that changes an answer or is not cleared, and measurements and programs that are lost
when a server is killed.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import os
import resource
import shutil
import subprocess
import time
import unittest.mock

from program import DEMO, FEW_SIZES, LLAMA, PROGRAM, CliTest, Serving, main, tessera


class FailedStart(CliTest):
    """Starts whose graphs cannot be captured, because a plugin's kernel fails when kernels are warmed up."""

    PLUGIN = PROGRAM.parent / "src" / "plugin" / "test_plugins" / "failing_start.so"

    def generate(self, cache, *more):
        with unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(cache)}):
            result = tessera("generate", "--model-path", LLAMA, "--input-ids", "1,2,3", "--log-level", "error", "--dtype",
                             "float32", "--plugin", self.PLUGIN, *FEW_SIZES, *more)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertTrue(result.stderr.startswith("tessera: error: capturing graphs: "), result.stderr)
        return result.stderr

    def test_says_what_helps_and_keeps_a_report(self):
        said = self.generate(self.folder)
        self.assertIn(": operator silu_mul (%layers.0.silu_mul): failing: this is a bad number of tokens\n", said)
        for words in ("--disable-piecewise-cuda-graph starts without them", "--mem-fraction-static 0.8 (0.7)",
                      "--piecewise-cuda-graph-max-tokens 2048 (1024, 512)", "--cuda-graph-max-bs 16"):
            self.assertIn(words, said)
        (file,) = (self.folder / "failure_reports").iterdir()
        self.assertIn(f"A report of this start: {file}\n", said)
        report = json.loads(file.read_text())
        self.assertEqual(report["command"][:3], ["tessera", "generate", "--model-path"])
        self.assertIn("capturing graphs", report["error"]["message"])
        self.assertEqual(report["plan"]["runners"]["prefill"]["sizes"], report["configuration"]["piecewise-cuda-graph-tokens"])
        self.assertIn("notes", report["plan"])

    def test_where_no_report_can_be_kept(self):
        (self.folder / "file").write_text("")
        said = self.generate(self.folder / "file", "--disable-piecewise-cuda-graph")
        self.assertIn("No report could be kept: ", said)
        self.assertIn("--cuda-graph-max-bs 16", said)
        self.assertNotIn("piecewise", said)  # it is off already


class LimitedMemory(CliTest):
    """Starts with a limit of mapped memory (ulimit -v), which also counts mapped memory that is not used."""

    def generate(self, kind, kib, *more):
        limit = lambda: resource.setrlimit(kind, (kib << 10, kib << 10))
        run = lambda *words: subprocess.run([str(PROGRAM), *map(str, words)], capture_output=True, text=True, timeout=120,
                                            preexec_fn=limit, check=False)
        if run("--version").returncode != 0:
            self.skipTest("the program itself needs more addresses")
        return run("generate", "--model-path", DEMO, "--prompt", "A hen", "--max-new-tokens", 4, "--ignore-eos", "--json",
                   "--log-level", "error", *more)

    def test_starts_with_all_sizes(self):
        plain = self.ok_json("generate", "--model-path", DEMO, "--prompt", "A hen", "--max-new-tokens", 4, "--ignore-eos",
                             "--log-level", "error")
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA):
            for kib in (2_000_000, 8_000_000):
                with self.subTest(kind=kind, kib=kib):
                    result = self.generate(kind, kib)
                    self.assertEqual(result.returncode, 0, result.stderr)
                    answer = json.loads(result.stdout)
                    self.assertEqual(answer["output_ids"], plain["output_ids"])
                    for runner in ("prefill", "decode"):
                        self.assertEqual(answer["graphs"][runner]["captured_sizes"],
                                         plain["graphs"][runner]["captured_sizes"])
                    memory = answer["graphs"]["memory_bytes"]
                    self.assertLess(memory["kv_cache"], kib << 10)

    def test_says_what_is_missing(self):
        result = self.generate(resource.RLIMIT_AS, 500_000)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertIn("--chunked-prefill-size", result.stderr)


class Config(CliTest):
    def write(self, text):
        file = self.folder / "config.yaml"
        file.write_text(text)
        return file

    def test_file_and_command_line(self):
        file = self.write(f"model-path: {LLAMA}\ninput-ids: [1, 2, 3]\nmax_new_tokens: 3\nignore-eos: true\n"
                          "cuda_graph_bs: [1]\npiecewise-cuda-graph-tokens: [4]\nlog-level: [error]\n")
        answer = self.ok_json("generate", "--config", file)
        self.assertEqual(len(answer["output_ids"]), 3)
        self.assertEqual(answer["graphs"]["prefill"]["sizes"], [4])
        answer = self.ok_json("generate", "--config", file, "--max-new-tokens", 2, "--piecewise-cuda-graph-tokens", 8)
        self.assertEqual(len(answer["output_ids"]), 2)
        self.assertEqual(answer["graphs"]["prefill"]["sizes"], [8])

    def test_effective_configuration(self):
        file = self.write("page_size: 8\n")
        first = self.ok("serve", "--model-path", LLAMA, "--config", file, "--enable-torch-compile", *FEW_SIZES,
                        "--print-config")
        config = json.loads(first.stdout)
        sources = config.pop("sources")
        self.assertEqual(set(config), set(sources))
        for key, value, source in (("page-size", 8, "file"), ("chunked-prefill-size", 32, "command line"),
                                   ("port", 30000, "default"), ("enable-torch-compile", True, "command line"),
                                   ("cuda-graph-bs", [1, 4], "command line"), ("context-length", 2048, "engine")):
            self.assertEqual((config[key], sources[key]), (value, source), key)
        self.assertNotIn("config", config)
        second = json.loads(self.ok("serve", "--config", self.write(first.stdout), "--print-config").stdout)
        self.assertEqual({*second.pop("sources").values()}, {"file", "default"})
        self.assertEqual(second, config)
        self.ok("verify", "--model-path", LLAMA, "--print-config")
        off = self.ok("serve", "--model-path", LLAMA, "--cuda-graph-mode", "off", *FEW_SIZES, "--print-config")
        self.assertIn("cuda_graph_mode is off", off.stderr)
        config = json.loads(off.stdout)
        self.assertTrue(config["disable-piecewise-cuda-graph"])
        self.assertEqual(config["sources"]["disable-piecewise-cuda-graph"], "engine")

    def test_wrong_files(self):
        arguments = ["explain", "--model-path", LLAMA, "--config"]
        for words, text in ((["config.yaml:2", "--page-sise", "--page-size"], "page-size: 1\npage-sise: 2\n"),
                            (["config.yaml:1", "page-size", "a whole number"], "page-size: large\n"),
                            (["config.yaml:1", "--cuda-graph-bs", "\"0\""], "cuda-graph-bs: [0]\n"),
                            (["config.yaml:2", "page_size", "already"], "page-size: 1\npage_size: 1\n"),
                            (["config.yaml:1", "a holds a map"], "a:\n  b: 1\n"),
                            (["config.yaml:1"], "a: [1\n"), (["config.yaml"], "{\"a\": }"), (["is empty"], ""),
                            (["config.yaml:1", "--quantization", "is not accepted"], "quantization: fp9\n")):
            with self.subTest(text=text):
                self.fails(2, words, *arguments, self.write(text))
        self.fails(2, ["--config", "/no/such/file"], *arguments, "/no/such/file")
        self.fails(2, ["--config"], *arguments, self.folder)


class Phases(CliTest):
    """The time from process start to ready, as the server reports it and as this process measures it."""

    def test_cover_the_wall_time(self):
        began = time.monotonic()
        with Serving(stderr=subprocess.PIPE) as server:
            wall_s = server.ready - began
            start = json.loads(server.get("/get_server_info"))["start"]
            self.assertIsNone(start["first_token"])
            server.get("/health_generate")
            first = json.loads(server.get("/get_server_info"))["start"]["first_token"]
        said = server.said
        # The kernel records a process's start with a precision of 10 ms; the program reports readiness at once.
        self.assertLess(start["total_s"], wall_s + 0.02)
        self.assertGreater(start["total_s"], 0.5 * wall_s)
        self.assertLess(start["uncovered_s"], 0.05 * start["total_s"] + 0.01)
        self.assertEqual([start["phases"][0]["name"], start["phases"][-1]["name"]], ["process", "server"])
        self.assertGreater(first["end_s"], start["total_s"])
        line = next(line for line in said.splitlines() if line.startswith("Ready after "))
        self.assertEqual(line.split()[2], f"{1e3 * start['total_s']:.1f}")
        for phase in start["phases"]:
            self.assertIn(f"{phase['name']} {1e3 * phase['begin_s']:.1f}-{1e3 * phase['end_s']:.1f}", line)


class Cache(CliTest):
    def setUp(self):
        super().setUp()
        self.cache = self.folder / "cache"
        patch = unittest.mock.patch.dict(os.environ, {"TESSERA_CACHE_DIR": str(self.cache)})
        patch.start()
        self.addCleanup(patch.stop)

    def info(self, action="info"):
        return self.ok_json("cache", action)

    def test_info_and_clear(self):
        self.assertEqual(self.info(), {"path": str(self.cache), "cleared": False, "entries": 0, "bytes": 0, "kinds": {}})
        folder = self.cache / "profiles" / "v1"
        folder.mkdir(parents=True)
        ours = [folder / f"costs-{digit * 32}.json" for digit in "0a"] + [folder / f"matmul-{'1' * 32}.json"]
        for file in ours:
            file.write_text("{}")
        other = folder / "notes.txt"
        other.write_text("mine")
        info = self.info()
        self.assertEqual((info["entries"], info["bytes"]), (3, 6))
        self.assertEqual(info["kinds"], {"costs": {"entries": 2, "bytes": 4}, "matmul": {"entries": 1, "bytes": 2}})
        text = self.ok("cache", "info").stdout
        for words in (str(self.cache), "3 entries of 6 B", "costs", "matmul"):
            self.assertIn(words, text)
        self.assertEqual(self.info("clear")["entries"], 3)
        self.assertEqual(list(folder.iterdir()), [other])
        self.assertIn("removed 0 entries", self.ok("cache", "clear").stdout)

    def test_folders_that_are_none(self):
        self.cache.mkdir()
        (self.cache / "profiles").write_text("")
        self.fails(1, [str(self.cache / "profiles")], "cache", "info")
        self.fails(1, [str(self.cache / "profiles")], "cache", "clear")
        for name in ("TESSERA_CACHE_DIR", "SGLANG_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
            os.environ[name] = ""
        self.fails(1, ["TESSERA_CACHE_DIR", "HOME"], "cache", "info")

    def test_tune_measures_what_an_idle_server_does(self):
        tuned = self.ok_json("tune", "--model-path", LLAMA, *FEW_SIZES)
        self.assertEqual(tuned["cache"], str(self.cache))
        self.assertGreater(tuned["captured_sizes"], 0)
        self.assertGreater(tuned["measured_forwards"], 0)  # after a slow size, larger sizes are not measured
        self.assertIn("costs", self.info()["kinds"])
        again = self.ok("tune", "--model-path", LLAMA, *FEW_SIZES).stdout
        self.assertRegex(again, f"^{tuned['captured_sizes']} captured sizes; measured in .*: costs of [0-9]+ forwards, .* kept in {self.cache}\n$")
        self.fails(2, ["--disable-cost-measurement"], "tune", "--model-path", LLAMA, "--disable-cost-measurement")
        self.fails(2, ["--enable-deterministic-inference"], "tune", "--model-path", LLAMA, "--enable-deterministic-inference")
        for name in ("TESSERA_CACHE_DIR", "SGLANG_CACHE_DIR", "XDG_CACHE_HOME", "HOME"):
            os.environ[name] = ""
        self.fails(1, ["TESSERA_CACHE_DIR", "HOME"], "tune", "--model-path", LLAMA)

    def wait_for_costs(self):
        """Waits until the file of measured costs, which is written during the measurements, has those of prefill sizes;
        returns it."""
        for _ in range(1200):
            for file in (self.cache / "profiles" / "v1").glob("costs-*.json"):
                text = file.read_text()
                if text != "{" and json.loads(text)["value"]["prefill"]:
                    return file
            time.sleep(0.1)
        self.fail("no costs were measured")

    def test_the_next_start_knows_what_this_one_measured(self):
        with Serving() as server:
            self.assertEqual(server.metric("profile_cache_hits_total"), 0)
            file = self.wait_for_costs()
        kept = json.loads(file.read_text())
        self.assertEqual(kept["kind"], "costs")
        self.assertTrue(kept["value"]["prefill"])
        with Serving() as server:
            self.assertEqual(server.metric("profile_cache_hits_total"), 1)
        file.write_text("{")
        with Serving() as server:
            self.assertEqual(server.metric("profile_cache_hits_total"), 0)
            self.assertEqual(self.wait_for_costs(), file)
        self.assertEqual(json.loads(file.read_text())["key"], kept["key"])

    def test_a_server_killed_after_a_second_keeps_its_measurements(self):
        fused = ["--piecewise-cuda-graph-compiler", "fused"]  # this compiler's programs are kept on a CPU too
        wanted = {"costs", "programs", "schedules"}
        for _ in range(3):  # on a busy machine the server may not be idle within a second
            with Serving(flags=fused) as server:
                compiled = server.metric("general_compiles_total")
                self.assertGreater(compiled, 0)
                self.assertEqual(server.metric("program_cache_hits_total"), 0)
                time.sleep(max(0, server.ready + 1 - time.monotonic()))
                server.kill()
            kept = set(self.info()["kinds"])
            if kept >= wanted:
                break
            shutil.rmtree(self.cache)
        self.assertGreaterEqual(kept, wanted)
        with Serving(flags=fused) as server:
            self.assertEqual(server.metric("program_cache_hits_total"), compiled)
            self.assertEqual(server.metric("general_compiles_total"), 0)
            self.assertEqual(server.metric("profile_cache_hits_total"), 2)  # costs and schedules

    def test_a_start_needs_no_cache(self):
        arguments = ["generate", "--model-path", LLAMA, "--input-ids", "1,2", "--max-new-tokens", 3, "--ignore-eos",
                     *FEW_SIZES]
        plain = self.ok_json(*arguments)["output_ids"]
        for folder in ("/proc/no/such/folder", str(self.folder / "file" / "below"), "/dev/full"):
            (self.folder / "file").touch()
            os.environ["TESSERA_CACHE_DIR"] = folder
            self.assertEqual(json.loads(self.ok(*arguments, "--json").stdout)["output_ids"], plain, folder)


if __name__ == "__main__":
    main()
