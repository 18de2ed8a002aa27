#!/usr/bin/env python3
"""The tessera command: bench. tests/cli/cli_bench_test.py PROGRAM [TEST …]

Catches: results in another format, a load that differs from the requested one, and a server's refusal that counts as an
answer.
Prints a line for each test; the last line is "N passed, N failed"."""

import json

from program import DEMO, FEW_SIZES, GOLDENS, LLAMA, CliTest, main, Serving


class Bench(CliTest):
    COMMON = ["--model-path", LLAMA, "--repeat", 2, "--log-level", "error"]

    def test_prefill(self):
        answer = self.ok_json("bench", "prefill", *self.COMMON, "--num-tokens", "8,30", *FEW_SIZES)
        self.assertEqual([(row["tokens"], row["size"]) for row in answer["rows"]], [(8, 8), (30, 32)])
        for row in answer["rows"]:
            self.assertGreater(row["eager_ms"], 0)
            self.assertAlmostEqual(row["speedup"], row["eager_ms"] / row["graph_ms"])

    def test_decode(self):
        answer = self.ok_json("bench", "decode", *self.COMMON, "--batch-size", 1, 3, "--context", 16, *FEW_SIZES)
        self.assertEqual([(row["tokens"], row["runner"], row["size"]) for row in answer["rows"]],
                         [(1, "decode", 1), (3, "decode", 4)])
        self.assertGreater(answer["memory_bytes_per_s"], 1e8)
        self.assertGreater(answer["rows"][1]["bytes_read"], answer["rows"][0]["bytes_read"])

    def test_decode_of_states_and_experts(self):
        # A state takes one slot, however long the request is.
        states = self.ok_json("bench", "decode", "--model-path", GOLDENS / "qwen3.5-text", "--repeat", 2, "--log-level",
                              "error", "--batch-size", 4, "--context", 100, *FEW_SIZES)
        self.assertEqual(states["rows"][0]["size"], 4)
        # One token reads 2 of 8 experts in each layer; four tokens read some more.
        experts = self.ok_json("bench", "decode", "--model-path", GOLDENS / "qwen3-moe", "--repeat", 2, "--log-level",
                               "error", "--batch-size", 1, 4, "--context", 16, *FEW_SIZES)
        one, four = (row["bytes_read"] for row in experts["rows"])
        self.assertGreater(four, 1.2 * one)

    def test_more_than_a_forward_may_have(self):
        self.fails(2, ["--batch-size: 5 ", "4 are the most", "--max-running-requests"], "bench", "decode", *self.COMMON,
                   "--batch-size", "5", *FEW_SIZES)
        self.fails(2, ["--num-tokens: 33 ", "32 are the most", "--chunked-prefill-size"], "bench", "prefill",
                   *self.COMMON, "--num-tokens", "33", *FEW_SIZES)

    def test_graphs_in_every_form(self):
        answer = self.ok_json("bench", "graphs", *self.COMMON, "--num-tokens", "1,7,32", "--batch-size", "3",
                              "--context", 16, *FEW_SIZES)
        rows = answer["rows"]
        self.assertEqual([(row["batch"], row["count"], row["size"]) for row in rows],
                         [("prefill", 1, 8), ("prefill", 7, 8), ("prefill", 32, 32), ("decode", 3, 4)])
        for row in rows:
            self.assertEqual(row["compiler"], "eager")
            single = row["count"] == 1 and row["batch"] == "prefill"
            for name in ("eager_ms", "pieces_ms") + (() if single else ("full_ms",)):
                self.assertGreater(row[name], 0, row)
            ratio = row["graph_to_eager"]
            self.assertTrue(0 < ratio["low"] <= ratio["median"] <= ratio["high"], row)
            self.assertEqual(row["graph_to_eager"], row["full_to_eager" if row["batch"] == "decode" else "pieces_to_eager"])
            self.assertEqual(row["cut_us"] is None, single or row["batch"] == "decode", "requests of a row have no full graph")
        self.assertIsNone(rows[0]["full_ms"])

    def test_graphs_of_every_size(self):
        text = self.ok("bench", "graphs", *self.COMMON, "--context", 16, *FEW_SIZES).stdout
        for words in ("| prefill of 8 tokens | 8 | eager |", "| prefill of 32 tokens |", "| decode of 1 request |",
                      "| decode of 4 requests |", "Graphs against eager, 4 sizes in 2 pairs each", "A cut costs"):
            self.assertIn(words, text)
        rows = self.ok_json("bench", "graphs", *self.COMMON, "--context", 16, "--cuda-graph-mode", "full", *FEW_SIZES)["rows"]
        self.assertEqual({row["pieces_ms"] for row in rows}, {None}, "nothing is cut")
        rows = self.ok_json("bench", "graphs", *self.COMMON, "--num-tokens", 8, "--disable-cuda-graph", *FEW_SIZES)["rows"]
        self.assertEqual((rows[0]["size"], rows[0]["graph_to_eager"]), (0, None))
        self.fails(2, ["--compilers", "no-such", "eager"], "bench", "graphs", *self.COMMON, "--compilers", "no-such",
                   *FEW_SIZES)

    def test_startup(self):
        answer = self.ok_json("bench", "startup", *self.COMMON, *FEW_SIZES)
        layers = json.loads((LLAMA / "config.json").read_text())["num_hidden_layers"]
        self.assertEqual(answer["runners"]["prefill"]["graphs"], 2 * layers)
        self.assertEqual(answer["runners"]["decode"]["graphs"], 2)
        self.assertGreater(answer["runners"]["prefill"]["nodes"], answer["runners"]["prefill"]["graphs"])
        start = answer["start"]
        names = [phase["name"] for phase in start["phases"]]
        self.assertIn("tokenizer", names, "read beside the device's opening, and on a busy machine before or after it")
        names.remove("tokenizer")
        self.assertEqual(names[:5], ["process", "options", "device", "config", "plan"])
        self.assertEqual(set(names[5:]), {"open weights", "load weights", "memory", "compile", "capture", "warm up"})
        begins = [phase["begin_s"] for phase in start["phases"]]
        self.assertEqual((begins[0], begins), (0, sorted(begins)))
        self.assertLess(start["uncovered_s"], 0.05 * start["total_s"] + 0.01)
        self.assertLessEqual(start["total_s"], start["first_token"]["begin_s"])
        self.assertLess(start["first_token"]["begin_s"], start["first_token"]["end_s"])
        self.assertEqual((answer["sizes_at_first_token"], answer["runners"]["prefill"]["sizes"]), (4, 2))
        text = self.ok("bench", "startup", *self.COMMON, *FEW_SIZES).stdout
        for words in ("begin ms", "open weights", "first token", "from the process's start"):
            self.assertIn(words, text)
        sizes = ("--piecewise-cuda-graph-tokens", "8,10,12,32", *FEW_SIZES[2:])
        answer = self.ok_json("bench", "startup", *self.COMMON, *sizes, "--cuda-graph-capture", "core")
        self.assertEqual(answer["sizes_at_first_token"], 2 + 2, "both ends of each ladder")
        self.assertEqual([answer["runners"][name]["sizes"] for name in ("prefill", "decode")], [4, 2])

    def test_profile(self):
        file = self.folder / "trace.json"
        answer = self.ok_json("bench", "profile", *self.COMMON, "--num-tokens", "5,30", "--batch-size", 3, "--context",
                              16, "--output", file, *FEW_SIZES)
        self.assertEqual([row["forward"] for row in answer["forwards"]], ["prefill 8", "prefill 32", "decode 4"])
        times = [row["ms"] for row in answer["slowest"]]
        self.assertEqual((len(times), times), (10, sorted(times, reverse=True)))
        trace = json.loads(file.read_text())
        self.assertEqual(trace["otherData"]["bench"], "profile")
        layers = json.loads((LLAMA / "config.json").read_text())["num_hidden_layers"]
        for pid, row in enumerate(answer["forwards"], 1):
            for tid, (category, whole_ms) in enumerate((("replay", row["replay_ms"]),
                                                        ("eager operators", row["eager_ms"])), 1):
                spans = [e for e in trace["traceEvents"] if e["ph"] == "X" and (e["pid"], e["tid"]) == (pid, tid)]
                whole, inner = spans[0], spans[1:]
                self.assertEqual({span["cat"] for span in spans}, {category})
                self.assertAlmostEqual(whole["dur"], 1e3 * whole_ms)
                self.assertLessEqual(sum(span["dur"] for span in inner), 1.001 * whole["dur"])
                for before, after in zip(inner, inner[1:]):
                    self.assertGreaterEqual(after["ts"] + 1e-3, before["ts"] + before["dur"])
                if category == "replay":
                    # A prefill has a span for each piece, each attention and the head. A decode is one graph.
                    self.assertEqual(len(inner), 1 if row["forward"] == "decode 4" else 2 * layers + 1)
                    self.assertTrue(inner[0]["args"]["graph"])
                else:
                    self.assertEqual(len(inner), row["operators"])
                    for span in inner:
                        self.assertGreater(span["args"]["bytes"], 0)
                        self.assertIn("%", span["args"]["result"])
                        self.assertIn("->", span["args"]["shapes"])
        text = self.ok("bench", "profile", *self.COMMON, "--num-tokens", 8, "--output", file, *FEW_SIZES).stdout
        for words in ("operator by operator", "linear", str(file)):
            self.assertIn(words, text)
        self.fails(1, [str(self.folder)], "bench", "profile", *self.COMMON, "--num-tokens", 8, "--output", self.folder)

    def test_tables(self):
        for what in ("prefill", "decode", "startup"):
            self.assertIn("graph", self.ok("bench", what, *self.COMMON, *FEW_SIZES, "--context-length", 128).stdout)


