#!/usr/bin/env python3
"""Tests a server of a model that reads images over HTTP: tests/server/images_test.py TESSERA

Catches: images that reach the engine wrongly from either protocol (values, places, order), caches that mix images up or
are unused, metrics and usage that do not count them, errors that do not name the part or the limit, and files that stop
the server.

The last line is "N passed, N failed"."""

import base64
import json
import pathlib
import re
import sys

from served import ROOT, Served, run_cases

GOLDEN = ROOT / "tests" / "data" / "goldens" / "qwen2.5-vl"
FLAGS = ["--device", "cpu", "--dtype", "float32", "--random-seed", "1", "--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs",
         "1,4", "--served-model-name", "seeing", "--context-length", "448"]
DATA = ROOT / "tests" / "data" / "image"
PAD = 505


def metric(server, name):
    _, text = server.get("/metrics")
    return float(re.search("^" + re.escape(name) + r" (\S+)$", text, re.MULTILINE)[1])


def case(i):
    """Returns (ids, images as files, following ids) of a golden prompt."""
    told = json.loads((GOLDEN / "golden.json").read_text())["cases"][i]
    files = [f"P6\n{w} {h}\n255\n".encode() + (GOLDEN / f"image_{i}_{k}.rgb").read_bytes()
             for k, (w, h) in enumerate(told["image_sizes_wh"])]
    return told["input_ids"], files, told["greedy"]


def text64(file):
    return base64.b64encode(file).decode()


def data_url(file):
    return f"data:image/x;base64,{text64(file)}"


