#!/usr/bin/env python3
"""The tessera command: help, and invalid command lines. tests/cli/cli_errors_test.py PROGRAM [TEST …]

Catches: a wrong exit code, an error of more than one line, and an error that does not name the fault and what is
accepted.
Prints a line for each test; the last line is "N passed, N failed"."""



from program import DEMO, LLAMA, CliTest, main


class HelpAndVersion(CliTest):
    def test_help(self):
        for arguments in ([], ["--help"], ["generate", "--help"], ["score", "-h"], ["explain", "--help"],
                          ["verify", "--help"], ["bench", "--help"], ["chat", "--help"], ["serve", "--help"],
                          ["cache", "--help"]):
            result = self.ok(*arguments)
            self.assertIn("Usage", result.stdout)
            self.assertEqual(result.stderr, "")
        self.assertIn("tessera 0.", self.ok("--version").stdout)


class BadCommandLine(CliTest):
    """Checks that each command line ends with exit code 2 and one line with the flag, its value and what is accepted."""

    def test_table(self):
        ids = ["generate", "--model-path", LLAMA, "--input-ids", "1,2"]
        text = ["generate", "--model-path", DEMO]
        for words, arguments in (
                (["\"generat\" is no command", "serve, generate, chat, score"], ["generat"]),
                (["--model-path is missing"], ["generate", "--prompt", "x"]),
                (["a prompt is missing"], text),
                (["--prompt: the text is empty"], [*text, "--prompt", ""]),
                (["two kinds of prompt"], [*ids, "--prompt", "x"]),
                (["--chat goes with"], [*ids, "--chat"]),
                (["--input-ids", "\"x\"", "1,2,3"], ["generate", "--model-path", LLAMA, "--input-ids", "1,x"]),
                (["--input-ids", "no ids"], ["generate", "--model-path", LLAMA, "--input-ids", ""]),
                (["--input-ids", "\"-1\""], ["generate", "--model-path", LLAMA, "--input-ids", "-1"]),
                (["--prompt", "UTF-8"], [*text, "--prompt", b"\xff".decode("utf-8", "surrogateescape")]),
                (["--temperature", "-0.5", "0 (greedy) or more"], [*ids, "--temperature", "-0.5"]),
                (["--temperature", "nan"], [*ids, "--temperature", "nan"]),
                (["--top-p: 1.5 is not accepted; a number in (0, 1] is"], [*ids, "--top-p", "1.5"]),
                (["--min-p: 2 is not accepted; a number in [0, 1] is"], [*ids, "--min-p", "2"]),
                (["--top-k", "-2"], [*ids, "--top-k", "-2"]),
                (["--max-new-tokens", "0"], [*ids, "--max-new-tokens", "0"]),
                (["--seed", "abc"], [*ids, "--seed", "abc"]),
                (["--max-new-tokens"], [*ids, "--max-new-tokens"]),
                (["--piecewise-cuda-graph-tokens", "\"0\"", "1 to 1048576"], [*ids, "--piecewise-cuda-graph-tokens", "0,4"]),
                (["--piecewise-cuda-graph-tokens", "\"-4\""], [*ids, "--piecewise-cuda-graph-tokens", "-4"]),
                (["--piecewise-cuda-graph-tokens", "\"many\""], [*ids, "--piecewise-cuda-graph-tokens", "many"]),
                (["--piecewise-cuda-graph-tokens", "\"\""], [*ids, "--piecewise-cuda-graph-tokens", "[]"]),
                (["--piecewise-cuda-graph-tokens", "1048577"], [*ids, "--piecewise-cuda-graph-tokens", "1048577"]),
                (["--piecewise-cuda-graph-max-tokens", "0"], [*ids, "--piecewise-cuda-graph-max-tokens", "0"]),
                (["--cuda-graph-bs", "1.5"], [*ids, "--cuda-graph-bs", "1.5"]),
                (["--cuda-graph-max-bs", "-1"], [*ids, "--cuda-graph-max-bs", "-1"]),
                (["--cuda-graph-mode", "fast", "full_and_piecewise"], [*ids, "--cuda-graph-mode", "fast"]),
                (["--cuda-graph-schedule", "none", "default, legacy, auto"], [*ids, "--cuda-graph-schedule", "none"]),
                (["--cuda-graph-capture", "soon", "auto, eager, lazy, core"], [*ids, "--cuda-graph-capture", "soon"]),
                (["--cuda-graph-memory-budget", "much", "0.5GiB"], [*ids, "--cuda-graph-memory-budget", "much"]),
                (["--cuda-graph-disable-passes", "speed"], [*ids, "--cuda-graph-disable-passes", "speed"]),
                (["--cuda-graph-split-ops", "atention", "attention"], [*ids, "--cuda-graph-split-ops", "atention"]),
                (["--piecewise-cuda-graph-compiler", "triton", "eager, fused"],
                 [*ids, "--piecewise-cuda-graph-compiler", "triton"]),
                (["unknown flag --max-new-token ", "did you mean --max-new-tokens?"], [*ids, "--max-new-token", "3"]),
                (["unknown flag --zzz", "--help"], [*ids, "--zzz"]),
                (['--quantization: "fp9" is not accepted'], [*ids, "--quantization", "fp9"]),
                (["quantization: awq is not accepted", "fp8, int8, int4, nvfp4"], [*ids, "--quantization", "awq"]),
                (["--kv-cache-dtype", "fp8_e5m2", "accepted is auto"], [*ids, "--kv-cache-dtype", "fp8_e5m2"]),
                (["--speculative-algorithm", "EAGLE", "SUFFIX"], [*ids, "--speculative-algorithm", "EAGLE"]),
                (["cache needs an action: info or clear"], ["cache"]),
                (["--pp-size", "65", "1 to 64"], [*ids, "--pp-size", "65"]),
                (["--dp-size", "2", "accepted is 1"], [*ids, "--dp-size=2"]),
                (["--device", "npu", "cpu, cuda and cuda:N"], [*ids, "--device", "npu"]),
                (["--device", "cuda:x", "cpu, cuda and cuda:N"], [*ids, "--device", "cuda:x"]),
                (["--dtype", "int4", "float32"], [*ids, "--dtype", "int4"]),
                (["--load-format", "gguf", "dummy"], [*ids, "--load-format", "gguf"]),
                (["--page-size", "0"], [*ids, "--page-size", "0"]),
                (["--context-length", "99999999", "positions"], [*ids, "--context-length", "99999999"]),
                (["--chunked-prefill-size", "0"], [*ids, "--chunked-prefill-size", "0"]),
                (["--mem-fraction-static", "2", "0.1 to 0.95"], [*ids, "--mem-fraction-static", "2"]),
                (["--memory-plan", "none", "planned, isolated"], [*ids, "--memory-plan", "none"]),
                (["--log-level", "loud"], [*ids, "--log-level", "loud"]),
                (["--log-level", "\"dispach\"", "capture, ", "dispatch"], [*ids, "--log-level", "dispach=debug"]),
                (["--output is missing"], ["score", "--model-path", LLAMA, "--input-ids", "1"]),
                (["--num-tokens", "0"], ["explain", "--model-path", LLAMA, "--num-tokens", "0"]),
                (["--format", "png", "text, json, dot, svg"], ["explain", "--model-path", LLAMA, "--format", "png"]),
                (["--suggest-tokens", "/no/such/trace"],
                 ["explain", "--model-path", LLAMA, "--suggest-tokens", "/no/such/trace"]),
                (["--suggest-tokens", "picture"],
                 ["explain", "--model-path", LLAMA, "--suggest-tokens", "trace", "--format", "dot"]),
                (["--config", "/dev/zero", "more than 1048576 bytes"], ["explain", "--config", "/dev/zero"]),
                (["--config", "/dev", "directory"], ["explain", "--config", "/dev"]),
                (["--num-tokens", "--suggest-tokens"],
                 ["explain", "--model-path", LLAMA, "--suggest-tokens", "trace", "--num-tokens", "4"]),
                (["--graph", "\"tail\"", "body, head, sampler", "stitched", "0 to 5"],
                 ["explain", "--model-path", LLAMA, "--graph", "tail"]),
                (["--num-tokens", "--graph"],
                 ["explain", "--model-path", LLAMA, "--graph", "body", "--num-tokens", "3"]),
                (["bench needs what to measure"], ["bench", "--model-path", LLAMA]),
                (["--output is missing"], ["bench", "profile", "--model-path", LLAMA, "--num-tokens", "8"]),
                (["bench profile needs --num-tokens, --batch-size"],
                 ["bench", "profile", "--model-path", LLAMA, "--output", "x.json"]),
                (["--context goes with --batch-size"],
                 ["bench", "profile", "--model-path", LLAMA, "--output", "x", "--num-tokens", "8", "--context", "9"]),
                (["--output does not go with bench decode"],
                 ["bench", "decode", "--model-path", LLAMA, "--output", "x"]),
                (["--num-tokens", "\"0\""],
                 ["bench", "profile", "--model-path", LLAMA, "--output", "x", "--num-tokens", "0"]),
                (["--input-file has its own prompts"], [*ids, "--input-file", "x", "--output-file", "y"]),
                (["--output-file is missing"], [*text, "--input-file", "x"]),
                (["--stop", "empty"], [*ids, "--stop", ""]),
                (["--presence-penalty", "3", "a number in [-2, 2] is"], [*ids, "--presence-penalty", "3"]),
                (["unknown flag --prompt of chat"], ["chat", "--model-path", DEMO, "--prompt", "x"]),
                (["--input-len", "--trace"], ["bench", "serve", "--model-path", DEMO, "--trace", "x", "--input-len", "3"]),
                (["--request-rate", "\"fast\"", "inf"],
                 ["bench", "serve", "--model-path", DEMO, "--request-rate", "fast"]),
                (["--url", "\"example.org\"", "http://"], ["bench", "serve", "--url", "example.org"]),
                (["--graphs", "--url"], ["bench", "serve", "--url", "http://x", "--graphs", "on"]),
                (["--num-prompts", "bench decode"],
                 ["bench", "decode", "--model-path", LLAMA, "--num-prompts", "9"]),
                (["bench", "speed", "prefill, decode, graphs, startup, profile, vision, serve"], ["bench", "speed", "--model-path", LLAMA]),
                (["--context", "does not go with bench prefill"],
                 ["bench", "prefill", "--model-path", LLAMA, "--context", "9"])):
            with self.subTest(arguments=arguments[1:]):
                self.fails(2, words, *arguments)

    def test_a_server_is_checked_before_its_model_is_read(self):
        """Checks that a wrong flag of the server is reported before weights are read or a model is downloaded."""
        bare = self.folder / "bare"
        bare.mkdir()
        (bare / "config.json").write_text((LLAMA / "config.json").read_text())
        broken = self.folder / "broken.jinja"
        broken.write_text("{% if %}")
        self.fails(1, ["model.safetensors"], "serve", "--model-path", bare, "--port", 0)
        for model in (bare, "no/model"):
            for words, flags in ((["--chat-template", "cannot open /no/such/file"], ["--chat-template", "/no/such/file"]),
                                 (["--chat-template: line 1"], ["--chat-template", broken]),
                                 (["--access-log: cannot open /no/such/log"], ["--access-log", "/no/such/log"]),
                                 (["--file-storage-path", "/dev/null/files"], ["--file-storage-path", "/dev/null/files"]),
                                 (["--tool-call-parser", "\"magic\"", "hermes"], ["--tool-call-parser", "magic"]),
                                 (["--reasoning-parser", "\"magic\"", "qwen3"], ["--reasoning-parser", "magic"])):
                with self.subTest(flags=flags):
                    self.fails(2, words, "serve", "--model-path", model, "--port", 0, *flags)


if __name__ == "__main__":
    main()