class BenchVision(CliTest):
    SIZES = ["--piecewise-cuda-graph-tokens", "8,32", "--cuda-graph-bs", "1,4", "--max-running-requests", 4]

    def model(self):
        return ["--model-path", GOLDENS / "qwen3-vl", "--load-format", "dummy", "--repeat", 3, "--context-length", 128, "--log-level", "error",
                *self.SIZES]

    def test_every_way(self):
        answer = self.ok_json("bench", "vision", *self.model(), "--image-size", "16x16,33x18", "--images", "1,3")
        rows = answer["rows"]
        self.assertEqual([(row["width"], row["height"], row["images"], row["way"]) for row in rows],
                         [(w, h, n, way) for w, h in ((16, 16), (33, 18)) for n in (1, 3) for way in ("eager", "exact", "budget")])
        for row in rows:
            self.assertEqual(row["patches"], 4 * row["tokens"])
            self.assertEqual(row["forwards"], 1)
            self.assertEqual(row["replays"], 0 if row["way"] == "eager" else 1)
            self.assertEqual(row["padding"], 0 if row["way"] == "exact" else -row["patches"] % 64)
            for name in ("tower_ms", "encode_ms", "preprocess_ms"):
                self.assertTrue(0 < row[name + "_p50"] <= row[name + "_p99"], row)
            self.assertGreater(row["first_ms"], 0)
        for eager, exact, budget in zip(rows[::3], rows[1::3], rows[2::3]):
            for row in (eager, exact, budget):
                self.assertAlmostEqual(row["speedup"], eager["tower_ms_p50"] / row["tower_ms_p50"])
        rate = answer["preprocessing"]
        self.assertAlmostEqual(rate["images_per_s"], rate["threads"] * rate["images_per_s_and_thread"])
        self.assertGreater(rate["images_per_s"], 0)

    def test_several_forwards_and_no_graphs(self):
        # The context of 128 tokens lets a forward have 512 patches. Each image has 64 tokens of 4 patches.
        answer = self.ok_json("bench", "vision", *self.model(), "--image-size", "256x256", "--images", 3)
        self.assertEqual([(row["forwards"], row["replays"]) for row in answer["rows"]], [(2, 0), (2, 2), (2, 2)])
        exact = self.ok_json("bench", "vision", *self.model(), "--image-size", "16x16", "--images", 1, "--enable-vit-cuda-graph")
        self.assertEqual([row["replays"] for row in exact["rows"]], [0, 1, 1])
        off = self.ok_json("bench", "vision", *self.model(), "--image-size", "16x16", "--images", 1, "--disable-cuda-graph",
                           "--disable-piecewise-cuda-graph")
        self.assertEqual([row["way"] for row in off["rows"]], ["eager"])

    def test_table(self):
        text = self.ok("bench", "vision", *self.model(), "--image-size", "64x64", "--images", 2).stdout
        for words in ("budget", "exact", "eager", "prepare ms", "1280 x 800 pixels are made into patches at"):
            self.assertIn(words, text)

    def test_wrong_command_lines(self):
        self.fails(2, ["--model-path", "has no vision tower"], "bench", "vision", "--model-path", DEMO, *FEW_SIZES)
        for wrong in ("64", "64x", "0x64", "64x64x64", "64x99999"):
            self.fails(2, ["--image-size", wrong, "like 224x224"], "bench", "vision", "--model-path", DEMO, "--image-size", wrong)
        self.fails(2, ["--image-size does not go with bench prefill"], "bench", "prefill", "--model-path", DEMO, "--image-size",
                   "8x8")
        self.fails(2, ["--images does not go with bench decode"], "bench", "decode", "--model-path", DEMO, "--images", 1)


