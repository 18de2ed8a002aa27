#!/usr/bin/env python3
"""Measures PyTorch's time for a forward, for the comparison in docs/measurements/prefill-decode.md.

The same decoder with random bfloat16 weights runs on one GPU eagerly, as piecewise graphs (attention between them), and
as one graph, each with and without torch.compile. Its matmuls and its attention also run alone, as a lower bound. Times
are medians of the wall-clock time in milliseconds, from the first launch until the device has finished.

  tools/anchor_torch.py qwen3-0.6b --output anchor.json
  tools/anchor_torch.py llama3-8b --num-tokens 64,256,1024,4096 --batch-size 1,8,32

Needs a GPU and torch (measured with 2.11). A variant that fails reports its error in place of a time."""

import argparse
import dataclasses
import json
import statistics
import time

DTYPE_BYTES = 2  # bfloat16


@dataclasses.dataclass(frozen=True)
class Shape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    qk_norm: bool

    def matmul_weights(self):
        """Returns the number of weights in one token's matmuls, including the head's."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim * self.hidden
        out = self.heads * self.head_dim * self.hidden
        return self.layers * (qkv + out + 3 * self.intermediate * self.hidden) + self.vocab * self.hidden


SHAPES = {
    "qwen3-0.6b": Shape(1024, 28, 16, 8, 128, 3072, 151936, True),
    "llama3-8b": Shape(4096, 32, 32, 8, 128, 14336, 128256, False),
}


def positive(text):
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f'"{text}" is not accepted; a whole number from 1 is')
    return int(text)


def positive_list(text):
    return [positive(item) for item in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=SHAPES, help="whose shapes are taken")
    parser.add_argument("--num-tokens", type=positive_list, default=[64, 128, 256, 512, 1024, 2048, 4096, 8192],
                        help="tokens of a prefill")
    parser.add_argument("--batch-size", type=positive_list, default=[1, 8, 32, 64, 128], help="requests of a decode")
    parser.add_argument("--context", type=positive, default=1024, help="tokens in the cache of each decoding request")
    parser.add_argument("--repeat", type=positive, default=20, help="runs, of which the median is taken")
    parser.add_argument("--seed", type=int, default=0, help="of weights and token ids")
    parser.add_argument("--output", help="a JSON file; standard output has the same")
    return parser.parse_args()


ARGUMENTS = parse_arguments()  # parsed before torch is imported, which takes seconds

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

DEVICE = "cuda"


def random_tensor(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


class Decoder:
    """The model, cut where Tessera cuts it: `first`, attention, `middle`, attention, …, `last`. `forward` chains them."""

    def __init__(self, shape, max_tokens):
        self.shape = s = shape
        ones = lambda size: torch.ones(size, device=DEVICE, dtype=torch.bfloat16)
        weight = lambda *size: random_tensor(*size) * 0.02
        self.layers = [{"norm1": ones(s.hidden), "norm2": ones(s.hidden), "q_norm": ones(s.head_dim), "k_norm": ones(s.head_dim),
                        "qkv": weight((s.heads + 2 * s.kv_heads) * s.head_dim, s.hidden),
                        "out": weight(s.hidden, s.heads * s.head_dim),
                        "gate_up": weight(2 * s.intermediate, s.hidden),
                        "down": weight(s.hidden, s.intermediate)} for _ in range(s.layers)]
        self.embedding, self.norm, self.head = weight(s.vocab, s.hidden), ones(s.hidden), weight(s.vocab, s.hidden)
        frequencies = 1.0 / (1e6 ** (torch.arange(0, s.head_dim, 2, device=DEVICE).float() / s.head_dim))
        angles = torch.outer(torch.arange(max_tokens, device=DEVICE).float(), frequencies)
        self.cos, self.sin = angles.cos().bfloat16(), angles.sin().bfloat16()
        cache = lambda: torch.zeros(max_tokens, s.kv_heads, s.head_dim, device=DEVICE, dtype=torch.bfloat16)
        self.k_cache, self.v_cache = [cache() for _ in range(s.layers)], [cache() for _ in range(s.layers)]

    @staticmethod
    def rms_norm(x, weight):
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).bfloat16() * weight

    @staticmethod
    def rotate(x, cos, sin):
        low, high = x.chunk(2, -1)
        cos, sin = cos[:, None], sin[:, None]
        return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)

    def before_attention(self, hidden, residual, layer, cos, sin):
        s = self.shape
        residual = hidden if residual is None else hidden + residual
        qkv = F.linear(self.rms_norm(residual, layer["norm1"]), layer["qkv"])
        q, k, v = qkv.split([s.heads * s.head_dim, s.kv_heads * s.head_dim, s.kv_heads * s.head_dim], -1)
        q, k, v = q.view(-1, s.heads, s.head_dim), k.view(-1, s.kv_heads, s.head_dim), v.view(-1, s.kv_heads, s.head_dim)
        if s.qk_norm:
            q, k = self.rms_norm(q, layer["q_norm"]), self.rms_norm(k, layer["k_norm"])
        return self.rotate(q, cos, sin), self.rotate(k, cos, sin), v.contiguous(), residual

    def after_attention(self, attended, residual, layer):
        residual = F.linear(attended, layer["out"]) + residual
        gate, up = F.linear(self.rms_norm(residual, layer["norm2"]), layer["gate_up"]).chunk(2, -1)
        return F.linear(F.silu(gate) * up, layer["down"]), residual

    def first(self, ids, positions):
        cos, sin = self.cos[positions], self.sin[positions]
        return (*self.before_attention(self.embedding[ids], None, self.layers[0], cos, sin), cos, sin)

    def middle(self, attended, residual, layer, next_layer, cos, sin):
        return self.before_attention(*self.after_attention(attended, residual, layer), next_layer, cos, sin)

    def last(self, attended, residual):
        hidden, residual = self.after_attention(attended, residual, self.layers[-1])
        return self.rms_norm(hidden + residual, self.norm)

    def attention(self, q, k, v, layer, slots):
        """Attention of one request without a cached prefix: the cache is written but not read."""
        self.k_cache[layer].index_copy_(0, slots, k)
        self.v_cache[layer].index_copy_(0, slots, v)
        out = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None],
                                             is_causal=True, enable_gqa=True)
        return out[0].transpose(0, 1).reshape(-1, self.shape.heads * self.shape.head_dim)

    def logits(self, hidden):
        return F.linear(hidden[-1:], self.head)

    def forward(self, ids, positions, attention, pieces):
        """Returns hidden states of all tokens. Calls `attention(q, k, v, layer)` between `pieces`: first, middle, last,
        compiled or not."""
        first, middle, last = pieces
        q, k, v, residual, cos, sin = first(ids, positions)
        for i in range(self.shape.layers):
            attended = attention(q, k, v, i)
            if i + 1 < self.shape.layers:
                q, k, v, residual = middle(attended, residual, self.layers[i], self.layers[i + 1], cos, sin)
        return last(attended, residual)


def captured(function, pool=None):
    """Returns the graph of `function` and its result, after two warm-up runs."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(2):
            function()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, pool=pool):
        result = function()
    return graph, result


