#!/usr/bin/env python3
"""The tessera command: models from the hub. tests/cli/cli_hub_test.py PROGRAM [TEST …]

Catches: a pull that accepts broken files or starts over, and a model name that a command does not find.
Prints a line for each test; the last line is "N passed, N failed"."""

import hashlib
import http.server
import json
import os
import signal
import subprocess
import threading
import unittest.mock

from program import FEW_SIZES, LLAMA, PROGRAM, CliTest, main


class FakeHub(http.server.BaseHTTPRequestHandler):
    """Serves the model folder LLAMA as org/llama, revisions main and v1."""
    COMMIT = "0123456789abcdef0123456789abcdef01234567"
    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self.server.seen.append((self.path, dict(self.headers)))
        resolve = f"/org/llama/resolve/{self.COMMIT}/"
        if self.path in (f"/api/models/org/llama/revision/{name}?blobs=true" for name in ("main", "v1")):
            self.answer(json.dumps({"sha": self.COMMIT, "siblings": list(map(self.entry, LLAMA.iterdir()))}).encode())
        elif self.path.startswith(resolve):
            self.answer((LLAMA / self.path[len(resolve):]).read_bytes())
        else:
            self.send_error(404)

    def entry(self, file):
        data = file.read_bytes()
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        entry = {"rfilename": file.name, "size": len(data), "blobId": blob}
        if file.suffix == ".safetensors":
            entry["lfs"] = {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
        return entry

    def answer(self, data):
        begin = int(self.headers.get("Range", "bytes=0-").removeprefix("bytes=").removesuffix("-"))
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(data) - 1}/{len(data)}")
        self.send_header("Content-Length", str(len(data) - begin))
        self.end_headers()
        sent = self.server.stall_after if self.path.endswith("model.safetensors") else len(data)
        self.wfile.write(data[begin:][:sent])
        self.wfile.flush()
        if sent < len(data) - begin:
            self.server.stalled.set()
            self.server.go_on.wait(60)

    def log_message(self, *arguments):
        pass