class BenchServe(CliTest):
    COMMON = ["--num-prompts", 6, "--input-len", 20, "--output-len", 5, "--warmup", 1]

    def check_run(self, run, requests, input_tokens, output_tokens):
        self.assertEqual((run["completed"], run["failed"], run["failures"]), (requests, 0, {}))
        self.assertEqual((run["input_tokens"], run["output_tokens"]), (input_tokens, output_tokens))
        for name in ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms"):
            values = run[name]
            self.assertEqual(set(values), {"mean", "p50", "p90", "p99"})
            self.assertTrue(0 <= values["p50"] <= values["p90"] <= values["p99"], run)
        self.assertLessEqual(run["ttft_ms"]["p99"], run["e2e_ms"]["p99"])
        self.assertAlmostEqual(run["output_tokens_per_second"], output_tokens / run["seconds"])

    def test_graphs_off_and_on(self):
        answer = self.ok_json("bench", "serve", "--model-path", DEMO, *self.COMMON, *FEW_SIZES, "--graphs", "off,on",
                              "--request-rate", "50,inf", "--log-level", "error")
        self.assertEqual([(run["graphs"], run["request_rate"]) for run in answer["runs"]],
                         [(False, 50), (False, "inf"), (True, 50), (True, "inf")])
        for run in answer["runs"]:
            self.check_run(run, 6, 120, 30)
            self.assertEqual(run["clipped"], 0)

    def test_pairs_of_runs_are_compared(self):
        arguments = ["bench", "serve", "--model-path", DEMO, *self.COMMON, *FEW_SIZES, "--graphs", "off,on,on,off",
                     "--request-rate", "200,inf", "--log-level", "error"]
        answer = self.ok_json(*arguments)
        self.assertEqual([(c["rate"], c["pairs"]) for c in answer["comparison"]], [("200/s", 2), ("all at once", 2)])
        for comparison in answer["comparison"]:
            for name, of in (("ttft_p50_ms", "p50"), ("ttft_p99_ms", "p99")):
                found = comparison[name]
                rate = "inf" if comparison["rate"] == "all at once" else 200
                means = {graphs: sum(run["ttft_ms"][of] for run in answer["runs"] if run["graphs"] == graphs
                                     and run["request_rate"] == rate) / 2 for graphs in (False, True)}
                self.assertAlmostEqual(found["eager"], means[False])
                self.assertAlmostEqual(found["graphs"], means[True])
                middle = (found["difference_low"] + found["difference_high"]) / 2
                self.assertAlmostEqual(middle, means[True] - means[False])
        self.assertIn("graphs against eager", self.ok(*arguments).stdout)

    def test_trace_is_clipped_and_shares_prefixes(self):
        trace = self.folder / "trace.jsonl"
        lines = [{"timestamp": 10 * i, "input_length": 520 + i, "output_length": 3, "hash_ids": [0, i + 1]}
                 for i in range(3)] + [{"timestamp": 30, "input_length": 5000, "output_length": 3, "hash_ids": [9]}]
        trace.write_text("".join(json.dumps(line) + "\n" for line in lines))
        with Serving() as server:
            answer = self.ok_json("bench", "serve", "--url", server.url, "--vocab-size", 2048, "--trace", trace,
                                  "--num-prompts", 4, "--max-concurrency", 1, "--warmup", 0, "--request-rate", "100",
                                  "--api-key", "secret")
            run, = answer["runs"]
            self.check_run(run, 4, 520 + 521 + 522 + server.context - 3, 12)
            self.assertEqual(run["clipped"], 1)
            self.assertGreaterEqual(server.metric("cached_tokens_total"), 2 * 500)

    def test_agents_find_their_conversations_in_the_cache(self):
        common = ["bench", "serve", "--model-path", DEMO, "--agents", 3, "--agent-turns", 4, "--agent-first-len", 64,
                  "--output-len", 8, "--warmup", 0, *FEW_SIZES, "--log-level", "error"]
        arguments = [*common, "--agent-context", 200]
        answer = self.ok_json(*arguments)
        (run,), options = answer["runs"], answer["options"]
        self.assertEqual((run["failed"], run["clipped"]), (0, 0))
        self.assertIn(run["completed"], (12, 14, 16, 18))  # 3 · 4 turns; a sub-agent (1 turn) with its branch adds 2
        self.assertEqual((options["agents"], options["agent_context"], options["num_prompts"]), (3, 200, None))
        known, cached, page = run["agents"]["known_tokens"], run["cached_tokens"], 16
        # Only whole pages are cached. Sessions that begin together do not find the system prompt (48 tokens) cached.
        self.assertLessEqual(cached, known)
        self.assertGreaterEqual(cached, known - run["completed"] * (page + 1) - 3 * 48)
        ranges = run["agents"]["latencies"]
        self.assertEqual(sum(each["requests"] for each in ranges), run["completed"])
        self.assertEqual(ranges[-1]["end_input_tokens"], 4 * (200 // 4 + 1))
        self.assertIn("of an unlimited cache's, %", self.ok(*arguments).stdout)
        self.fails(2, ["--agent-context: 5000 is not accepted", "the server's context has room for"],
                   *common, "--agent-context", 5000)
        self.fails(2, ["--agent-context: 20000 is not accepted", "the server's context has room for 0"],
                   *[5000 if each == 8 else each for each in common], "--agent-context", 20000)
        self.fails(2, ["--agents: 2000000 is not accepted", "with 4 turns each, at most 559240 are"],
                   *[2000000 if each == 3 else each for each in arguments])

    def test_failures_have_reasons(self):
        with Serving() as server:
            self.fails(1, ["/v1/models: 401", "API key"], "bench", "serve", "--url", server.url,
                                "--served-model-name", "demo", *self.COMMON, "--api-key", "wrong")
            result = self.fails(1, ["no request succeeded: 400", "2047"], "bench", "serve", "--url", server.url,
                                "--vocab-size", 1 << 24, *self.COMMON, "--api-key", "secret", "--json")
            run, = json.loads(result.stdout)["runs"]
            self.assertEqual((run["completed"], run["failed"]), (0, 6))
        self.fails(1, ["http://127.0.0.1:1"], "bench", "serve", "--url", "http://127.0.0.1:1")

    def test_table(self):
        text = self.ok("bench", "serve", "--model-path", DEMO, *self.COMMON, *FEW_SIZES).stdout
        for words in ("all at once", "requests/s", "TTFT", "p99", "end to end"):
            self.assertIn(words, text)

    def test_profile(self):
        file = self.folder / "serve.json"
        arguments = ["bench", "serve", "--model-path", DEMO, *self.COMMON, *FEW_SIZES, "--profile", file,
                     "--request-rate", "50,inf"]
        runs = self.ok_json(*arguments, "--log-level", "error")["runs"]
        trace = json.loads(file.read_text())["traceEvents"]
        names = [event["args"]["name"] for event in trace if event["name"] == "process_name"]
        self.assertEqual(names, ["50/s", "all at once"])
        for process, run in enumerate(runs, 1):
            profile = run["profile"]
            phases = {phase["phase"]: phase for phase in profile["phases"]}
            spans = [event for event in trace if event["ph"] == "X" and event["pid"] == process]
            forwards = [span for span in spans if span["tid"] == 1]
            self.assertEqual(len(forwards), sum(phase["forwards"] for phase in phases.values()))
            # Forwards compute the 20 tokens of each prompt, and all tokens of each output except the last one.
            self.assertEqual(sum(phase["tokens"] for phase in phases.values()), 6 * (20 + 4))
            self.assertEqual(sum(span["args"]["tokens"] for span in forwards), 6 * (20 + 4))
            for phase in phases.values():
                self.assertAlmostEqual(sum(phase["device_parts_ms"].values()), phase["device_ms"], delta=0.1)
            self.assertLessEqual(profile["device_ms"], profile["total_ms"])
            self.assertGreaterEqual(profile["host_other_ms"], -0.01 * profile["total_ms"], "no time counts twice")
            for before, after in zip(forwards, forwards[1:]):
                self.assertGreaterEqual(after["ts"] + 1, before["ts"] + before["dur"])
        text = self.ok(*arguments).stdout
        for words in ("waits for the host before", "engine's thread, ms a forward", "schedule", "attention"):
            self.assertIn(words, text)
        self.fails(1, [str(self.folder)], *arguments[:-3], self.folder)
        self.fails(2, ["--profile does not go with --url"], "bench", "serve", "--url", "http://127.0.0.1:1",
                   "--profile", file)

    def test_wrong_traces(self):
        trace = self.folder / "trace.csv"
        trace.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9,1\n")
        self.fails(2, ["--trace", f"{trace}:2", "accepted"], "bench", "serve", "--model-path", DEMO, "--trace", trace)


if __name__ == "__main__":
    main()
