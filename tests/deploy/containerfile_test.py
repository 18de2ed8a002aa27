#!/usr/bin/env python3
"""Builds the Containerfile step by step in a chroot of Debian 12, and tests the server of its image:

  tests/deploy/containerfile_test.py BUILD_FOLDER                 takes the build stage's package from an existing build
  tests/deploy/containerfile_test.py --whole [--bind HERE:THERE] [--env NAME=VALUE]
                                                                  builds the build stage too, which compiles everything

--base FOLDER is a Debian 12 to begin with (`debootstrap --variant=minbase bookworm FOLDER`); else it makes one.
--bind and --env apply to RUN alone, as those of `podman build`. Catches: a package or tool that the steps lack, a file
that the image lacks, missing certificates, so that no model can be downloaded, a server that needs root or writes where
it may not, and a build stage that leaves out constrained output.

Prints the layers and their sizes. The last line is "N passed, N failed"."""

import argparse
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
from containerfile import Containerfile  # noqa: E402  (the folder is known now)
from served import run_cases  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_S = 120


def why_not():
    if os.geteuid() != 0:
        return "a chroot needs root"
    for tool in ("debootstrap", "unshare", "nsenter", "ip", "curl"):
        if shutil.which(tool) is None:
            return f"{tool} is missing"
    if subprocess.run(["unshare", "--mount", "--net", "mount", "-t", "proc", "proc", "/proc"], stderr=subprocess.DEVNULL,
                      check=False).returncode != 0:
        return "mounting is not allowed here"
    if subprocess.run(["curl", "-sfo", "/dev/null", "--max-time", "20", "http://deb.debian.org/debian/dists/bookworm/Release"],
                      check=False).returncode != 0:
        return "deb.debian.org cannot be reached"
    return None


# Makes Debian images slim: apt keeps no caches, and dpkg leaves out files that a container does not need. apt retries,
# because a mirror that fails once is not a fault of the Containerfile.
APT = """DPkg::Post-Invoke { "rm -f /var/cache/apt/archives/*.deb /var/cache/apt/*.bin || true"; };
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
Acquire::Languages "none";
Acquire::Retries "3";
"""
LEFT_OUT = ["usr/share/doc", "usr/share/info", "usr/share/locale", "usr/share/man"]
KEPT = "path-include /usr/share/doc/*/copyright\n"


def make_slim(folder):
    (folder / "etc" / "apt" / "apt.conf.d" / "docker-clean").write_text(APT)
    (folder / "etc" / "dpkg" / "dpkg.cfg.d" / "docker").write_text("".join(f"path-exclude /{path}/*\n" for path in LEFT_OUT) + KEPT)
    for path in ("var/cache/apt/archives", "var/lib/apt/lists", *LEFT_OUT):
        shutil.rmtree(folder / path, ignore_errors=True)
        (folder / path).mkdir(parents=True)
    (folder / "var" / "cache" / "apt" / "archives" / "partial").mkdir()
    for file in (folder / "var" / "cache" / "apt").glob("*.bin"):
        file.unlink()


def make_base(folder):
    """Makes the base. Returns why there is none, or None: a failing mirror is no fault of the Containerfile."""
    made = subprocess.run(["debootstrap", "--variant=minbase", "bookworm", folder], capture_output=True, text=True, check=False)
    return None if made.returncode == 0 else f"debootstrap: {made.stdout[-2000:]}{made.stderr[-2000:]}"


def make_package(build, folder):
    """Makes what the build stage leaves for the other stage."""
    target = folder / "src" / "build"
    subprocess.run([ROOT / "tools" / "make_deb.sh", build, target], check=True, stdout=subprocess.DEVNULL,
                   env={**os.environ, "DPKG_DEB_COMPRESSOR_LEVEL": "0"})  # good compression would take longest here
    return folder


