#!/usr/bin/env python3
"""Makes tests/data/image: Pillow's results for small files, and those of Hugging Face's processor for random images.

  python3 tests/image/make_vectors.py tests/data/image

Needs torch 2.11, torchvision 0.26, transformers 5.17 (its Qwen2VLImageProcessor, the torchvision variant), Pillow 13 and
numpy, and a CPU with AVX2. patches.json stores only sizes, grids and the SHA-256 of the float32 values, because tests
make the images from a seed (`pixels` below, in C++ in src/image/test_images.h). files.json stores for each file width,
height and SHA-256 of the RGB bytes of exif_transpose and convert("RGB"). The tests themselves state the expected result for files
in neither list."""

import hashlib
import io
import json
import pathlib
import random
import struct
import sys
import zlib

import numpy as np
import torch
import transformers
from PIL import Image, ImageOps

torch.set_num_threads(1)
HALF = [0.5, 0.5, 0.5]
# Each entry sets its pixel limits, because the class keeps an earlier instance's values as defaults.
PROCESSORS = {
    "qwen2_vl": {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 1280},
    "qwen2_5_vl_small": {"min_pixels": 56 * 56, "max_pixels": 28 * 28 * 64},
    "qwen3_vl_small": {"min_pixels": 64 * 64, "max_pixels": 32 * 32 * 64, "patch_size": 16, "image_mean": HALF, "image_std": HALF},
    "qwen3_vl": {"min_pixels": 256 * 256, "max_pixels": 4096 * 4096, "patch_size": 16, "image_mean": HALF, "image_std": HALF},
}


def pixels(width, height, seed):
    """Returns [height, width, 3]: noise, edges or a gradient with some noise, by seed modulo 3."""
    y, x, c = np.meshgrid(*(np.arange(n, dtype=np.uint32) for n in (height, width, 3)), indexing="ij")
    h = (x * np.uint32(0x9E3779B1)) ^ (y * np.uint32(0x85EBCA77)) ^ (c * np.uint32(0xC2B2AE3D)) ^ np.uint32(seed * 0x27D4EB2F & 0xFFFFFFFF)
    h ^= h >> np.uint32(15)
    h *= np.uint32(0x2C1B3C6D)
    h ^= h >> np.uint32(12)
    noise = h >> np.uint32(24)
    if seed % 3 == 0:
        return noise.astype(np.uint8)
    if seed % 3 == 1:
        return ((x // np.uint32(7) + y // np.uint32(5) + c) % np.uint32(2) * np.uint32(255)).astype(np.uint8)
    return (x * np.uint32(200) // np.uint32(width) + y * np.uint32(40) // np.uint32(height) + noise % np.uint32(16)).astype(np.uint8)


def sha(data):
    return hashlib.sha256(data).hexdigest()


def make_patches():
    rng = random.Random(7)
    cases = []
    names = list(PROCESSORS)
    for seed in range(200):
        name = names[seed % len(names)]
        # Most images are small; some are long, and some are shrunk a lot.
        most = 900 if seed % 20 == 0 else 260
        width, height = rng.randint(1, most), rng.randint(1, most)
        if seed % 25 == 3:
            width, height = sorted((width, rng.randint(1, 4)))
        width, height = (min(a, 200 * b) for a, b in ((width, height), (height, width)))
        processor = transformers.Qwen2VLImageProcessor(**PROCESSORS[name])
        out = processor(images=[Image.fromarray(pixels(width, height, seed))], return_tensors="pt")
        _, rows, columns = out["image_grid_thw"][0].tolist()
        values = out["pixel_values"].float().numpy()
        cases.append([name, width, height, seed, rows, columns, sha(values.tobytes())])
    return cases


def png(width, height, depth, colour, rows, extra=(), interlaced=False):
    """Writes PNG forms that Pillow does not write. `rows` are the passes' scanlines, filter bytes included."""
    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
    head = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, int(interlaced))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + b"".join(chunk(*e) for e in extra) + chunk(b"IDAT", zlib.compress(rows, 9)) + chunk(b"IEND", b"")


def interlaced_png(image):
    """Returns an RGB image with Adam7 interlacing."""
    rows = b""
    for x0, y0, dx, dy in ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)):
        for line in image[y0::dy, x0::dx]:
            if line.size:
                rows += b"\0" + line.tobytes()
    return png(image.shape[1], image.shape[0], 8, 2, rows, interlaced=True)


def deep_png(image):
    """Returns RGB of 16 bits with noise in the low bytes."""
    wide = image.astype(">u2") << 8 | image[::-1].astype(">u2")
    return png(image.shape[1], image.shape[0], 16, 2, b"".join(b"\0" + line.astype(">u2").tobytes() for line in wide))


