#!/usr/bin/env python3
"""The tessera command with invalid models. tests/cli/cli_bad_model_test.py PROGRAM [TEST …]

Catches: input that crashes the program or is accepted, and an error that does not name file and field.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import os
import shutil
import struct
import subprocess
import unittest

from program import DEMO, FEW_SIZES, LLAMA, PROGRAM, CliTest, main


class BadModel(CliTest):
    """Checks that each model ends the command with exit code 1 and one line with the file, the tensor or field, the value
    and what is accepted."""

    def model(self, **config_changes):
        folder = self.folder / "model"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(LLAMA, folder)
        if config_changes:
            config = json.loads((folder / "config.json").read_text())
            config.update(config_changes)
            (folder / "config.json").write_text(json.dumps(config))
        return folder

    def generate_fails(self, words, model, *more):
        self.fails(1, words, "generate", "--model-path", model, "--input-ids", "1,2", "--max-new-tokens", 2, *FEW_SIZES,
                   "--log-level", "error", *more)

    def test_missing_files(self):
        self.generate_fails(["/no/such/model"], "/no/such/model")
        model = self.model()
        (model / "model.safetensors").unlink()
        self.generate_fails(["model.safetensors"], model)
        (model / "config.json").unlink()
        self.generate_fails(["config.json"], model)
        self.fails(1, ["tokenizer.json"], "generate", "--model-path", self.model(), "--prompt", "hello")
        self.generate_fails(["/no/tokenizer.json"], self.model(), "--tokenizer-path", "/no/tokenizer.json")
        self.fails(1, ["/no/prompt"], "generate", "--model-path", DEMO, "--prompt-file", "/no/prompt")

    def test_missing_shard(self):
        model = self.model()
        (model / "model.safetensors").rename(model / "model-00001-of-00002.safetensors")
        index = {"metadata": {}, "weight_map": {"lm_head.weight": "model-00002-of-00002.safetensors"}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        self.generate_fails(["model-00002-of-00002.safetensors"], model)

    def test_configs(self):
        for words, changes in ((["MambaForCausalLM", "LlamaForCausalLM"], {"architectures": ["MambaForCausalLM"]}),
                               (["hidden_size", "-64"], {"hidden_size": -64}),
                               (["num_hidden_layers", "1000000000"], {"num_hidden_layers": 10**9}),
                               (["vocab_size", "many"], {"vocab_size": "many"}),
                               (["num_key_value_heads"], {"num_key_value_heads": 3}),
                               (["rope"], {"rope_scaling": {"rope_type": "spiral", "factor": 2.0},
                                           "rope_parameters": {"rope_type": "spiral", "factor": 2.0}})):
            with self.subTest(changes=changes):
                self.generate_fails(["config.json", *words], self.model(**changes))
        model = self.model()
        (model / "config.json").write_text("{")
        self.generate_fails(["config.json"], model)

    def edit_header(self, model, edit):
        path = model / "model.safetensors"
        data = path.read_bytes()
        header_bytes = struct.unpack("<Q", data[:8])[0]
        header = json.loads(data[8:8 + header_bytes])
        edit(header)
        text = json.dumps(header).encode()
        path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + header_bytes:])

    def test_corrupt_safetensors(self):
        path = self.model() / "model.safetensors"
        whole = path.read_bytes()
        header_bytes = struct.unpack("<Q", whole[:8])[0]
        for what, content in (("empty", b""), ("cut in the length", whole[:5]), ("cut in the header", whole[:40]),
                              ("cut in the data", whole[:-100]), ("longer than it says", whole + b"x" * 64),
                              ("header beyond the file", struct.pack("<Q", 1 << 40) + whole[8:]),
                              ("header is no JSON", whole[:8] + b"x" * header_bytes + whole[8 + header_bytes:])):
            with self.subTest(what=what):
                path.write_bytes(content)
                self.generate_fails(["model.safetensors"], path.parent)

    def test_lying_headers(self):
        name = "model.norm.weight"

        def overlap(header):
            begin, end = header[name]["data_offsets"]
            header[name]["data_offsets"] = [begin - 4, end - 4] if begin >= 4 else [begin + 4, end + 4]

        def misshape(header):
            header[name]["shape"] = [header[name]["shape"][0] + 1]

        def negative(header):
            header[name]["shape"] = [-1]

        def unknown_dtype(header):
            header[name]["dtype"] = "F7"

        def missing(header):
            header["other"] = header.pop(name)

        for edit in (overlap, misshape, negative, unknown_dtype, missing):
            with self.subTest(edit=edit.__name__):
                model = self.model()
                self.edit_header(model, edit)
                self.generate_fails([name] if edit is not overlap else ["model.safetensors"], model)

    def test_weights_of_another_shape(self):
        self.generate_fails(["shape"], self.model(intermediate_size=2 * 64))

    def test_tokenizers(self):
        folder = self.folder / "tokenizer"
        shutil.copytree(DEMO, folder, ignore=shutil.ignore_patterns("*.safetensors"))
        tokenizer = json.loads((folder / "tokenizer.json").read_text())
        tokenizer["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": "(unclosed"}, "behavior": "Isolated", "invert": False}]}
        (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
        self.generate_fails(["tokenizer.json", "(unclosed"], LLAMA, "--tokenizer-path", folder)
        (folder / "tokenizer.json").write_text("[1, 2")
        self.generate_fails(["tokenizer.json"], LLAMA, "--tokenizer-path", folder)

    def test_requests(self):
        vocab = json.loads((LLAMA / "config.json").read_text())["vocab_size"]
        for words, ids, more in ((["id 99999999", f"0 to {vocab - 1}"], "1,99999999", []),
                                 ([f"id {vocab}", f"0 to {vocab - 1}"], str(vocab), []),
                                 (["the prompt has 30 tokens", "context of 20"], ",".join(["1"] * 30),
                                  ["--context-length", 20])):
            with self.subTest(ids=ids[:20]):
                self.fails(1, words, "generate", "--model-path", LLAMA, "--input-ids", ids, *FEW_SIZES, "--log-level",
                           "error", *more)
        file = self.folder / "empty"
        file.write_text("")
        self.fails(1, ["empty", str(file)], "generate", "--model-path", DEMO, "--prompt-file", file, *FEW_SIZES)

    def test_paths_that_no_system_takes(self):
        path = "a" * 5000
        self.generate_fails([path], path)
        self.generate_fails(["File name too long"], LLAMA, "--tokenizer-path", path)
        self.generate_fails(["config.json/x"], LLAMA / "config.json" / "x")

    @unittest.skipUnless(os.path.exists("/dev/full"), "there is no /dev/full")
    def test_full_standard_output(self):
        few = ["--model-path", LLAMA, *FEW_SIZES, "--log-level", "error"]
        for command in (["generate", *few, "--input-ids", "1", "--max-new-tokens", 3],
                        ["generate", *few, "--input-ids", "1", "--json"],
                        ["explain", "--model-path", LLAMA, "--format", "json"], ["--help"]):
            with open("/dev/full", "w") as full:
                result = subprocess.run([str(PROGRAM), *map(str, command)], stdout=full, stderr=subprocess.PIPE,
                                        text=True, timeout=200, check=False)
            self.assertEqual(result.returncode, 1, command)
            self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertIn("standard output cannot be written", result.stderr)

    def test_output_that_cannot_be_written(self):
        self.fails(1, ["/no/folder"], "score", "--model-path", LLAMA, "--input-ids", "1", "--output",
                   "/no/folder/f.safetensors", *FEW_SIZES, "--log-level", "error")
        self.fails(1, ["/no/folder"], "explain", "--model-path", LLAMA, "--output", "/no/folder/f.svg")


if __name__ == "__main__":
    main()
