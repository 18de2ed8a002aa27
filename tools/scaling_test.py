#!/usr/bin/env python3
"""Tests of scaling_model.py: tools/scaling_test.py. Catches: a model that no longer agrees with the measurements,
points that are wrongly called incomparable, wrong shapes, a layout that is said to fit and does not, costs that fall
where they must grow, unsupported models that are not refused, and tables in docs/scaling.md that the script no longer
prints."""

import contextlib
import io
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parent.resolve()
sys.path.insert(0, str(TOOLS))

from scaling import check, cost, machine, shapes, tables  # noqa: E402  (found through the path above)
from scaling.layout import Layout, problem  # noqa: E402

H200 = machine.load()
MODELS = {name: shapes.read_shapes(config) for name, config in H200.data["models"].items()}
LLAMA, MIXTURE = MODELS["Llama-3-8B"], MODELS["Qwen3-30B-A3B"]
LLAMA_405B = shapes.Shapes(layers=126, hidden=16384, heads=128, kv_heads=8, head_dim=128, intermediate=53248, experts=0,
                           experts_per_token=0, vocab=128256)


def decode_ms(model, layout, batch, context=1024, on=H200):
    return tables.total(cost.decode(on, model, layout, batch, context))


class Measured(unittest.TestCase):
    def test_every_point_is_met(self):
        points = [(name, point) for name, row in check.compare(H200) for point in row]
        self.assertGreater(len(points), 50)
        for name, point in points:
            if point.fitted:
                self.assertLess(abs(point.error()), 0.011, (name, point))
            elif not point.few_experts:
                self.assertLess(abs(point.error()), 0.15, (name, point))

    def test_few_experts_were_reached_where_it_is_said(self):
        # Reading all experts of all layers would take longer than the whole measured forward.
        read_ms = MIXTURE.layers * MIXTURE.experts * MIXTURE.mlp_bytes() / H200.fit["memory_TBps"] / 1e9
        point = next(point for name, row in check.compare(H200) for point in row if point.few_experts and "TP 1" in name)
        self.assertGreater(read_ms, 1.2 * point.measured_ms)

    def test_fitted_constants_are_those_that_say_so(self):
        fitted = [constant["from"] for constant in H200.data["constants"].values() if constant["from"].startswith("fitted: ")]
        points = [point for _, row in check.compare(H200) for point in row if point.fitted]
        self.assertEqual(len(fitted), len(points))

    def test_a_whole_server(self):
        # The measurement: 300 requests at once, 432 thousand prompt tokens and 32 thousand output tokens: 22.9
        # requests/s on one GPU.
        prompt, output, together = 1440, 107, 94
        prompt_s = prompt / 8192 * tables.total(cost.prefill(H200, LLAMA, Layout(), 8192)) / 1e3
        output_s = output * decode_ms(LLAMA, Layout(), together, 1500) / 1e3 / together
        self.assertAlmostEqual(1 / (prompt_s + output_s), 22.9, delta=0.15 * 22.9)


class Counted(unittest.TestCase):
    def test_weights(self):
        for name, billions in (("Llama-3-8B", 8.03), ("Qwen3-32B", 32.76), ("Qwen3-30B-A3B", 30.53), ("Qwen3-0.6B", 0.752)):
            self.assertAlmostEqual(MODELS[name].weight_bytes() / 2e9, billions, delta=0.005 * billions)

    def test_kv_heads_are_held_by_neighbours(self):
        self.assertEqual([MIXTURE.kv_bytes(ranks) for ranks in (1, 2, 4, 8)], [2048, 1024, 512, 512])

    def test_what_fits(self):
        self.assertEqual([tp for tp in (1, 2, 4, 8, 16) if not problem(H200, LLAMA_405B, Layout(tp=tp), 1, 1024)], [8, 16])
        for model, layout, batch, what in (
                (LLAMA_405B, Layout(tp=4, pp=2), 1, ""), (LLAMA_405B, Layout(tp=4), 1, "TP 4 needs 203 GB of each GPU, which has 142"),
                (LLAMA, Layout(), 2000, "TP 1 needs 284 GB"), (LLAMA, Layout(tp=3), 1, "TP 3 is not accepted; powers of two are"),
                (LLAMA, Layout(tp=64), 1, "32 heads do not divide by TP 64"), (LLAMA, Layout(pp=64), 1, "32 layers are fewer"),
                (LLAMA, Layout(tp=2, ep=2), 1, "EP 2 has to divide TP (2) and the number of experts (0)"),
                (MIXTURE, Layout(tp=2, ep=4), 1, "EP 4 has to divide TP (2)"), (MIXTURE, Layout(tp=16), 1, ""),
                (MIXTURE, Layout(tp=256, spread=True), 1, "the number of experts (128)"), (MIXTURE, Layout(tp=128, spread=True), 1, "")):
            said = problem(H200, model, layout, batch, 1024)
            self.assertTrue(what in said if what else said == "", (layout, said))


