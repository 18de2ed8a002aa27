#!/usr/bin/env python3
"""The tessera command: quantize. tests/cli/cli_quantize_test.py PROGRAM [TEST …]

Catches: a written file that gives other texts than the model, a file that other readers of GGUF refuse, a file that is
overwritten without permission, and a failed write that leaves a file behind.
Prints a line for each test; the last line is "N passed, N failed"."""

import importlib.util
import json
import math
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import time
import unittest

from program import DEMO, FEW_SIZES, GOLDENS, LLAMA, PROGRAM, CliTest, main, read_safetensors

STORY = ["--prompt", "Once upon a time, in the forest, there lived a brave fox named Ruby.", "--max-new-tokens", 24]
CHAT = ["--prompt", "What is 7 plus 5?", "--chat", "--max-new-tokens", 24]


class Quantize(CliTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "out.gguf"

    def generated(self, model, *words):
        return self.ok("generate", "--model-path", model, *words, *FEW_SIZES).stdout

    def logits(self, model):
        """Returns the logits behind a prompt, computed in float32."""
        scores = self.folder / "scores"
        self.ok("score", "--model-path", model, "--input-ids", "5,9,200,31,7,300,12", "--dtype", "float32", "--output", scores,
                *FEW_SIZES)
        return read_safetensors(scores)["logits"][1]

    def test_folder_becomes_files_that_tell_the_same(self):
        for words in (STORY, CHAT):
            with self.subTest(words=words):
                want = self.generated(DEMO, *words)
                for name in ("BF16", "Q8_0", "Q4_K_M"):
                    out = self.folder / f"{name}.gguf"
                    if not out.exists():
                        self.ok("quantize", DEMO, out, "--type", name)
                    got = self.generated(out, *words)
                    # In every type the first words equal those of the unquantised model.
                    self.assertEqual(got.split()[:4], want.split()[:4], name)
                    if name != "Q4_K_M":
                        self.assertEqual(got, want, name)

    def test_files_of_all_families_compute_the_same(self):
        for name in ("llama", "llama-bias", "llama3-rope-tied", "llama-yarn", "mixtral", "qwen2", "qwen3", "qwen3-moe",
                     "gemma2", "gemma4", "gemma4-e", "gemma4-moe", "qwen3.5", "qwen3.5-text", "qwen3.5-moe", "gpt-oss-mxfp4",
                     # These models are quantised already.
                     "qwen3-fp8-block", "llama-ct-w8a8", "llama-ct-nvfp4", "qwen3-ct-w4a16", "llama-quark-mxfp4",
                     "qwen3-moe-ct-mxfp4", "qwen3.5-moe-nvfp4-modelopt", "qwen3.5-moe-fp8-block", "gemma4-nvfp4-modelopt"):
            with self.subTest(model=name):
                source = GOLDENS / name
                if not source.exists():
                    source = GOLDENS.parent / "quantised" / name
                out = self.folder / f"{name}.gguf"
                self.ok("quantize", source, out, "--type", "F32")
                worst = max(abs(a - b) for a, b in zip(self.logits(source), self.logits(out), strict=True))
                self.assertLess(worst, 2e-5)

    def test_bf16_loses_nothing_and_q8_little(self):
        for name in ("llama", "gemma4", "gemma4-e", "gemma4-moe"):
            with self.subTest(model=name):
                want = self.logits(GOLDENS / name)
                self.ok("quantize", GOLDENS / name, self.out, "--type", "BF16", "--overwrite")
                self.assertEqual(self.logits(self.out), want)
                self.ok("quantize", GOLDENS / name, self.out, "--type", "Q8_0", "--overwrite")
                error = math.dist(self.logits(self.out), want) / math.hypot(*want)
                self.assertGreater(error, 1e-4)
                self.assertLess(error, 0.04)

    def test_folders_with_quantised_linears_tell_the_same(self):
        want = self.generated(DEMO, *STORY).split()[:4]
        for name, form in (("fp8", "FP8 e4m3, blocks of 128"), ("fp8-dynamic", "FP8 e4m3, a scale for each row"),
                           ("int8", "as int8, a scale for each row"), ("int4", "as int4, groups of 128"), ("nvfp4", "as NVFP4")):
            with self.subTest(type=name):
                out = self.folder / name
                said = self.ok("quantize", DEMO, out, "--type", name)
                self.assertRegex(said.stdout, rf"{name}: [\d.]+ MiB became [\d.]+ MiB, ")
                self.assertEqual(self.generated(out, *STORY).split()[:4], want)
                self.assertIn(form, self.ok("explain", "--model-path", out).stdout)
                copied = {file.name for file in DEMO.iterdir()} - {"README.md"}
                self.assertEqual({file.name for file in out.iterdir()}, copied)
                self.fails(1, ["is not empty; give a new folder"], "quantize", DEMO, out, "--type", name, "--overwrite")
        self.fails(1, ["accepted: a folder"], "quantize", DEMO, self.out, "--type", "fp8")

    def test_output_says_what_became_of_the_model(self):
        said = self.ok("quantize", DEMO, self.out, "--type", "q4_k_m")
        self.assertIn("Note: ", said.stderr)
        self.assertIn("tensors of next-token layers are left out", said.stderr)
        self.assertRegex(said.stdout, r"Q4_K +\d+ +[\d,]+ +[\d.]+ MiB\n")
        self.assertRegex(said.stdout, r"out\.gguf: [\d.]+ MiB became [\d.]+ MiB, [\d.]+ bits per weight, in [\d.e-]+ s\n$")
        told = self.ok_json("quantize", DEMO, self.folder / "again.gguf", "--type", "Q4_K_M")
        self.assertEqual(self.out.read_bytes(), (self.folder / "again.gguf").read_bytes())
        self.assertEqual(told["types"]["Q4_K"]["tensors"] + told["types"]["Q6_K"]["tensors"] + told["types"]["F32"]["tensors"],
                         len(told["tensors"]))
        types = {tensor["name"]: tensor["to"] for tensor in told["tensors"]}
        self.assertEqual(types["token_embd.weight"], "Q6_K")
        self.assertEqual(types["blk.0.attn_norm.weight"], "F32")
        self.assertEqual(told["bytes_after"], sum(tensor["bytes"] for tensor in told["tensors"]))
        self.assertLess(told["bits_per_weight"], 5.6)
        self.assertEqual(len(told["notes"]), 1)

    def test_rows_that_do_not_fit_are_said(self):
        said = self.ok("quantize", LLAMA, self.out, "--type", "Q4_K_S")
        self.assertIn("instead of Q4_K, whose blocks do not divide their rows", said.stderr)
        self.assertIn("has no tokenizer", said.stderr)
        self.ok("score", "--model-path", self.out, "--input-ids", "5,9,200,31,7", "--output", self.folder / "s", *FEW_SIZES)

    def test_file_is_quantised_again(self):
        self.ok("quantize", DEMO, self.out, "--type", "BF16")
        again = self.folder / "again.gguf"
        self.ok("quantize", self.out, again, "--type", "Q6_K")
        direct = self.folder / "direct.gguf"
        self.ok("quantize", DEMO, direct, "--type", "Q6_K")
        self.assertEqual(again.read_bytes(), direct.read_bytes())

    def test_refuses_wrong_words(self):
        for words, said in ((("--type", "Q9_9"), ["--type", "\"Q9_9\" is not accepted", "Q4_K_M"]),
                            ((), ["--type is missing", "Q4_K_M"]),
                            (("--type", ""), ["--type"])):
            self.fails(2, said, "quantize", DEMO, self.out, *words)
        for words in ((), (DEMO,)):
            self.fails(2, ["quantize needs a model and an output"], "quantize", *words, "--type", "Q8_0")
        self.assertFalse(self.out.exists())

    def test_refuses_what_cannot_be_read_or_written(self):
        def refused(words, source, out):
            self.fails(1, words, "quantize", source, out, "--type", "Q8_0")

        refused(["none"], self.folder / "none", self.out)
        refused(["ends in .gguf"], DEMO, self.folder / "out.bin")
        refused(["ends in .gguf"], DEMO, self.folder / "out-00001-of-00002.gguf")
        refused(["cannot", str(self.folder / "nowhere")], DEMO, self.folder / "nowhere" / "out.gguf")
        refused(["is stored as int4", "accepted"], GOLDENS.parent / "quantised" / "qwen3-gptq", self.out)
        refused(["architecture Olmo2ForCausalLM", "accepted", "Qwen3ForCausalLM"], GOLDENS / "olmo2", self.out)
        (self.folder / "is.gguf").mkdir()
        refused(["is a folder"], DEMO, self.folder / "is.gguf")
        self.assertEqual([file.name for file in self.folder.iterdir()], ["is.gguf"])

    def test_tensors_without_a_place_are_named(self):
        folder = self.folder / "model"
        shutil.copytree(LLAMA, folder)
        config = json.loads((folder / "config.json").read_text())
        config["architectures"] = ["Qwen2ForCausalLM"]
        (folder / "config.json").write_text(json.dumps(config))
        data = (folder / "model.safetensors").read_bytes()
        (folder / "model.safetensors").write_bytes(data.replace(b"model.layers.0.self_attn.q_proj.weight",
                                                                b"model.layers.0.self_attn.x_proj.weight"))
        self.fails(1, ["model.layers.0.self_attn.x_proj.weight", "has no place", "qwen2"], "quantize", folder, self.out,
                   "--type", "Q8_0")

    def test_replaces_a_file_only_if_asked_to(self):
        self.out.write_text("mine")
        self.fails(1, ["out.gguf is there already", "--overwrite"], "quantize", DEMO, self.out, "--type", "Q8_0")
        self.assertEqual(self.out.read_text(), "mine")
        self.ok("quantize", DEMO, self.out, "--type", "Q8_0", "--overwrite")
        self.fails(1, ["is the model itself"], "quantize", self.out, self.out, "--type", "Q4_0", "--overwrite")
        self.assertEqual(self.out.read_bytes()[:4], b"GGUF")

    def test_failed_write_leaves_nothing(self):
        def small_files():
            resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

        done = subprocess.run([str(PROGRAM), "quantize", str(DEMO), str(self.out), "--type", "Q8_0"], text=True,
                              preexec_fn=small_files, restore_signals=False,  # a write beyond the limit is an error
                              capture_output=True, timeout=100, check=False)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])

    def larger_model(self):
        """Writes a model that takes a second to quantise: ten layers of 27 MiB."""
        config = json.loads((DEMO / "config.json").read_text())
        config.update(hidden_size=1024, intermediate_size=4096, num_hidden_layers=10, vocab_size=2048)
        source = self.folder / "config.json"
        source.write_text(json.dumps(config))
        self.ok("make-checkpoint", source, self.folder / "model")
        return self.folder / "model"

    def test_memory_is_less_than_two_layers(self):
        model = self.larger_model()
        for name, out in (("Q4_K_M", self.out), ("nvfp4", self.folder / "out")):
            with self.subTest(type=name):
                process = subprocess.Popen([str(PROGRAM), "quantize", str(model), str(out), "--type", name],
                                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
                most = 0  # KiB of memory that maps no file
                while process.poll() is None:
                    status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
                    most = max([most, *map(int, re.findall(r"RssAnon:\s+(\d+)", status))])
                    time.sleep(0.005)
                self.assertEqual(process.returncode, 0)
                self.assertGreater(most, 1000)
                self.assertLess(most, 2 * 27 * 1024)

    def test_interrupted_write_leaves_nothing(self):
        model = self.larger_model()
        for name, out in (("Q4_K_M", self.out), ("fp8", self.folder / "out")):
            with self.subTest(type=name):
                process = subprocess.Popen([str(PROGRAM), "quantize", str(model), str(out), "--type", name],
                                           stderr=subprocess.PIPE, text=True)
                while process.poll() is None and not list(self.folder.glob("out*.tmp-*")):
                    time.sleep(0.001)
                process.send_signal(signal.SIGINT)
                _, said = process.communicate(timeout=100)
                self.assertEqual(process.returncode, 1, said)
                self.assertIn(f"stopped: nothing is written to {out}", said)
                self.assertEqual({file.name for file in self.folder.iterdir()}, {"config.json", "model"})

    def test_full_disk_is_named(self):
        mount = self.folder / "small"
        mount.mkdir()
        if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)],
                                               capture_output=True, check=False).returncode != 0:
            self.skipTest("no small file system can be mounted")
        self.addCleanup(subprocess.run, ["umount", str(mount)], check=True)
        said = self.fails(1, ["has room for", "needs", "more"], "quantize", DEMO, mount / "out.gguf", "--type", "Q8_0")
        self.assertNotIn("Quantising", said.stderr)
        self.assertEqual(list(mount.iterdir()), [])

    @unittest.skipUnless(importlib.util.find_spec("gguf"), "the Python package gguf is not installed")
    def test_other_reader_reads_equal_numbers(self):
        import gguf  # pylint: disable=import-outside-toplevel
        import numpy  # pylint: disable=import-outside-toplevel
        types = ("Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "BF16")
        # Rows of the small Gemmas are too short for the blocks of K types.
        for model, names in ((DEMO, (*types, "Q4_K_M")), *((GOLDENS / name, types) for name in ("gemma4-e", "gemma4-moe"))):
            self.ok("quantize", model, self.folder / "f32.gguf", "--type", "F32", "--overwrite")
            exact = {tensor.name: numpy.array(tensor.data) for tensor in gguf.GGUFReader(self.folder / "f32.gguf").tensors}
            for name in names:
                out = self.folder / f"{name}.gguf"
                self.ok("quantize", model, out, "--type", name, "--overwrite")
                for tensor in gguf.GGUFReader(out).tensors:
                    numbers = exact[tensor.name]
                    if tensor.tensor_type.name in types:
                        want = gguf.quantize(numbers, tensor.tensor_type)
                        self.assertTrue(numpy.array_equal(want, tensor.data), f"{model}, {name}: {tensor.name}")
                    if tensor.tensor_type.name == "F32":
                        self.assertTrue(numpy.array_equal(numbers, tensor.data), f"{model}, {name}: {tensor.name}")
                        continue
                    got = gguf.dequantize(tensor.data, tensor.tensor_type)
                    error = numpy.linalg.norm(got - numbers) / numpy.linalg.norm(numbers)
                    self.assertLess(error, 0.12, f"{model}, {name}: {tensor.name}")


if __name__ == "__main__":
    main()