def time_ms(function):
    for _ in range(5):
        function()
    torch.cuda.synchronize()
    times = []
    for _ in range(ARGUMENTS.repeat):
        begin = time.perf_counter()
        function()
        torch.cuda.synchronize()
        times.append((time.perf_counter() - begin) * 1e3)
    return round(statistics.median(times), 4)


def time_or_error(measure):
    try:
        return measure()
    except Exception as error:  # if this torch cannot run one variant, the other variants must still be timed
        return repr(error)[:200]


class PiecewiseGraphs:
    """One graph for each piece at one size, in a shared pool; attention runs eagerly between them."""

    def __init__(self, decoder, num_tokens, pieces, pool):
        s, first, middle, last = decoder.shape, *pieces
        self.decoder = decoder
        ids = torch.randint(0, s.vocab, (num_tokens,), device=DEVICE)
        self.slots = torch.arange(num_tokens, device=DEVICE)
        graph, (q, k, v, residual, cos, sin) = captured(lambda: first(ids, self.slots), pool)
        self.graphs, self.qkv = [graph], [(q, k, v)]
        # Attention's results need fixed addresses. Two buffers suffice, because only the next piece reads a layer's
        # result.
        two = [torch.empty(num_tokens, s.heads * s.head_dim, device=DEVICE, dtype=torch.bfloat16) for _ in range(2)]
        self.attended = [two[i % 2] for i in range(s.layers)]
        for i in range(s.layers):
            self.run_attention(i)
            attended = self.attended[i]
            if i + 1 < s.layers:
                layers = decoder.layers[i], decoder.layers[i + 1]
                graph, (q, k, v, residual) = captured(
                    lambda a=attended, r=residual, pair=layers: middle(a, r, *pair, cos, sin), pool)
                self.qkv.append((q, k, v))
            else:
                graph, self.hidden = captured(lambda a=attended, r=residual: last(a, r), pool)
            self.graphs.append(graph)

    def run_attention(self, layer):
        self.attended[layer].copy_(self.decoder.attention(*self.qkv[layer], layer, self.slots))

    def run(self):
        self.graphs[0].replay()
        for i in range(self.decoder.shape.layers):
            self.run_attention(i)
            self.graphs[i + 1].replay()
        return self.decoder.logits(self.hidden)


