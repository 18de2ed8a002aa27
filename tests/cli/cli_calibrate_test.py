#!/usr/bin/env python3
"""The tessera commands calibrate, and quantize with its file. tests/cli/cli_calibrate_test.py PROGRAM [TEST …]

Catches: sums that depend on chunks or on the file format; an importance matrix that breaks a quantised model or
has no effect; wrong matrices and texts that are accepted; and a file that is replaced without permission.
Prints a line for each test; the last line is "N passed, N failed"."""

import importlib.util
import json
import pathlib
import struct
import unittest

from program import DEMO, FEW_SIZES, GOLDENS, LLAMA, CliTest, main

STORY = ("Once upon a time, in the forest, there lived a brave fox named Ruby. One day the fox found a small key under "
         "an old tree.")


def read_gguf(path):
    """Returns {name: (shape with the rows first, values)} of a file whose tensors are all F32, and the keys' texts."""
    data = pathlib.Path(path).read_bytes()
    at = 4

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def text():
        nonlocal at
        size = take("Q")
        at += size
        return data[at - size:at].decode()

    def value(kind):
        if kind == 8:
            return text()
        if kind == 9:
            of, count = take("I"), take("Q")
            return [value(of) for _ in range(count)]
        return take({4: "I", 5: "i", 6: "f", 7: "?", 10: "Q"}[kind])

    assert data[:4] == b"GGUF" and take("I") == 3
    tensors, pairs = take("Q"), take("Q")
    keys = {}
    for _ in range(pairs):
        key = text()
        keys[key] = value(take("I"))
    entries = []
    for _ in range(tensors):
        name, rank = text(), take("I")
        shape = [take("Q") for _ in range(rank)][::-1]
        assert take("I") == 0
        entries.append((name, shape, take("Q")))
    begin = (at + 31) // 32 * 32
    values = {}
    for name, shape, offset in entries:
        count = 1
        for size in shape:
            count *= size
        values[name] = (shape, struct.unpack_from(f"<{count}f", data, begin + offset))
    return values, keys


