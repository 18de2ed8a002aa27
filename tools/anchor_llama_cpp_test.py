#!/usr/bin/env python3
"""Tests of the files that anchor_llama_cpp.py writes. Catches: a header that gives wrong offsets, shapes or types of
tensors."""

import math
import pathlib
import struct
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parent.resolve()
sys.path.insert(0, str(TOOLS))

import anchor_llama_cpp  # noqa: E402  (found through the path above)


class LlamaCppModel(unittest.TestCase):
    CONFIG = {"architectures": ["Qwen3ForCausalLM"], "hidden_size": 24, "intermediate_size": 40, "head_dim": 5,
              "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 2, "vocab_size": 7,
              "tie_word_embeddings": True}

    def test_tensors_lie_where_the_header_says(self):
        self.check(self.CONFIG, None, {0: 4, 30: 2})

    def test_blocks_lie_where_the_header_says(self):
        wide = {**self.CONFIG, "hidden_size": 256, "intermediate_size": 512, "head_dim": 128}
        for name, blocks in anchor_llama_cpp.BLOCK_TYPES.items():
            with self.subTest(type=name):
                self.check(wide, blocks, {0: 4, blocks.kind: blocks.size / blocks.elements})

    def test_mixtures_have_routers_and_a_type_for_down(self):
        mixture = {**self.CONFIG, "architectures": ["Qwen3MoeForCausalLM"], "hidden_size": 256, "head_dim": 128,
                   "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 512}
        q4_k, q6_k = (anchor_llama_cpp.BLOCK_TYPES[name] for name in ("q4_k", "q6_k"))
        bytes_of = {0: 4, **{kind.kind: kind.size / kind.elements for kind in (q4_k, q6_k)}}
        found = self.check(mixture, q4_k, bytes_of, q6_k, "qwen3moe", 12)
        self.assertEqual(found["blk.1.ffn_down_exps.weight"], ([512, 256, 4], q6_k.kind))
        self.assertEqual(found["blk.1.ffn_gate_exps.weight"], ([256, 512, 4], q4_k.kind))
        self.assertEqual(found["blk.1.ffn_gate_inp.weight"], ([256, 4], 0))

    def check(self, config, blocks, bytes_of, down=None, architecture="qwen3", of_layer=11):
        """Writes a model and reads its header; `bytes_of` has the bytes of a value by the tensor's type. Returns the shape, as
        the file has it, and the type of each tensor."""
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "model.gguf"
            anchor_llama_cpp.write_gguf(config, path, blocks, down or blocks)
            data = path.read_bytes()
        magic, version, tensors, keys = struct.unpack("<4sIQQ", data[:24])
        self.assertEqual((magic, version, tensors), (b"GGUF", 3, 2 + 2 * of_layer))
        at = 24

        def text():
            nonlocal at
            size, = struct.unpack_from("<Q", data, at)
            at += 8 + size
            return data[at - size:at].decode()

        numbers = {}
        for _ in range(keys):
            key = text()
            kind, = struct.unpack_from("<I", data, at)
            at += 4
            if kind == 8:
                numbers[key] = text()
            else:
                numbers[key], = struct.unpack_from({4: "<I", 6: "<f"}[kind], data, at)
                at += 4
        self.assertEqual(numbers["general.architecture"], architecture)
        self.assertEqual(numbers[f"{architecture}.attention.key_length"], config["head_dim"])
        end = 0
        found = {}
        for _ in range(tensors):
            name = text()
            dims, = struct.unpack_from("<I", data, at)
            *shape, kind, offset = struct.unpack_from(f"<{dims}QIQ", data, at + 4)
            at += 4 + 8 * dims + 12
            self.assertEqual(offset, -(-end // 32) * 32, name)
            found[name] = shape, kind
            end = offset + math.prod(shape) * bytes_of[kind]
        self.assertEqual(len(data), -(-at // 32) * 32 + -(-int(end) // 32) * 32)
        return found


if __name__ == "__main__":
    result = unittest.main(exit=False, testRunner=unittest.TextTestRunner(stream=sys.stdout)).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