class Costs(unittest.TestCase):
    def test_tables_are_met_and_joined(self):
        for kib, us in H200.data["all_reduce_us"]["2"]:
            self.assertEqual(H200.all_reduce_us(kib * 1024, 2), us)
        self.assertEqual(machine.between([(1, 10), (3, 20)], 2), 15)
        self.assertEqual([machine.between([(1, 10), (3, 20)], kib) for kib in (0.5, 6)], [10, 40])

    def test_collectives_grow(self):
        for call in (H200.all_reduce_us, H200.all_gather_us, H200.all_to_all_us):
            for size in (1 << 13, 1 << 20, 1 << 26):
                times = [call(size, ranks) for ranks in (1, 2, 4, 8, 16, 64, 512)]
                self.assertEqual(times[0], 0)
                self.assertEqual(sorted(times), times, (call.__name__, size))
        slower = machine.load(machine.Network(gb_per_s=10, latency_us=50))
        self.assertGreater(slower.all_reduce_us(1 << 20, 16), H200.all_reduce_us(1 << 20, 16) + 80)
        self.assertEqual(slower.all_reduce_us(1 << 20, 8), H200.all_reduce_us(1 << 20, 8))

    def test_ranks_share_what_is_read(self):
        one, two = (cost.decode(H200, LLAMA, Layout(tp=tp), 1, 1024) for tp in (1, 2))
        self.assertAlmostEqual(one["read"], 2 * two["read"])
        self.assertNotIn("collectives", {name for name, ms in one.items() if ms})
        self.assertGreater(two["collectives"], 0)

    def test_stages_share_layers_and_add_nothing_but_sends(self):
        one, two = (cost.decode(H200, LLAMA, Layout(pp=pp), pp, 1024) for pp in (1, 2))
        self.assertAlmostEqual(one["launches"], two["launches"])
        self.assertLess(one["read"], two["read"])  # the stage with the head reads more, and sets the pace
        self.assertLess(one.get("waits", 0), two["waits"])

    def test_experts_that_all_are_reached_are_shared_evenly(self):
        fit = dict(H200.fit)
        us = [cost.experts(H200, MIXTURE, 4096, ranks, 1) - fit["experts_us"] for ranks in (1, 2, 8)]
        self.assertAlmostEqual(us[0], 2 * us[1])
        self.assertAlmostEqual(us[0], 8 * us[2])
        few = [cost.experts(H200, MIXTURE, 1, ranks, 1) - fit["experts_us"] for ranks in (1, 2)]
        self.assertGreater(few[1], 0.55 * few[0], "of 8 experts one of two ranks has more")


class Program(unittest.TestCase):
    def run_with(self, *words):
        done = subprocess.run([sys.executable, TOOLS / "scaling_model.py", *words], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout, done.stderr

    def refused(self, config, what):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({**H200.data["models"]["Qwen3-32B"], **config}, file)
            file.flush()
            status, output, error = self.run_with("step", file.name)
        self.assertEqual((status, output), (1, ""))
        self.assertIn(what, error)

    def test_other_models_are_refused(self):
        for config, what in (({"kv_lora_rank": 512}, "kv_lora_rank: 512 is not accepted (latent attention)"),
                             ({"quantization_config": {"bits": 4}}, "quantised weights"),
                             ({"torch_dtype": "float32"}, "torch_dtype: 'float32' is not accepted"),
                             ({"sliding_window": 512}, "layers with a window"),
                             ({"layer_types": ["full_attention", "linear_attention"]}, "layers of several kinds"),
                             ({"decoder_sparse_step": 2}, "decoder_sparse_step: 2"),
                             ({"vocab_size": None}, "vocab_size: None is not accepted"),
                             ({"num_attention_heads": "64"}, "num_attention_heads: '64' is not accepted"),
                             ({"num_experts": 8}, "num_experts_per_tok: None is not accepted")):
            self.refused(config, what)

    def test_layouts_that_cannot_be_are_refused(self):
        status, output, error = self.run_with("step", "Qwen3-32B", "--tp", "2", "--ep", "2")
        self.assertEqual((status, output), (1, ""))
        self.assertEqual(error, "scaling_model.py: error: EP 2 has to divide TP (2) and the number of experts (0)\n")
        for words in (("--batch", "0"), ("--network-GBps", "0"), ("--network-us", "-1")):
            self.assertEqual(self.run_with("step", "Qwen3-32B", *words)[0], 2, words)

    def test_what_does_not_fit_is_shown_as_that(self):
        sizing = tables.Sizing(H200, LLAMA_405B, 16, 1024)
        lines = sizing.one_host().splitlines()
        self.assertIn("| TP 4 | – | – | – | – | – | does not divide or fit |", lines)
        self.assertTrue(lines[5].startswith("| TP 8 | 27."), lines[5])
        self.assertEqual(sizing.hosts(64).count("| – |"), 2, "TP over 32 and 64 hosts: 128 heads")

    def test_a_step_by_its_parts(self):
        status, output, error = self.run_with("step", "Qwen3-30B-A3B", "--tp", "2", "--ep", "2", "--batch", "8")
        self.assertEqual(status, 0, error)
        numbers = [float(line.split("|")[2]) for line in output.splitlines()[2:]]
        self.assertAlmostEqual(sum(numbers[:-1]), numbers[-1], delta=0.005)
        self.assertAlmostEqual(numbers[-1], decode_ms(MIXTURE, Layout(tp=2, ep=2), 8), delta=0.001)

    def test_the_guide_shows_what_is_printed(self):
        guide = (TOOLS.parent / "docs" / "scaling.md").read_text()
        for words in (["check"], ["size", "Qwen3-32B"], ["size", "Qwen3-30B-A3B"]):
            self.assertTrue(f"`tools/scaling_model.py {' '.join(words)}`\n" in guide, words)
            _, output, _ = self.run_with(*words)
            for line in output.splitlines():
                self.assertTrue(line in guide, f"{words} prints now: {line}")


if __name__ == "__main__":
    said = io.StringIO()
    with contextlib.redirect_stderr(said):
        result = unittest.main(exit=False).result
    bad = len(result.failures) + len(result.errors)
    print(said.getvalue() if bad else "", end="")
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(bad > 0)