class Server:
    """Runs the image's entry point and command in a network of its own."""

    def __init__(self, stage):
        self.said = tempfile.TemporaryFile(mode="w+")  # an unread pipe would fill and stop the server
        words = ["/usr/bin/env", "TESSERA_WITHOUT_KEY=yes", *stage.entry, *stage.command]
        self.process = subprocess.Popen(stage.inside(words, network=False), stdout=self.said,
                                        stderr=subprocess.STDOUT, text=True)

    def ask(self, path, body=None):
        data = [] if body is None else ["-H", "Content-Type: application/json", "-d", json.dumps(body)]
        return subprocess.run(["nsenter", "-t", str(self.process.pid), "-n", "curl", "-s", "--fail-with-body", "--max-time", "60", *data,
                               f"http://127.0.0.1:30000{path}"], capture_output=True, text=True, check=False)

    def wait(self):
        deadline = time.monotonic() + START_S
        while self.ask("/health").returncode != 0:
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the server did not start: {self.end()[1]}")
            time.sleep(0.2)

    def complete(self, **fields):
        name = json.loads(self.ask("/v1/models").stdout)["data"][0]["id"]
        answer = self.ask("/v1/completions", {"model": name, "prompt": "Once upon a time", "temperature": 0, **fields})
        assert answer.returncode == 0, (answer, self.end()[1])
        return json.loads(answer.stdout)["choices"][0]["text"]

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(60)
        finally:
            self.process.kill()  # does nothing if it has ended
            self.process.wait()
        self.said.seek(0)
        return self.process.returncode, self.said.read()


class Cases:
    def __init__(self, stage):
        self.stage = stage
        self.server = Server(stage)
        self.server.wait()

    def it_writes(self):
        assert len(self.server.complete(max_tokens=20)) > 20

    def constrained_output_is_built_in(self):
        text = self.server.complete(max_tokens=40, regex="(yes|no), (one|two)")
        assert text in ("yes, one", "yes, two", "no, one", "no, two"), text

    def it_does_not_serve_without_a_key(self):
        told = subprocess.run(self.stage.inside([*self.stage.entry, *self.stage.command], network=False), capture_output=True,
                              text=True, timeout=START_S, check=False)
        assert told.returncode == 2 and "has no key" in told.stderr, told

    def it_is_not_root(self):
        status = pathlib.Path(f"/proc/{self.server.process.pid}/status").read_text()
        uids = next(line for line in status.splitlines() if line.startswith("Uid:")).split()[1:]
        assert "0" not in uids, status

    def its_cache_is_its_own(self):
        told = subprocess.run(self.stage.inside(["/usr/bin/tessera", "cache", "info", "--json"]), capture_output=True, text=True,
                              check=False)
        assert told.returncode == 0 and "/var/cache/tessera" in told.stdout, told

    def it_can_tell_servers_by_their_certificates(self):
        assert (self.stage.root / "etc" / "ssl" / "certs" / "ca-certificates.crt").stat().st_size > 0

    def nothing_of_the_build_is_left(self):
        root = self.stage.root
        assert not (root / "src").exists() and not (root / "tmp" / "tessera.deb").exists()
        assert not list((root / "var" / "lib" / "apt" / "lists").iterdir())
        assert not shutil.which("c++", path=str(root / "usr" / "bin"))

    def it_ends_when_it_is_told(self):
        status, said = self.server.end()
        assert status == 0, (status, said)


def print_layers(stage):
    for instruction, size in stage.layers:
        print(f"{size / 1e6:8.1f} MB  {instruction[:100]}")
    print(f"{sum(size for _, size in stage.layers) / 1e6:8.1f} MB  all layers")


def read_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", type=pathlib.Path)
    parser.add_argument("--whole", action="store_true")
    parser.add_argument("--base", type=pathlib.Path)
    parser.add_argument("--bind", action="append", default=[])
    parser.add_argument("--env", action="append", default=[])
    arguments = parser.parse_args()
    if arguments.whole == (arguments.build is not None):
        parser.error("give a build's folder, or --whole")
    return arguments


def main():
    arguments = read_arguments()
    reason = why_not()
    if reason is not None:
        print(f"skipped: {reason}")
        return 77
    file = Containerfile(ROOT / "Containerfile", dict(pair.split("=", 1) for pair in arguments.env),
                         [pair.split(":", 1) for pair in arguments.bind])
    with tempfile.TemporaryDirectory() as scratch:
        folder = pathlib.Path(scratch)
        base = folder / "base"
        if arguments.base is None:
            reason = make_base(base)
            if reason is not None:
                print(f"skipped: {reason}")
                return 77
        else:
            subprocess.run(["cp", "-a", arguments.base, base], check=True)
        make_slim(base)
        given = {} if arguments.whole else {"build": make_package(arguments.build, folder / "package")}
        stages = file.build(folder, base, given)
        skipped = []
        if not arguments.whole and not (arguments.build / "third_party" / "xgrammar").exists():
            skipped = ["constrained_output_is_built_in"]
            print("skipped: this build has no constrained output")
        passed, failed = run_cases(Cases(stages[""]), skipped)
        print_layers(stages[""])
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