class Cases:
    def __init__(self, server):
        self.server = server

    def _generate(self, ids, images, tokens=8):
        status, body = self.server.post("/generate", {"input_ids": ids, "image_data": images, "sampling_params": {
            "temperature": 0, "max_new_tokens": tokens, "ignore_eos": True}})
        assert status == 200, body
        return body

    def generate_gives_the_golden_tokens(self):
        for i in range(3):
            ids, files, greedy = case(i)
            body = self._generate(ids, [text64(f) for f in files])
            assert body["output_ids"] == greedy, (i, body["output_ids"], greedy)
            assert body["meta_info"]["prompt_tokens"] == len(ids)
            assert body["meta_info"]["image_tokens"] == ids.count(PAD), body["meta_info"]

    def one_placeholder_stands_for_an_image(self):
        ids, files, greedy = case(2)
        short = [t for k, t in enumerate(ids) if t != PAD or ids[k - 1] != PAD]
        assert len(short) < len(ids)
        assert self._generate(short, [data_url(f) for f in files])["output_ids"] == greedy

    def chat_gives_the_golden_tokens(self):
        ids, files, greedy = case(2)
        parts = [{"type": "image_url", "image_url": {"url": data_url(f)}} for f in files]
        status, body = self.server.post("/v1/chat/completions", {
            "messages": [{"role": "user", "content": parts}], "input_ids": ids, "temperature": 0, "max_tokens": len(greedy),
            "ignore_eos": True, "return_token_ids": True})
        assert status == 200, body
        assert body["choices"][0]["token_ids"] == greedy, body
        assert body["usage"]["prompt_tokens"] == len(ids)
        assert body["usage"]["prompt_tokens_details"]["image_tokens"] == ids.count(PAD), body["usage"]

    def a_batch_of_different_images(self):
        prompts = [case(i) for i in (0, 1, 0, 2)]
        status, body = self.server.post("/generate", {
            "input_ids": [ids for ids, _, _ in prompts], "image_data": [[text64(f) for f in files] for _, files, _ in prompts],
            "sampling_params": {"temperature": 0, "max_new_tokens": 8, "ignore_eos": True}})
        assert status == 200, body
        for got, (_, _, greedy) in zip(body, prompts):
            assert got["output_ids"] == greedy, (got["output_ids"], greedy)

    def equal_images_share_and_others_do_not(self):
        self.server.request("POST", "/flush_cache")
        ids, files, greedy = case(1)
        first = self._generate(ids, [text64(files[0])])
        again = self._generate(ids, [text64(files[0])])
        assert again["output_ids"] == first["output_ids"] == greedy
        assert again["meta_info"]["cached_tokens"] > ids.index(PAD), "the image's tokens too"
        head, pixels = files[0][:-500], files[0][-500:]
        other = self._generate(ids, [text64(head + bytes(255 - b for b in pixels))])
        assert other["meta_info"]["cached_tokens"] <= ids.index(PAD), other["meta_info"]

    def metrics_count_images(self):
        ids, files, _ = case(0)
        before = {name: metric(self.server, f"tessera:{name}") for name in ("images_total", "image_tokens_total")}
        self._generate(ids, [text64(files[0])], tokens=1)
        assert metric(self.server, "tessera:images_total") == before["images_total"] + 1
        assert metric(self.server, "tessera:image_tokens_total") == before["image_tokens_total"] + ids.count(PAD)
        assert metric(self.server, "tessera:tower_images_total") > 0
        assert metric(self.server, "tessera:tower_seconds_total") > 0
        _, text = self.server.get("/metrics")
        replayed = re.findall(r'^tessera:tower_graph_replays_total\{.*\} (\d+)$', text, re.MULTILINE)
        assert sum(map(int, replayed)) == metric(self.server, 'tessera:tower_forwards_total{reason="replayed"}') > 0, text
        assert metric(self.server, "tessera:image_cache_bytes") > 0

    def errors_name_the_part(self):
        ids, files, _ = case(0)
        for param, image, words in (("image_data[1]", [text64(files[0]), "!"], "is no base64"),
                                    ("image_data", [text64(files[0])] * 2, "placeholders"),
                                    ("image_data[16]", [text64(files[0])] * 17, "up to 16")):
            status, body = self.server.post("/generate", {"input_ids": ids, "image_data": image})
            assert status == 400 and body["error"]["param"] == param and words in body["error"]["message"], body

    def bad_files_are_refused_by_part_and_limit(self):
        png = (DATA / "rgb.png").read_bytes()
        claims = png[:16] + (100_000).to_bytes(4, "big") * 2 + png[24:]
        for name, file, words in (("truncated PNG", png[:len(png) // 2], ["PNG"]),
                                  ("truncated JPEG", (DATA / "rgb.jpg").read_bytes()[:300], ["JPEG"]),
                                  ("100000 × 100000", claims, ["100000"]),
                                  ("1 × 100000", b"P6\n1 100000\n255\n", ["1 × 100000"]),
                                  ("0 × 0", b"P6\n0 0\n255\n", ["0 × 0 pixels", "1 to"]),
                                  ("animated", (DATA / "animated.webp").read_bytes(), ["animated"]),
                                  ("a text", b"not an image", ["PNG", "JPEG", "WebP"]),
                                  ("nothing", b"", ["field"])):
            for route, body, param in (
                    ("/generate", {"input_ids": [5, PAD], "image_data": [text64(file)]}, "image_data[0]"),
                    ("/v1/chat/completions", self._chat(data_url(file)), "messages[0].content[1].image_url.url")):
                status, answer = self.server.post(route, body)
                assert status == 400 and answer["error"]["param"] == param, (name, answer)
                assert all(word in answer["error"]["message"] for word in [param, *words]), (name, answer)

    def limits_are_named(self):
        ids, files, _ = case(0)
        file = data_url(files[0])
        wide = data_url(b"P6\n1024 1024\n255\n" + bytes(3 * 1024 * 1024))
        for url, count, words in ((file, 100, "one of 100 images; accepted: up to 16"),
                                  (wide, 8, "1024 × 1024 pixels, with which the images come to"),
                                  ("data:image/png;base64,!!!!", 1, "is no base64"),
                                  ("data:image/png,abc", 1, "not of base64"),
                                  ("http://127.0.0.1/a.png", 1, "--allow-image-urls"),
                                  ("a.png", 1, "is no URL")):
            status, answer = self.server.post("/v1/chat/completions", self._chat(*[url] * count))
            assert status == 400 and words in answer["error"]["message"], (words, answer)
            assert answer["error"]["param"].startswith("messages[0].content["), answer
            if url is wide:
                assert answer["error"]["code"] == "context_length_exceeded", answer
        assert self._generate(ids, [text64(f) for f in files], 2), "the server goes on"

    def unusual_files_are_read(self):
        """Checks CMYK, 16-bit and EXIF-rotated files: they are decoded as by Pillow, so rotated copies are equal images."""
        for name in ("cmyk.jpg", "deep.png", "deep_grey.png", "palette_transparent.png", "lossless.webp",
                     "frames.gif", "palette.bmp", "turned.tiff"):
            self._generate([5, PAD], [text64((DATA / name).read_bytes())], 1)
        told = [self._generate([5, PAD], [text64((DATA / f"turned_{turn}.jpg").read_bytes())], 1) for turn in (3, 6)]
        assert all(body["meta_info"]["prompt_tokens"] > 2 for body in told), told

    @staticmethod
    def _chat(*urls):
        return {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, *(
            {"type": "image_url", "image_url": {"url": url}} for url in urls)]}], "input_ids": [5, *[PAD] * len(urls)],
                "max_tokens": 1}

    def the_model_says_that_it_reads_images(self):
        assert json.loads(self.server.get("/get_model_info")[1])["has_image_understanding"]
        assert json.loads(self.server.get("/engine_state")[1])["model"]["images"]


class TextCases:
    """Cases for a text-only model."""

    def __init__(self, server):
        self.server = server

    def images_are_refused(self):
        image = b"P6\n2 2\n255\n" + bytes(12)
        for route, body, param in (("/generate", {"text": "a", "image_data": [text64(image)]}, "image_data"),
                                   ("/v1/chat/completions", Cases._chat(data_url(image)), "messages[0].content[1]")):
            status, answer = self.server.post(route, body)
            assert status == 400 and answer["error"]["param"].startswith(param), answer
            assert "reads no images" in answer["error"]["message"], answer


def main():
    with Served(pathlib.Path(sys.argv[1]).resolve(), FLAGS, GOLDEN, {"OMP_NUM_THREADS": "2"}) as server:
        passed, failed = run_cases(Cases(server))
    with Served(pathlib.Path(sys.argv[1]).resolve(), ["--device", "cpu", *FLAGS[6:]], ROOT / "models" / "demo",
                {"OMP_NUM_THREADS": "2"}) as server:
        of_text = run_cases(TextCases(server))
    passed, failed = passed + of_text[0], failed + of_text[1]
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
