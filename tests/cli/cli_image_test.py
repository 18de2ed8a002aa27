#!/usr/bin/env python3
"""The tessera command: images of generate and score. tests/cli/cli_image_test.py PROGRAM [TEST …]

Catches: embeddings of images, positions, logits or texts that are not those of Hugging Face transformers, whole and in chunks, with
graphs and without; files and placeholders that do not fit and are not named.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import os

from program import DEMO, FEW_SIZES, SHARED, CliTest, main, read_safetensors

GOLDENS = SHARED / "goldens"
NAMES = ("qwen2.5-vl", "qwen3-vl", "qwen3.5-vl")
CLOSE = 1e-4
EXACT = ["--device", "cpu", "--dtype", "float32"]


def ppm(width, height, pixels):
    return f"P6\n{width} {height}\n255\n".encode() + pixels


class Images(CliTest):
    def cases(self, name):
        """(index, the case, its flags: ids and images) of a golden."""
        golden = GOLDENS / name
        if not (golden / "golden.json").exists():
            self.skipTest(f"{golden} is not there")
        for i, case in enumerate(json.loads((golden / "golden.json").read_text())["cases"]):
            flags = ["--model-path", golden, "--input-ids", ",".join(map(str, case["input_ids"]))]
            for k, (width, height) in enumerate(case["image_sizes_wh"]):
                file = self.folder / f"{name}-{i}-{k}.ppm"
                file.write_bytes(ppm(width, height, (golden / f"image_{i}_{k}.rgb").read_bytes()))
                flags += ["--image", file]
            yield i, case, flags

    def close(self, got, expected, what):
        self.assertEqual(len(got), len(expected), what)
        apart = max(abs(a - b) for a, b in zip(got, expected))
        print(f"  {what}: {apart:.1e} apart")
        self.assertLessEqual(apart, CLOSE, what)

    def score(self, name, *more):
        expected = read_safetensors(GOLDENS / name / "golden.safetensors")
        for i, case, flags in self.cases(name):
            output = self.folder / "scores.safetensors"
            self.ok("score", *flags, *EXACT, "--output", output, *more)
            got = read_safetensors(output)
            what = f"{name} {i} {' '.join(map(str, more))}"
            embeds = [value for k in range(len(case["image_sizes_wh"])) for value in got[f"image_embeds_{k}"][1]]
            self.close(embeds, expected[f"image_embeds_{i}"][1], what + " image_embeds")
            self.assertEqual(list(got["positions"][1]), list(expected[f"positions_{i}"][1]), what)
            self.close(got["logits"][1], expected[f"logits_{i}"][1], what + " logits")

    def test_scores(self):
        for name in NAMES:
            self.score(name)

    def test_scores_in_chunks_through_the_images(self):
        for name in NAMES:
            self.score(name, "--chunked-prefill-size", 16, "--piecewise-cuda-graph-tokens", "8,16")

    def test_scores_without_graphs(self):
        for name in NAMES:
            self.score(name, "--disable-cuda-graph", "--disable-piecewise-cuda-graph")

    def test_greedy(self):
        for name in NAMES:
            for i, case, flags in self.cases(name):
                answer = self.ok_json("generate", *flags, *EXACT, "--max-new-tokens", len(case["greedy"]), "--ignore-eos")
                self.assertEqual(answer["output_ids"], case["greedy"], f"{name} {i}")

    def test_one_placeholder_stands_for_an_image(self):
        for _, case, flags in self.cases("qwen2.5-vl"):
            short = [t for k, t in enumerate(case["input_ids"]) if t != 505 or case["input_ids"][k - 1] != 505]
            flags[3] = ",".join(map(str, short))
            answer = self.ok_json("generate", *flags, *EXACT, "--max-new-tokens", len(case["greedy"]), "--ignore-eos")
            self.assertEqual(answer["output_ids"], case["greedy"])
            self.assertEqual(answer["usage"]["prompt_tokens"], len(case["input_ids"]))


class WrongImages(CliTest):
    def test_a_model_of_texts(self):
        file = self.folder / "a.ppm"
        file.write_bytes(ppm(2, 2, bytes(12)))
        self.fails(2, ["--image", "reads no images"], "generate", "--model-path", DEMO, "--prompt", "a", "--image", file, *FEW_SIZES)

    def test_command_lines(self):
        self.fails(2, ["--image goes with one prompt"], "score", "--model-path", DEMO, "--prompt", "a", "--prompt", "b",
                   "--image", "a.png", "--output", self.folder / "x")
        self.fails(2, ["--input-file has its own prompts", "--image"], "generate", "--model-path", DEMO, "--input-file", "a",
                   "--output-file", "b", "--image", "a.png")

    def test_files_and_placeholders(self):
        golden = GOLDENS / "qwen2.5-vl"
        if not golden.exists():
            self.skipTest(f"{golden} is not there")
        good, bad = self.folder / "good.ppm", self.folder / "bad.ppm"
        good.write_bytes(ppm(56, 56, bytes(56 * 56 * 3)))
        bad.write_bytes(b"no image")
        def ask(words, ids, *files):
            images = [word for file in files for word in ("--image", file)]
            self.fails(2, words, "generate", "--model-path", golden, "--input-ids", ids, *EXACT, *images, *FEW_SIZES)
        ask([str(bad)], "5,505", bad)
        ask(["nowhere.png"], "5,505", self.folder / "nowhere.png")
        ask(["0 placeholders", "for 1 images"], "5,6", good)
        ask(["2 placeholders", "for 1 images"], "5,505,6,505", good)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