def exif(orientation, big_endian=False):
    order = ">" if big_endian else "<"
    return b"Exif\0\0" + (b"MM" if big_endian else b"II") + struct.pack(order + "HIH", 42, 8, 1) + struct.pack(order + "HHIHH", 0x112, 3, 1, orientation, 0) + bytes(4)


def deep_grey_png(image):
    """Returns grey of 16 bits, with the red of `image` in the high bytes and noise in the low ones. Pillow would clip it to
    white."""
    rows = b"".join(b"\0" + b"".join(bytes((value, 255 - value)) for value in line) for line in image[:, :, 0].tolist())
    return png(image.shape[1], image.shape[0], 16, 0, rows)


def placed_gif(image):
    """Returns a GIF frame that begins inside the screen and extends beyond it."""
    out = io.BytesIO()
    image.save(out, "gif")
    data = bytearray(out.getvalue())
    frame = data.index(b"\x2c", 13 + 3 * 8)
    data[frame + 1:frame + 5] = struct.pack("<HH", 4, 2)
    return bytes(data)


def make_files():
    """Returns name → bytes."""
    base = pixels(21, 13, 2)
    rgb = Image.fromarray(base)
    alpha = Image.fromarray(np.concatenate([base, pixels(21, 13, 3)[:, :, :1]], 2))
    files = {}

    def save(name, image, **options):
        out = io.BytesIO()
        image.save(out, name.rsplit(".", 1)[1].replace("jpg", "jpeg"), **options)
        files[name] = out.getvalue()

    save("rgb.png", rgb)
    save("rgba.png", alpha)
    save("grey.png", rgb.convert("L"))
    save("grey_alpha.png", alpha.convert("LA"))
    save("bits.png", rgb.convert("1"))
    save("palette.png", rgb.quantize(16))
    save("palette_transparent.png", rgb.quantize(200), transparency=3)
    save("rgb_transparent.png", rgb, transparency=tuple(base[0, 0].tolist()))
    save("turned.png", rgb, exif=exif(6)[6:])
    files["interlaced.png"] = interlaced_png(base)
    files["deep.png"] = deep_png(base)
    save("rgb.jpg", rgb, quality=90, subsampling=0)
    save("subsampled.jpg", rgb, quality=80, subsampling=2)
    save("progressive.jpg", rgb, quality=80, progressive=True)
    save("grey.jpg", rgb.convert("L"))
    save("cmyk.jpg", rgb.convert("CMYK"), quality=90)
    for orientation in range(2, 9):
        save(f"turned_{orientation}.jpg", rgb, quality=50, exif=exif(orientation, orientation % 2 == 0))
    save("lossy.webp", rgb, quality=80)
    save("lossless.webp", rgb, lossless=True)
    save("alpha.webp", alpha, lossless=True, exact=True)
    save("lossy_alpha.webp", alpha, quality=80)
    save("turned.webp", rgb, quality=80, exif=exif(8))
    save("rgb.ppm", rgb)
    save("palette.gif", rgb.quantize(16))
    save("interlaced.gif", rgb.quantize(40), interlace=1)
    save("transparent.gif", rgb.quantize(16), transparency=3)
    save("frames.gif", rgb.quantize(16), save_all=True, append_images=[rgb.rotate(180).quantize(16)], loop=0)
    files["placed.gif"] = placed_gif(rgb.quantize(8))
    save("rgb.bmp", rgb)
    save("palette.bmp", rgb.quantize(100))
    save("bits.bmp", rgb.convert("1"))
    save("rgb.tiff", rgb)
    save("deflate.tiff", alpha, compression="tiff_adobe_deflate")
    save("turned.tiff", rgb.quantize(16), compression="tiff_lzw", tiffinfo={274: 6})
    return files


def main():
    folder = pathlib.Path(sys.argv[1])
    with open(folder / "patches.json", "w") as out:
        body = ",\n".join(json.dumps(case) for case in make_patches())
        out.write(f'{{"processors": {json.dumps(PROCESSORS)},\n"columns": ["processor", "width", "height", "seed", "rows", "columns", "sha256"],\n"cases": [\n{body}\n]}}\n')
    expected = {}
    for name, data in make_files().items():
        (folder / name).write_bytes(data)
        image = ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB")
        expected[name] = [image.width, image.height, sha(np.asarray(image).tobytes())]
    (folder / "deep_grey.png").write_bytes(deep_grey_png(pixels(21, 13, 2)))
    frames = [Image.fromarray(pixels(8, 8, seed)) for seed in (1, 2)]
    frames[0].save(folder / "animated.webp", save_all=True, append_images=frames[1:], lossless=True)
    with open(folder / "files.json", "w") as out:
        out.write("{\n" + ",\n".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in expected.items()) + "\n}\n")


main()