class Hub(CliTest):
    def setUp(self):
        super().setUp()
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), FakeHub)
        self.server.seen, self.server.stall_after = [], 1 << 40
        self.server.stalled, self.server.go_on = threading.Event(), threading.Event()
        thread = threading.Thread(target=self.server.serve_forever)
        thread.start()
        for clean_up in (self.server.server_close, thread.join, self.server.shutdown, self.server.go_on.set):
            self.addCleanup(clean_up)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        self.hub = self.folder / "home" / "hub"
        self.snapshot = self.hub / "models--org--llama" / "snapshots" / FakeHub.COMMIT
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HF_")}
        environment = {**kept, "HF_HOME": str(self.folder / "home"), "HF_ENDPOINT": self.url, "no_proxy": "*"}
        patch = unittest.mock.patch.dict(os.environ, environment, clear=True)
        patch.start()
        self.addCleanup(patch.stop)

    def generate(self, model, *more):
        return self.ok_json("generate", "--model-path", model, "--input-ids", "1,2,3", "--max-new-tokens", 4,
                            "--ignore-eos", "--log-level", "error", *FEW_SIZES, *more)["output_ids"]

    def test_pull_then_every_command_by_name(self):
        result = self.ok("pull", "org/llama")
        self.assertEqual(result.stdout, f"{self.snapshot}\n")
        self.assertEqual({file.name for file in self.snapshot.iterdir()},
                         {"config.json", "generation_config.json", "golden.json", "model.safetensors"})
        requests = len(self.server.seen)
        self.assertEqual(self.generate("org/llama"), self.generate(LLAMA))
        self.ok("explain", "--model-path", "org/llama", "--revision", FakeHub.COMMIT)
        self.ok("score", "--model-path", "org/llama", "--input-ids", "1,2", "--output", self.folder / "s", *FEW_SIZES)
        self.ok("verify", "--model-path", "org/llama", *FEW_SIZES)
        self.ok("bench", "prefill", "--model-path", "org/llama", "--num-tokens", 8, "--repeat", 1, *FEW_SIZES)
        self.assertEqual(len(self.server.seen), requests)

    def test_download_on_demand(self):
        self.fails(1, ["org/llama", str(self.hub), "`tessera pull org/llama`", "--download"], "explain",
                   "--model-path", "org/llama")
        self.ok("explain", "--model-path", "org/llama", "--download")
        self.assertFalse((self.snapshot / "model.safetensors").exists())
        self.fails(1, ["lacks model.safetensors"], "generate", "--model-path", "org/llama", "--input-ids", "1")
        self.assertEqual(self.generate("org/llama", "--download"), self.generate(LLAMA))
        self.fails(1, ["no revision \"v1\"", "main", "--revision v1`"], "explain", "--model-path", "org/llama",
                   "--revision", "v1")
        self.ok("explain", "--model-path", "org/llama", "--revision", "v1", "--download")

    def test_flags_of_pull_come_before_the_environment(self):
        os.environ["HF_ENDPOINT"] = "http://127.0.0.1:1"
        os.environ["HF_TOKEN"] = "secret"
        cache = self.folder / "elsewhere"
        result = self.ok("pull", "org/llama", "--revision", "v1", "--endpoint", self.url, "--cache-dir", cache)
        self.assertTrue(result.stdout.startswith(str(cache)))
        self.assertEqual((cache / "models--org--llama" / "refs" / "v1").read_text(), FakeHub.COMMIT)
        self.assertFalse(self.hub.exists())
        self.assertEqual({headers["Authorization"] for _, headers in self.server.seen}, {"Bearer secret"})

    def test_interrupted_pull_goes_on(self):
        self.server.stall_after = 1000
        pull = subprocess.Popen([str(PROGRAM), "pull", "org/llama"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.assertTrue(self.server.stalled.wait(60))
        blobs = self.hub / "models--org--llama" / "blobs"
        while not any(file.stat().st_size == 1000 for file in blobs.glob("*.incomplete")):
            self.assertIsNone(pull.poll())
        pull.send_signal(signal.SIGINT)
        self.assertEqual(pull.communicate(timeout=60)[0], b"")
        self.assertEqual(pull.returncode, -signal.SIGINT)
        self.server.stall_after = 1 << 40
        self.fails(1, ["only a part", "model.safetensors"], "generate", "--model-path", "org/llama", "--revision",
                   FakeHub.COMMIT, "--input-ids", "1")
        self.ok("pull", "org/llama")
        self.assertEqual([headers.get("Range") for path, headers in self.server.seen
                          if path.endswith("/model.safetensors")], [None, "bytes=1000-"])
        self.assertEqual((self.snapshot / "model.safetensors").read_bytes(), (LLAMA / "model.safetensors").read_bytes())

    def test_refusals(self):
        self.fails(1, ["org/other", self.url, "404"], "pull", "org/other")
        self.fails(1, ["org/llama", "404"], "pull", "org/llama", "--revision", "v9")
        self.fails(1, ["no-such-folder", "is no path here", str(self.hub)], "explain", "--model-path", "no-such-folder")
        self.fails(2, ["--revision", "v1", str(LLAMA)], "explain", "--model-path", LLAMA, "--revision", "v1")
        self.fails(2, ["--revision", "../x"], "explain", "--model-path", "org/llama", "--revision", "../x")
        self.fails(2, ["pull: \"../x\" is no id", "org/name"], "pull", "../x")
        self.fails(2, ["org/name"], "pull")
        self.fails(2, ["unknown flag --json of pull"], "pull", "org/llama", "--json")
        self.fails(1, ["HF_ENDPOINT", "\"ftp://x\"", "https://"], "pull", "org/llama", "--endpoint", "ftp://x")
        self.fails(1, ["cannot make the folder", "Not a directory"], "pull", "org/llama", "--cache-dir",
                   LLAMA / "config.json")
        os.environ["HF_HUB_OFFLINE"] = "1"
        self.fails(1, ["HF_HUB_OFFLINE"], "pull", "org/llama")
        self.fails(1, ["HF_HUB_OFFLINE"], "explain", "--model-path", "org/llama", "--download")


if __name__ == "__main__":
    main()
