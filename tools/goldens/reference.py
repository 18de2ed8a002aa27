"""Computes the results in golden checkpoints with transformers, in float32: logits, greedy tokens, rows of images."""

import copy
from typing import NamedTuple

import numpy
import torch
from PIL import Image

from .text_families import IMAGE_TOKENS

TEXT_PROMPTS = (1, 7, 33, 70, 200)
LONG_PROMPTS = (3, 130, 1500)  # lengths, for cases with the head sizes of published models
LONGROPE_PROMPTS = (17, 65, 130, 300)  # all longer than the original context of the case, 16
GREEDY_TOKENS = {"text": 12, "images": 8}
STORED_ROWS = 4  # number of rows of a prompt's logits that are stored; of a shorter prompt, all rows


class Limits(NamedTuple):
    gap: float  # least allowed difference between the logits of a greedy token and of the second best token
    rounding: float  # greatest allowed relative error of a prompt's logits in bfloat16


class Unclear(Exception):
    """Raised if random weights make no good reference: the next seed is tried."""


def store_logits(tensors, i, logits):
    tail = "_tail" if len(logits) > STORED_ROWS else ""
    tensors[f"logits_{i}{tail}"] = logits[-STORED_ROWS:].contiguous()


def greedy(run, prompt, count, least_gap):
    """Returns the greedy tokens. Each is ahead of the second best one by `least_gap`, since otherwise another order of
    sums might choose the second."""
    tokens = list(prompt)
    for _ in range(count):
        logits = run(torch.tensor([tokens]))[-1]
        best = logits.topk(2)
        if float(best.values[0] - best.values[1]) < least_gap:
            raise Unclear("two tokens are nearly equal")
        tokens.append(int(best.indices[0]))
        if tokens[-1] in IMAGE_TOKENS.values():
            raise Unclear("it writes a placeholder")
    return tokens[len(prompt):]


def rounding(model, runs, expected, greatest):
    """Returns the greatest ‖a−b‖/‖b‖ of a prompt's logits in bfloat16; `expected` are the logits in float32."""
    narrow = copy.deepcopy(model).to(torch.bfloat16)
    error = max(float((run(narrow) - logits).norm() / logits.norm()) for run, logits in zip(runs, expected))
    if error > greatest:
        raise Unclear("bfloat16 is far from float32")
    return error


def random_prompts(generator, lengths):
    return [torch.randint(3, 500, (length,), generator=generator).tolist() for length in lengths]


def of_text(model, generator, lengths, limits):
    """Returns (members of golden.json, tensors, relative error of bfloat16)."""
    prompts = random_prompts(generator, lengths)
    run = lambda ids, model=model: model(ids).logits[0].float()
    tensors = {}
    for i, prompt in enumerate(prompts):
        store_logits(tensors, i, run(torch.tensor([prompt])))
    stored = list(tensors.values())
    runs = [lambda narrow, p=p, s=s: run(torch.tensor([p]), narrow)[-len(s):] for p, s in zip(prompts, stored)]
    error = rounding(model, runs, stored, limits.rounding)
    answers = [greedy(run, prompt, GREEDY_TOKENS["text"], limits.gap) for prompt in prompts]
    return dict(prompts=prompts, greedy=answers), tensors, error


def picture(width, height, noise):
    """Returns a gradient with squares and noise, as bytes [height, width, 3]."""
    y, x = numpy.mgrid[0:height, 0:width]
    plain = numpy.stack([x * 255 // width, y * 255 // height, (x // 5 + y // 5) % 2 * 200], -1)
    return (plain + noise.integers(0, 40, (height, width, 3))).clip(0, 255).astype(numpy.uint8)


def of_images(model, processor, generator, seed, sizes, limits):
    """Returns (members of golden.json, tensors, {file: bytes of RGB}, relative error of bfloat16)."""
    noise = numpy.random.default_rng(seed)
    tensors, cases, files, runs, expected = {}, [], {}, [], []
    for i, of_prompt in enumerate(sizes):
        pictures = [picture(width, height, noise) for width, height in of_prompt]
        files |= {f"image_{i}_{k}.rgb": pixels.tobytes() for k, pixels in enumerate(pictures)}
        made = processor(images=[Image.fromarray(pixels) for pixels in pictures], return_tensors="pt")
        pixels, grids = made["pixel_values"].float(), made["image_grid_thw"]
        prompt = torch.randint(3, 480, (6,), generator=generator).tolist()
        for t, h, w in grids.tolist():
            placeholders = [IMAGE_TOKENS["image_token_id"]] * (t * h * w // 4)
            prompt += [IMAGE_TOKENS["vision_start_token_id"], *placeholders, IMAGE_TOKENS["vision_end_token_id"]]
            prompt += torch.randint(3, 480, (5,), generator=generator).tolist()

        def run(ids, model=model, pixels=pixels, grids=grids):
            kinds = (ids == IMAGE_TOKENS["image_token_id"]).long()
            return model(input_ids=ids, pixel_values=pixels, image_grid_thw=grids, attention_mask=torch.ones_like(ids),
                         mm_token_type_ids=kinds).logits[0].float()

        ids = torch.tensor([prompt])
        store_logits(tensors, i, run(ids))
        rows = model.model.get_image_features(pixels, grids).pooler_output
        kinds = (ids == IMAGE_TOKENS["image_token_id"]).long()
        positions = model.model.get_rope_index(input_ids=ids, image_grid_thw=grids, mm_token_type_ids=kinds)[0]
        tensors[f"image_embeds_{i}"] = torch.cat(list(rows)).float().contiguous()
        tensors[f"pixel_values_{i}"] = pixels.contiguous()
        tensors[f"positions_{i}"] = positions[:, 0].to(torch.int32).contiguous()
        cases.append(dict(input_ids=prompt, image_grid_thw=grids.tolist(), image_sizes_wh=of_prompt))
        runs.append(run)
        expected.append(run(ids))
    error = rounding(model, [lambda narrow, run=run, case=case: run(torch.tensor([case["input_ids"]]), narrow)
                             for run, case in zip(runs, cases)], expected, limits.rounding)
    for run, case in zip(runs, cases):
        case["greedy"] = greedy(run, case["input_ids"], GREEDY_TOKENS["images"], limits.gap)
    return dict(cases=cases), tensors, files, error
