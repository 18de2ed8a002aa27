#!/usr/bin/env python3
"""The tessera command: make-checkpoint. tests/cli/cli_make_checkpoint_test.py PROGRAM [TEST …]

Catches: a checkpoint of any family whose logits differ from those of the random weights, a folder that is overwritten,
and an interrupted or impossible write that leaves a partial model behind.
Prints a line for each test; the last line is "N passed, N failed"."""

import json
import os
import re
import resource
import signal
import subprocess
import time

from program import DEMO, FEW_SIZES, LLAMA, PROGRAM, CliTest, main, read_safetensors, tessera

SMALL = {"vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 256, "hidden_act": "silu",
         "torch_dtype": "float32", "tie_word_embeddings": False,
         # These are fields of mixtures, delta nets, latent attention and per-layer embeddings; other families ignore
         # them.
         "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
         "moe_intermediate_size": 32, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1, "head_dim": 16,
         "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
         "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8,
         "global_head_dim": 32, "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 320}


class MakeCheckpoint(CliTest):
    def config(self, **changes):
        file = self.folder / "config.json"
        file.write_text(json.dumps({**SMALL, "architectures": ["LlamaForCausalLM"], **changes}))
        return file

    def logits(self, path, *more):
        out = self.folder / "logits.safetensors"
        self.ok("score", "--model-path", path, "--input-ids", "5,9,200,31,7", "--output", out, *FEW_SIZES, *more)
        return read_safetensors(out)

    def test_every_family_gives_the_logits_of_random_weights(self):
        said = self.fails(1, ["\"Nothing\""], "make-checkpoint", self.config(architectures=["Nothing"]),
                          self.folder / "none").stderr
        families = re.findall(r"\w+ForCausalLM", said)
        self.assertGreaterEqual(len(families), 6, said)
        for family in families:
            for tied in (False, True):
                with self.subTest(family=family, tied=tied):
                    config = self.config(architectures=[family], tie_word_embeddings=tied)
                    folder = self.folder / f"{family}-{tied}"
                    self.ok("make-checkpoint", config, folder, "--seed", 3)
                    self.assertEqual((folder / "config.json").read_bytes(), config.read_bytes())
                    from_file = self.logits(folder)
                    random = self.logits(config, "--load-format", "dummy", "--random-seed", 3)
                    self.assertEqual(from_file, random)
                    other = self.logits(config, "--load-format", "dummy", "--random-seed", 4)
                    self.assertNotEqual(from_file, other)

    def test_shards_type_and_tokenizer(self):
        folder = self.folder / "made"
        result = self.ok("make-checkpoint", DEMO, folder, "--max-shard-size", "5MB", "--dtype", "float16")
        self.assertRegex(result.stderr, r"Writing [\d,]+ parameters of float16, .* bytes\) in \d+ files to .*, which has room for")
        self.assertRegex(result.stdout, r" in [\d.]+ s, [\d.]+ GB/s, on disk\n$")
        index = json.loads((folder / "model.safetensors.index.json").read_text())
        shards = sorted(set(index["weight_map"].values()))
        self.assertGreaterEqual(len(shards), 3)
        self.assertEqual(shards, [f"model-{i + 1:05}-of-{len(shards):05}.safetensors" for i in range(len(shards))])
        copied = {file.name for file in DEMO.iterdir()} - {"README.md", "model.safetensors"}
        self.assertEqual({file.name for file in folder.iterdir()},
                         {*copied, *shards, "model.safetensors.index.json"})
        config = json.loads((DEMO / "config.json").read_text())
        key = "dtype" if "dtype" in config else "torch_dtype"
        self.assertEqual(json.loads((folder / "config.json").read_text()), {**config, key: "float16"})
        self.assertEqual((folder / "tokenizer.json").read_bytes(), (DEMO / "tokenizer.json").read_bytes())
        words = ["--prompt", "Once upon a time", "--max-new-tokens", 12, "--ignore-eos", "--dtype", "float16", *FEW_SIZES]
        random = self.ok("generate", "--model-path", DEMO, "--load-format", "dummy", *words).stdout
        self.assertEqual(self.ok("generate", "--model-path", folder, *words).stdout, random)
        drafting = self.ok("generate", "--model-path", folder, *words, "--speculative-algorithm", "MTP").stdout
        self.assertEqual(drafting, random, "the next-token layer was written too")

    def test_template_in_a_file_of_its_own(self):
        source = self.folder / "source"
        source.mkdir()
        for name in ("config.json", "tokenizer.json"):
            (source / name).write_bytes((DEMO / name).read_bytes())
        (source / "chat_template.json").write_text('{"chat_template": "{{ messages[0].content }}"}')
        made = self.folder / "made"
        self.ok("make-checkpoint", source, made)
        self.ok("generate", "--model-path", made, "--prompt", "Hi", "--chat", "--max-new-tokens", 2, *FEW_SIZES)

    def test_tokenizer_from_elsewhere(self):
        for name, path in (("folder", DEMO), ("file", DEMO / "tokenizer.json")):
            folder = self.folder / name
            self.ok("make-checkpoint", self.config(), folder, "--tokenizer-path", path)
            self.assertEqual({file.name for file in folder.iterdir()},
                             {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"})
        self.fails(2, ["--tokenizer-path", "has no tokenizer", "accepted"], "make-checkpoint", self.config(),
                   self.folder / "none", "--tokenizer-path", LLAMA)

    def test_a_folder_that_is_not_empty(self):
        config = self.config()
        folder = self.folder / "made"
        self.ok("make-checkpoint", config, folder, "--max-shard-size", "50KB")
        before = {file.name: file.read_bytes() for file in folder.iterdir()}
        self.fails(1, [str(folder), "not empty", "--overwrite"], "make-checkpoint", config, folder)
        self.assertEqual({file.name: file.read_bytes() for file in folder.iterdir()}, before)
        (folder / "notes.txt").write_text("mine")
        (folder / "model.safetensors.tmp-1-0").write_text("left by a process that was killed")
        self.ok("make-checkpoint", config, folder, "--seed", 1, "--overwrite")
        self.assertEqual({file.name for file in folder.iterdir()}, {"notes.txt", "config.json", "model.safetensors"})
        self.fails(1, [str(self.folder), "config.json itself"], "make-checkpoint", config, self.folder, "--overwrite")
        self.fails(1, ["is no folder"], "make-checkpoint", config, config, "--overwrite")

    def test_wrong_configs(self):
        self.fails(1, [str(self.folder / "none"), "there is no such model"], "make-checkpoint", self.folder / "none", self.folder / "made")
        for changes, words in (({"hidden_size": 0}, ["hidden_size", "accepted"]),
                               ({"num_key_value_heads": 3}, ["num_key_value_heads"]),
                               ({"quantization_config": {"quant_method": "fp9"}}, ["quantization_config", "fp9"]),
                               ({"quantization_config": {"quant_method": "fp8"}}, ["random values of quantised tensors"]),
                               ({"torch_dtype": "float8"}, ["torch_dtype", "accepted: float32"])):
            self.fails(1, [str(self.folder / "config.json"), *words], "make-checkpoint", self.config(**changes),
                       self.folder / "made")
        for words in ([], [self.config()]):
            self.fails(2, ["make-checkpoint needs a config.json"], "make-checkpoint", *words)
        self.fails(2, ["--max-shard-size"], "make-checkpoint", self.config(), self.folder / "made", "--max-shard-size",
                   "0")
        self.assertFalse((self.folder / "made").exists())

    def test_more_than_there_is_room_for(self):
        config = self.config(vocab_size=1 << 20, hidden_size=1 << 16, num_attention_heads=512, num_hidden_layers=64)
        result = self.fails(1, ["has room for", "needs", "more"], "make-checkpoint", config, self.folder / "made")
        self.assertIn("Writing ", result.stderr)
        self.assertFalse((self.folder / "made").exists())

    def test_memory_is_bounded(self):
        config = self.config(vocab_size=65536, hidden_size=1024, num_attention_heads=16, num_key_value_heads=16,
                             num_hidden_layers=1)
        limit = 320 << 20
        data = lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
        folder = self.folder / "made"
        result = subprocess.run([str(PROGRAM), "make-checkpoint", str(config), str(folder)], preexec_fn=data,
                                capture_output=True, text=True, timeout=100, check=False,
                                env={**os.environ, "OMP_NUM_THREADS": "2"})
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertGreater((folder / "model.safetensors").stat().st_size, limit)

    def test_interrupted(self):
        config = self.config(vocab_size=1 << 18, hidden_size=2048, num_attention_heads=16)
        folder = self.folder / "made"
        for number, left in ((signal.SIGINT, False), (signal.SIGKILL, True)):
            process = subprocess.Popen([str(PROGRAM), "make-checkpoint", str(config), str(folder)],
                                       stderr=subprocess.PIPE, text=True)
            for _ in range(2000):
                if folder.exists() and any(file.stat().st_size > 1 << 24 for file in folder.iterdir()):
                    break
                time.sleep(0.005)
            process.send_signal(number)
            said = process.communicate(timeout=60)[1]
            self.assertNotEqual(process.returncode, 0)
            self.assertEqual(folder.exists(), left, said)
            if not left:
                self.assertIn("stopped: no weights are in", said)
        for file in folder.iterdir():
            self.assertRegex(file.name, r"\.tmp-\d+-\d+$")
        result = tessera("generate", "--model-path", folder, "--input-ids", "1")
        self.assertEqual(result.returncode, 1)


if __name__ == "__main__":
    main()
