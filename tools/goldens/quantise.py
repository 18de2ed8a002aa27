"""Quantises weights to the formats of published checkpoints. Each function takes a matrix [out, in] and returns (stored tensors, the
dequantised matrix). The keys of the stored tensors are their suffixes after the module's name."""

import torch

FP8 = torch.float8_e4m3fn
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def to_fp8(x):
    return x.clamp(-448, 448).to(FP8)


def fp8_channels(w, scale_dtype=torch.float32):
    """Quantises to FP8 with a scale for each row, [out, 1]."""
    scales = (w.abs().amax(1, keepdim=True) / 448).to(scale_dtype)
    values = to_fp8(w / scales.float())
    return {"weight": values, "weight_scale": scales}, values.float() * scales.float()


def fp8_blocks(w, side=128):
    """Quantises to FP8 with a bfloat16 scale for each block of 128 by 128."""
    rows, cols = w.shape
    scales = torch.zeros(-(-rows // side), -(-cols // side))
    for r in range(scales.shape[0]):
        for c in range(scales.shape[1]):
            scales[r, c] = w[r * side:(r + 1) * side, c * side:(c + 1) * side].abs().max() / 448
    scales = scales.bfloat16()
    whole = scales.float().repeat_interleave(side, 0)[:rows].repeat_interleave(side, 1)[:, :cols]
    values = to_fp8(w / whole)
    return {"weight": values, "weight_scale_inv": scales}, values.float() * whole


def words(values, order):
    """Packs eight 4-bit values into each word along the last dimension, the lowest bits first."""
    eights = values.to(torch.int64).reshape(*values.shape[:-1], -1, 8)
    word = sum(eights[..., o] << 4 * i for i, o in enumerate(order))
    return torch.where(word >= 2**31, word - 2**32, word).to(torch.int32)


def awq(w, group=32):
    """Quantises to int4 with zero points; both are stored transposed."""
    rows, cols = w.shape
    x = w.reshape(rows, cols // group, group)
    scales = ((x.amax(-1) - x.amin(-1)) / 15).half()
    zeros = (-x.amin(-1) / scales.float()).round().clamp(1, 15)
    values = ((x / scales.float()[..., None]).round() + zeros[..., None]).clamp(0, 15)
    stored = {"qweight": words(values.reshape(rows, cols).T, AWQ_ORDER), "qzeros": words(zeros.T, AWQ_ORDER), "scales": scales.T.contiguous()}
    return stored, ((values - zeros[..., None]) * scales.float()[..., None]).reshape(rows, cols)


def e2m1(x):
    """Returns (codes of the nearest representable numbers, these numbers)."""
    codes = (x.abs()[..., None] - E2M1).abs().argmin(-1)
    return codes + 8 * (x < 0), E2M1[codes] * torch.where(x < 0, -1.0, 1.0)


def bytes_of(codes, shape):
    codes = codes.reshape(shape)
    return (codes[:, 0::2] | codes[:, 1::2] << 4).to(torch.uint8)


def mxfp4(w, matrix):
    """Quantises to MXFP4: an exponent for 32 values (OCP Microscaling Formats 1.0). `matrix` is the name of the values' tensor."""
    x = w.reshape(w.shape[0], -1, 32)
    exponents = x.abs().amax(-1).log2().floor() - 2
    codes, numbers = e2m1(x / exponents.exp2()[..., None])
    stored = {matrix: bytes_of(codes, w.shape), "weight_scale": (exponents + 127).to(torch.uint8)}
    return stored, (numbers * exponents.exp2()[..., None]).reshape(w.shape)


def mxfp4_experts(w):
    """Quantises the matrices of all experts, [experts, in, out], to MXFP4. They are stored transposed, in blocks of 32 values."""
    experts, inputs, outputs = w.shape
    stored, numbers = mxfp4(w.transpose(1, 2).reshape(-1, inputs), "_blocks")
    blocks = dict(_blocks=stored["_blocks"].reshape(experts, outputs, -1, 16), _scales=stored["weight_scale"].reshape(experts, outputs, -1))
    return blocks, numbers.reshape(experts, outputs, inputs).transpose(1, 2)


def nvfp4_modelopt(w):
    """Quantises to NVFP4: an E4M3 scale for 16 values, times a float32 factor. "input_scale" is for rounded inputs; the
    reference does not round inputs."""
    factor = w.abs().max() / (6 * 448)
    x = w.reshape(w.shape[0], -1, 16)
    scales = to_fp8((x.abs().amax(-1) / 6 / factor).clamp_min(2**-9))
    whole = scales.float() * factor
    codes, numbers = e2m1(x / whole[..., None])
    stored = {"weight": bytes_of(codes, w.shape), "weight_scale": scales, "weight_scale_2": factor, "input_scale": torch.tensor(4.0) / 2688}
    return stored, (numbers * whole[..., None]).reshape(w.shape)


def token_fp8(x, most=float("inf")):
    """Rounds inputs to E4M3 with a scale for each token. The scale is computed from magnitudes of at most `most`."""
    scales = (x.abs().amax(-1, keepdim=True).clamp_max(most) / 448).clamp_min(1e-12)
    return to_fp8(x / scales).float() * scales