def floor_ms(decoder, num_tokens):
    """Measures the forward's matmuls alone and its attention alone, each as one graph."""
    s = decoder.shape
    hidden, attended = random_tensor(num_tokens, s.hidden), random_tensor(num_tokens, s.heads * s.head_dim)
    activated = random_tensor(num_tokens, s.intermediate)
    q = random_tensor(1, s.heads, num_tokens, s.head_dim)
    k = random_tensor(1, s.kv_heads, num_tokens, s.head_dim)

    def matmuls():
        for layer in decoder.layers:
            F.linear(hidden, layer["qkv"])
            F.linear(attended, layer["out"])
            F.linear(hidden, layer["gate_up"])
            F.linear(activated, layer["down"])
        F.linear(hidden[-1:], decoder.head)

    def attentions():
        for _ in range(s.layers):
            F.scaled_dot_product_attention(q, k, k, is_causal=True, enable_gqa=True)

    def attentions_of_cudnn():
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            graph, _ = captured(attentions)
        return time_ms(graph.replay)

    return {"matmuls": time_or_error(lambda: time_ms(captured(matmuls)[0].replay)),
            "attention": time_or_error(lambda: time_ms(captured(attentions)[0].replay)),
            "attention_cudnn": time_or_error(attentions_of_cudnn)}


def measure_prefill(decoder, num_tokens, plain, compiled):
    ids = torch.randint(0, decoder.shape.vocab, (num_tokens,), device=DEVICE)
    positions = torch.arange(num_tokens, device=DEVICE)
    pool = torch.cuda.graph_pool_handle()
    result = {}

    def forward(pieces):
        attention = lambda q, k, v, layer: decoder.attention(q, k, v, layer, positions)
        return decoder.logits(decoder.forward(ids, positions, attention, pieces))

    def piecewise(name, pieces):
        begin, reserved = time.perf_counter(), torch.cuda.memory_reserved()
        graphs = PiecewiseGraphs(decoder, num_tokens, pieces, pool)
        torch.cuda.synchronize()
        result[f"{name}_capture_s"] = round(time.perf_counter() - begin, 3)
        result[f"{name}_pool_mib"] = (torch.cuda.memory_reserved() - reserved) / 2**20
        return time_ms(graphs.run)

    for suffix, pieces in (("", plain), ("_compiled", compiled)):
        # At least two runs precede the measurement, because the first run of a compiled function compiles it.
        result["eager" + suffix] = time_or_error(lambda p=pieces: (forward(p), time_ms(lambda: forward(p)))[1])
        result["piecewise" + suffix] = time_or_error(lambda p=pieces, n="piecewise" + suffix: piecewise(n, p))
        result["one_graph" + suffix] = time_or_error(lambda p=pieces: time_ms(captured(lambda: forward(p))[0].replay))
    return result | floor_ms(decoder, num_tokens)


def measure_decode(decoder, batch, context, plain, compiled):
    """Measures decodes. Attention reads a dense cache of `context` tokens for each request instead of a paged one."""
    s = decoder.shape
    k_cache = random_tensor(s.layers, batch, s.kv_heads, context, s.head_dim)
    v_cache = random_tensor(s.layers, batch, s.kv_heads, context, s.head_dim)
    ids = torch.randint(0, s.vocab, (batch,), device=DEVICE)
    positions = torch.full((batch,), context - 1, device=DEVICE)

    def attention(q, k, v, layer):
        k_cache[layer, :, :, context - 1] = k
        v_cache[layer, :, :, context - 1] = v
        out = F.scaled_dot_product_attention(q[:, :, None], k_cache[layer], v_cache[layer], enable_gqa=True)
        return out.reshape(batch, s.heads * s.head_dim)

    def step(pieces):
        return F.linear(decoder.forward(ids, positions, attention, pieces), decoder.head).argmax(-1)

    return {"eager": time_or_error(lambda: time_ms(lambda: step(plain))),
            "one_graph": time_or_error(lambda: time_ms(captured(lambda: step(plain))[0].replay)),
            "one_graph_compiled": time_or_error(lambda: time_ms(captured(lambda: step(compiled))[0].replay)),
            "bytes_read": DTYPE_BYTES * (s.matmul_weights() + 2 * s.layers * batch * s.kv_heads * context * s.head_dim)}


def main():
    torch.manual_seed(ARGUMENTS.seed)
    torch._dynamo.config.cache_size_limit = 256  # one compiled piece for each size
    decoder = Decoder(SHAPES[ARGUMENTS.model], max(*ARGUMENTS.num_tokens, ARGUMENTS.context))
    plain = (decoder.first, decoder.middle, decoder.last)
    compiled = tuple(torch.compile(piece, dynamic=True, fullgraph=True) for piece in plain)
    result = {"model": ARGUMENTS.model, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__,
              "prefill_ms": {}, "decode_ms": {}}
    with torch.no_grad():
        for num_tokens in ARGUMENTS.num_tokens:
            result["prefill_ms"][num_tokens] = measure_prefill(decoder, num_tokens, plain, compiled)
            print(f"prefill of {num_tokens}:", json.dumps(result["prefill_ms"][num_tokens]), flush=True)
        for batch in ARGUMENTS.batch_size:
            result["decode_ms"][batch] = measure_decode(decoder, batch, ARGUMENTS.context, plain, compiled)
            print(f"decode of {batch}:", json.dumps(result["decode_ms"][batch]), flush=True)
    if ARGUMENTS.output:
        with open(ARGUMENTS.output, "w", encoding="utf-8") as file:
            json.dump(result, file, indent=1)


if __name__ == "__main__":
    main()
