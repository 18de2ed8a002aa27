#!/usr/bin/env python3
"""The tessera command: images in generate and score. tests/cli/cli_image_test.py PROGRAM [TEST …]

Catches: image embeddings, positions, logits or texts that differ from those of Hugging Face transformers, whole and in
chunks, with and without graphs; and invalid files and placeholders that the error does not name.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import os

from program import DEMO, FEW_SIZES, GOLDENS, ROOT, CliTest, main, read_safetensors

GGUF_NAMES = ("qwen2-vl", "qwen2.5-vl", "qwen3-vl", "qwen3.5-vl")
NAMES = (*GGUF_NAMES, "qwen3-vl-moe")
CLOSE = 1e-4
EXACT = ["--device", "cpu", "--dtype", "float32"]


def ppm(width, height, pixels):
    return f"P6\n{width} {height}\n255\n".encode() + pixels


class Images(CliTest):
    def cases(self, name):
        """Yields (index, case, flags with its ids and images) of a golden."""
        golden = GOLDENS / name
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
            rows = expected[f"logits_{i}_tail"][1]
            self.close(got["logits"][1][-len(rows):], rows, what + " logits")

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

    def test_projectors_of_gguf_models_are_found(self):
        for name in GGUF_NAMES:
            _, case, flags = next(self.cases(name))
            # The files state no limits of pixels, so the image has more tokens here than in the golden.
            short = [t for k, t in enumerate(case["input_ids"]) if t != 505 or case["input_ids"][k - 1] != 505]
            flags[1], flags[3] = GOLDENS.parent / "gguf" / name, ",".join(map(str, short))
            for more in ([], ["--mmproj", "mmproj-golden-BF16.gguf"]):
                answer = self.ok_json("generate", *flags, *more, *EXACT, *FEW_SIZES, "--max-new-tokens", 2, "--ignore-eos")
                self.assertGreater(answer["usage"]["prompt_tokens"], len(case["input_ids"]), f"{name} {more}")
            self.fails(2, ["--image", "reads no images"], "generate", *flags, "--no-mmproj", *EXACT, *FEW_SIZES)

    def test_graphs_are_those_that_images_replayed(self):
        for _, _, flags in self.cases("qwen3-vl"):
            graphs = self.ok_json("generate", *flags, *EXACT, *FEW_SIZES, "--max-new-tokens", 2, "--ignore-eos")["graphs"]
            replayed = {f["size"] for f in graphs["vision"]["forwards"] if f["reason"] == "replayed"}
            self.assertTrue(replayed, graphs["vision"])
            self.assertEqual(graphs["vision"]["sizes"], sorted(replayed))
            self.assertEqual([each["size"] for each in graphs["memory_bytes"]["runners"]["vision"]], sorted(replayed))

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
        good, bad = self.folder / "good.ppm", self.folder / "bad.ppm"
        good.write_bytes(ppm(56, 56, bytes(56 * 56 * 3)))
        bad.write_bytes(b"no image")
        def ask(words, ids, *files):
            images = [word for file in files for word in ("--image", file)]
            self.fails(2, words, "generate", "--model-path", golden, "--input-ids", ids, *EXACT, *images, *FEW_SIZES)
        ask([str(bad)], "5,505", bad)
        data = ROOT / "tests" / "data" / "image"
        png = (data / "rgb.png").read_bytes()
        for name, content, words in (("truncated.png", png[:len(png) // 2], ["PNG"]),
                                     ("huge.png", png[:16] + (100_000).to_bytes(4, "big") * 2 + png[24:], ["100000"]),
                                     ("thin.ppm", b"P6\n1 100000\n255\n", ["1 × 100000"]),
                                     ("none.ppm", b"P6\n0 0\n255\n", ["0 × 0 pixels", "1 to"]),
                                     ("animated.webp", (data / "animated.webp").read_bytes(), ["animated"])):
            (self.folder / name).write_bytes(content)
            ask(["--image", name, *words], "5,505", self.folder / name)
        ask(["nowhere.png"], "5,505", self.folder / "nowhere.png")
        ask(["0 placeholders", "for 1 images"], "5,6", good)
        ask(["2 placeholders", "for 1 images"], "5,505,6,505", good)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    main()