class Calibrate(CliTest):
    def setUp(self):
        super().setUp()
        self.out = self.folder / "i.gguf"
        self.text = self.folder / "text.txt"
        self.text.write_text(STORY * 8)

    def sums(self, model, *words):
        self.ok("calibrate", model, self.text, "-o", self.out, "--overwrite", *words)
        return read_gguf(self.out)[0]

    def tokenizer(self):
        """Writes the first 400 tokens of the bundled tokenizer, for models with few ids."""
        source = json.loads((DEMO / "tokenizer.json").read_text())
        model = source["model"]
        model["vocab"] = {token: number for token, number in model["vocab"].items() if number < 400}
        known = model["vocab"]
        pairs = [merge.split(" ") if isinstance(merge, str) else merge for merge in model["merges"]]
        model["merges"] = [pair for pair in pairs if all(part in known for part in (*pair, "".join(pair)))]
        source["added_tokens"] = []
        path = self.folder / "tokenizer.json"
        path.write_text(json.dumps(source))
        return path

    def test_every_matrix_has_sums_over_all_tokens(self):
        told = self.ok_json("calibrate", DEMO, self.text, "-o", self.out, "--chunk-tokens", 64)
        values, keys = read_gguf(self.out)
        self.assertEqual(keys, {"general.type": "imatrix", "imatrix.datasets": [str(self.text)],
                                "imatrix.chunk_count": told["chunks"], "imatrix.chunk_size": 64})
        self.assertEqual(told["chunks"], -(-told["tokens"] // 64))
        self.assertLess(told["perplexity"], 200)
        self.assertEqual(len(values), 2 * told["matrices"])
        names = {f"blk.{layer}.{part}.weight" for layer in range(6) for part in (
            "attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")} | {"token_embd.weight"}
        self.assertEqual({name.removesuffix(".counts") for name in values if name.endswith(".counts")}, names)
        for name in names:
            self.assertEqual(values[name + ".counts"], ([1], (told["tokens"],)), name)
            shape, sums = values[name + ".in_sum2"]
            self.assertEqual(shape, [{"attn_output": 512, "ffn_down": 768}.get(name.split(".")[-2], 256)])
            self.assertGreater(min(sums), 0)
        self.assertEqual(values["blk.2.attn_q.weight.in_sum2"], values["blk.2.attn_k.weight.in_sum2"])

    def test_first_chunks_are_the_beginning_of_the_text(self):
        told = self.ok_json("calibrate", DEMO, self.text, "-o", self.out, "--chunk-tokens", 32, "--chunks", 2)
        self.assertEqual((told["chunks"], told["tokens"]), (2, 64))

    def close(self, got, want, tolerance, model):
        self.assertEqual(got.keys(), want.keys(), model)
        for name, (shape, values) in want.items():
            self.assertEqual(got[name][0], shape, f"{model}: {name}")
            most = max(values)
            worst = max(abs(a - b) for a, b in zip(got[name][1], values))
            self.assertLessEqual(worst, tolerance * most, f"{model}: {name}")

    def test_files_and_folders_of_all_families_have_equal_sums(self):
        flags = ["--tokenizer-path", self.tokenizer(), "--dtype", "float32", *FEW_SIZES]
        self.text.write_text(STORY)
        for name in ("llama", "llama-bias", "llama3-rope-tied", "mixtral", "qwen2", "qwen3", "qwen3-moe", "gemma2",
                     "qwen3.5-text", "qwen3.5-moe", "gemma4-e", "gemma4-moe",
                     # These models are quantised.
                     "qwen3-fp8-block", "llama-ct-nvfp4", "qwen3-ct-w4a16", "qwen3.5-moe-fp8-block"):
            with self.subTest(model=name):
                source = GOLDENS / name
                if not source.exists():
                    source = GOLDENS.parent / "quantised" / name
                out = self.folder / f"{name}.gguf"
                self.ok("quantize", source, out, "--type", "F32")
                self.close(self.sums(out, *flags), self.sums(source, *flags), 1e-3, name)
                # self.out now has the importance matrix of the source folder, which was computed last.
                if not name.startswith("qwen3.5"):
                    self.ok("quantize", source, self.folder / "small.gguf", "--type", "Q4_0", "--imatrix", self.out,
                            "--overwrite")

    def test_bfloat16_sums_are_close_to_float32_ones(self):
        self.close(self.sums(DEMO, "--dtype", "bfloat16"), self.sums(DEMO, "--dtype", "float32"), 0.05, "demo")

    def test_model_with_a_matrix_tells_the_same(self):
        self.ok("calibrate", DEMO, self.text, "-o", self.out)
        told = []
        files = []
        for flags in ([], ["--imatrix", self.out]):
            file = self.folder / f"{len(files)}.gguf"
            self.ok("quantize", DEMO, file, "--type", "Q4_K_M", *flags)
            files.append(file.read_bytes())
            told.append(self.ok("generate", "--model-path", file, "--prompt", STORY, "--max-new-tokens", 16,
                                *FEW_SIZES).stdout.split()[:4])
        self.assertEqual(told[0], told[1])
        self.assertNotEqual(files[0], files[1])

    def test_folders_with_a_matrix_score_like_the_model(self):
        self.ok("calibrate", DEMO, self.text, "-o", self.out)

        def logprob(model):
            """Returns the mean logarithm of the probabilities of the text's tokens."""
            row = self.ok_json("score", "--model-path", model, "--prompt", STORY, "--output", self.folder / "scores",
                               *FEW_SIZES)["prompts"][0]
            return row["logprob"] / (row["tokens"] - 1)

        for kind in ("int4", "nvfp4"):
            files = []
            for flags in ([], ["--imatrix", self.out]):
                folder = self.folder / f"{kind}{len(files)}"
                self.ok("quantize", DEMO, folder, "--type", kind, *flags)
                files.append((folder / "model.safetensors").read_bytes())
                self.assertLess(abs(logprob(folder) - logprob(DEMO)), 0.1, (kind, flags))
            self.assertEqual(len(files[0]), len(files[1]))
            self.assertNotEqual(files[0], files[1])

    def test_quantize_says_what_the_matrix_does(self):
        self.ok("calibrate", DEMO, self.text, "-o", self.out)
        told = self.ok_json("quantize", DEMO, self.folder / "m.gguf", "--type", "Q4_K_M", "--imatrix", self.out)
        self.assertEqual(len(told["notes"]), 1, told["notes"])
        self.assertEqual({tensor["to"] for tensor in told["tensors"]}, {"Q4_K", "Q6_K", "F32"})

    def test_wrong_matrices_are_refused_before_writing(self):
        self.ok("calibrate", DEMO, self.text, "-o", self.out)
        model = self.folder / "m.gguf"

        def refused(words, matrix, kind="Q4_K_M", source=DEMO, out=model, exit_code=1):
            self.fails(exit_code, words, "quantize", source, out, "--type", kind, "--imatrix", matrix)
            self.assertFalse(out.exists())

        data = self.out.read_bytes()
        wrong = self.folder / "wrong.gguf"
        refused(["none.gguf"], self.folder / "none.gguf", exit_code=2)
        refused(["safetensors", "GGUF"], DEMO / "model.safetensors", exit_code=2)
        wrong.write_bytes(b"\x01\0\0\0\x03\0\0\0abc")
        refused(["wrong.gguf", "llama-imatrix --in-file OLD -o NEW.gguf"], wrong, exit_code=2)
        wrong.write_bytes(data.replace(b"imatrix.chunk_size", b"imatrix.chunk_sizf"))
        refused(["imatrix.chunk_size is missing"], wrong, exit_code=2)
        # The last tensor is a count. Zeros pad it to 32 bytes.
        wrong.write_bytes(data[:-32] + struct.pack("<f", -1) + bytes(28))
        refused(["token_embd.weight.counts", "is -1", "at least 0"], wrong, exit_code=2)
        wrong.write_bytes(data.replace(b"blk.3.ffn_up", b"blk.3.ffn_xp"))
        refused(["blk.3.ffn_xp.weight", "is no tensor of"], wrong)
        wrong_model = self.folder / "other.gguf"
        wrong_model.write_bytes(wrong.read_bytes())
        wrong.write_bytes(data[:len(data) // 2])
        refused(["wrong.gguf"], wrong, exit_code=2)
        refused(["no tensor of", "uses an importance matrix"], self.out, kind="Q8_0")
        refused(["accepted: int4, nvfp4, or a type of GGUF files"], self.out, kind="fp8", out=self.folder / "folder")
        refused(["is no tensor of"], wrong_model, kind="int4", out=self.folder / "folder")
        refused(["is no tensor of"], self.out, kind="Q4_0", source=LLAMA)

    def test_refuses_what_it_cannot_run(self):
        for words, said in (((), ["--model-path is missing"]),
                            ((DEMO,), ["calibrate needs one model and a file with text"]),
                            ((DEMO, self.text), ["--output is missing"]),
                            ((DEMO, self.text, "-o", self.out, "--model-path", LLAMA), ["needs one model"]),
                            ((DEMO, self.text, "-o", self.out, "--chunk-tokens", 1), ["--chunk-tokens"]),
                            ((DEMO, self.text, "-o", self.out, "--chunk-tokens", 9999), ["--chunk-tokens: 9999", "4096"]),
                            ((DEMO, self.text, "-o", self.out, "--tp-size", 2), ["--tp-size: 2"]),
                            ((DEMO, self.text, "-o", self.out, "--speculative-algorithm", "MTP"), ["--speculative"]),
                            ((DEMO, self.text, "-o", self.folder), ["is a folder"])):
            self.fails(2, said, "calibrate", *words)
        flags = ["--tokenizer-path", self.tokenizer(), *FEW_SIZES]
        self.fails(1, ["architecture Olmo2ForCausalLM", "Qwen3ForCausalLM"], "calibrate", GOLDENS / "olmo2", self.text,
                   "-o", self.out, *flags)
        self.fails(1, ["no tokenizer"], "calibrate", LLAMA, self.text, "-o", self.out, *FEW_SIZES)
        self.fails(1, ["none.txt"], "calibrate", DEMO, self.folder / "none.txt", "-o", self.out, *FEW_SIZES)
        empty = self.folder / "empty.txt"
        empty.write_text("")
        self.fails(1, ["the file is empty"], "calibrate", DEMO, empty, "-o", self.out, *FEW_SIZES)
        self.assertFalse(self.out.exists())

    def test_replaces_a_file_only_if_asked_to(self):
        self.out.write_text("mine")
        self.fails(2, ["is there already", "--overwrite"], "calibrate", DEMO, self.text, "-o", self.out, *FEW_SIZES)
        self.assertEqual(self.out.read_text(), "mine")
        self.ok("calibrate", DEMO, self.text, "-o", self.out, "--overwrite", *FEW_SIZES)
        self.assertEqual(self.out.read_bytes()[:4], b"GGUF")

    @unittest.skipUnless(importlib.util.find_spec("gguf"), "the Python package gguf is not installed")
    def test_other_reader_reads_equal_numbers(self):
        import gguf  # pylint: disable=import-outside-toplevel
        want = self.sums(DEMO)
        reader = gguf.GGUFReader(self.out)
        self.assertEqual(reader.get_field("general.type").contents(), "imatrix")
        self.assertEqual(reader.get_field("imatrix.datasets").contents(), [str(self.text)])
        self.assertEqual(reader.get_field("imatrix.chunk_size").contents(), 512)
        self.assertEqual({tensor.name for tensor in reader.tensors}, want.keys())
        for tensor in reader.tensors:
            shape, values = want[tensor.name]
            self.assertEqual([int(size) for size in tensor.shape][::-1], shape)
            self.assertEqual(tuple(tensor.data.reshape(-1).tolist()), values, tensor.name)


if __name__ == "__main__":
    main()
