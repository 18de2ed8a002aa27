#!/usr/bin/env python3
"""A server of a model that reads images, asked over HTTP: tests/server/images_test.py TESSERA

Catches: images that the engine gets wrong from either protocol (values, places, order), caches that mix images up or are not used,
metrics and usage that do not count them, errors that do not name the part.

Needs the goldens beside the repository; without them it is skipped. The last line is "N passed, N failed"."""

import base64
import json
import os
import pathlib
import re
import sys

from served import ROOT, Served, run_cases

SHARED = pathlib.Path(os.environ.get("TESSERA_SHARED_DIR", ROOT.parent / "shared"))
GOLDEN = SHARED / "goldens" / "qwen2.5-vl"
FLAGS = ["--device", "cpu", "--dtype", "float32", "--random-seed", "1", "--piecewise-cuda-graph-tokens", "16,64", "--cuda-graph-bs",
         "1,4", "--served-model-name", "seeing"]
SKIPPED = 77
PAD = 505


def metric(server, name):
    _, text = server.get("/metrics")
    return float(re.search("^" + re.escape(name) + r" (\S+)$", text, re.MULTILINE)[1])


def case(i):
    """(ids, images as files, the ids that follow) of a golden prompt."""
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
        head, pixels = files[0][:-1000], files[0][-1000:]
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
        assert metric(self.server, "tessera:tower_forwards_total") >= metric(self.server, "tessera:tower_graph_replays_total") > 0
        assert metric(self.server, "tessera:image_cache_bytes") > 0

    def errors_name_the_part(self):
        ids, files, _ = case(0)
        for param, image, words in (("image_data[1]", [text64(files[0]), "!"], "is no base64"),
                                    ("image_data", [text64(files[0])] * 2, "placeholders"),
                                    ("image_data[16]", [text64(files[0])] * 17, "up to 16")):
            status, body = self.server.post("/generate", {"input_ids": ids, "image_data": image})
            assert status == 400 and body["error"]["param"] == param and words in body["error"]["message"], body

    def the_model_says_that_it_reads_images(self):
        assert json.loads(self.server.get("/get_model_info")[1])["has_image_understanding"]
        assert json.loads(self.server.get("/engine_state")[1])["model"]["images"]


def main():
    if not GOLDEN.exists():
        print(f"skipped: {GOLDEN} is not there")
        return SKIPPED
    with Served(pathlib.Path(sys.argv[1]).resolve(), FLAGS, GOLDEN, {"OMP_NUM_THREADS": "2"}) as server:
        passed, failed = run_cases(Cases(server))
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
