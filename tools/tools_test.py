#!/usr/bin/env python3
"""Tests of the Makefile and of check_layers.py, check_try.py, check_words.py, request_fields.py and install_deps.sh on
made-up inputs. Catches: a checker that misses a fault, a target that make cannot expand, and packages that are
installed without announcement."""

import os
import pathlib
import pty
import re
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parent.resolve()
sys.path.insert(0, str(TOOLS))

import check_try  # noqa: E402  (found through the path above)
import check_words  # noqa: E402  (found through the path above)
import request_fields  # noqa: E402  (found through the path above)


class CheckLayers(unittest.TestCase):
    def run_on(self, files, *flags):
        with tempfile.TemporaryDirectory() as root:
            for name, text in files.items():
                path = pathlib.Path(root) / "src" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            done = subprocess.run([sys.executable, TOOLS / "check_layers.py", *flags, root], capture_output=True,
                                  text=True, check=False)
            return done.returncode, done.stdout

    def test_good_tree_passes(self):
        status, output = self.run_on({
            "base/a.h": "#pragma once\n",
            "ir/CMakeLists.txt": "tessera_layer(ir\n  SRCS g.cpp\n  DEPS base\n  PRIVATE_DEPS fmt::fmt)\n",
            "ir/g.cpp": '#include <vector>\n#include "tessera/base/a.h"\n#include "tessera/ir/g.h"\n',
        })
        self.assertEqual((status, output), (0, "2 passed, 0 failed\n"))

    def test_upward_include_fails(self):
        status, output = self.run_on({"base/a.h": '#pragma once\n  #  include "tessera/ir/g.h"\n'})
        self.assertEqual(status, 1)
        self.assertIn("src/base/a.h:2: layer base includes ir, which is above it", output)
        self.assertTrue(output.endswith("0 passed, 1 failed\n"))

    def test_upward_include_of_a_test_fails(self):
        self.assertEqual(self.run_on({"device/cpu/a_test.cpp": '#include "tessera/ops/contract/op.h"\n'})[0], 1)

    def test_missing_dep_fails(self):
        status, output = self.run_on({
            "ops/CMakeLists.txt": "tessera_layer(ops SRCS op.cpp DEPS base  # not device\n PRIVATE_DEPS ir)\n",
            "ops/contract/op.cpp": '#include "tessera/base/a.h"\n#include "tessera/device/d.h"\n#include "tessera/ir/g.h"\n',
        })
        self.assertEqual(status, 1)
        self.assertIn("op.cpp:2: layer ops includes device: add it to DEPS", output)
        self.assertIn("op.cpp:3: layer ops includes ir", output)

    def test_long_file_and_unknown_folder_fail(self):
        self.assertEqual(self.run_on({"base/a.cpp": "\n" * 400})[0], 0)
        self.assertEqual(self.run_on({"base/a.cpp": "\n" * 401})[0], 1)
        self.assertEqual(self.run_on({"base/a.h": "", "../tests/a/b.py": "\n" * 401})[0], 1)
        self.assertEqual(self.run_on({"base/a.h": "", "helpers/a.h": ""})[0], 1)
        self.assertEqual(self.run_on({"base/a.txt": ""})[0], 1, "nothing looked at is no success")

    def test_a_cycle_between_rooms_fails(self):
        rows = {"ops/rows/blocks/a.h": '#include "tessera/ops/rows/a.h"\n', "ops/rows/a.h": '#include "tessera/ops/rows/blocks/a.h"\n',
                "ops/moe/a.h": '#include "tessera/ops/rows/a.h"\n', "ops/linear/a.h": '#include "tessera/ops/moe/a.h"\n'}
        self.assertEqual(self.run_on(rows)[0], 0, "a folder within a room is a part of it")
        status, output = self.run_on({**rows, "ops/rows/blocks/b.h": '#include "tessera/ops/linear/a.h"\n'})
        self.assertEqual((status, output.splitlines()[:2]),
                         (1, ["src/ops: room linear includes itself: linear → moe → rows → linear",
                              "src/ops: room moe includes itself: moe → rows → linear → moe"]))
        self.assertEqual(self.run_on({**rows, "ops/rows/b_test.cpp": '#include "tessera/ops/linear/a.h"\n'})[0], 0)

    def test_the_own_folder_of_ops_is_above_its_rooms(self):
        for layer, status in (("ops", 1), ("text", 0)):
            self.assertEqual(self.run_on({f"{layer}/a.h": f'#include "tessera/{layer}/b/a.h"\n',
                                          f"{layer}/b/a.h": f'#include "tessera/{layer}/a.h"\n'})[0], status, layer)

    def test_a_folder_with_too_many_sources_fails(self):
        sources = {f"base/room/a{i}.h": "" for i in range(60)}
        self.assertEqual(self.run_on({**sources, "base/a.h": "", "base/room/a.txt": ""})[0], 0)
        status, output = self.run_on({**sources, "base/room/b.cpp": ""})
        self.assertEqual((status, output.splitlines()[0]),
                         (1, "src/base/room: 61 sources: give some of them a room (at most 60)"))

    def test_rooms_have_their_size_and_what_their_sources_include(self):
        status, output = self.run_on({
            "base/a.h": "#pragma once\n",
            "ops/all.cpp": '#include "tessera/ops/rows/room.h"\n',
            "ops/rows/room.h": '#include "tessera/base/a.h"\n#include "tessera/ops/rows/norm.h"\n',
            "ops/rows/norm_test.cpp": '#include "tessera/ops/moe/room.h"\n',
        }, "--rooms")
        self.assertEqual((status, output.splitlines()), (0, ["ops: 3 files, 4 lines", "  .                1      1  rows",
                                                             "  rows             2      3"]))


class CheckTry(unittest.TestCase):
    def lines(self, text):
        return [line for line, _ in check_try.check(text)]

    def test_later_members_and_captures_are_faults(self):
        for text in ("P p{.a = T(), .b = TRY(f())};", "return P{T(), TRY(f())};", "v.push_back({a, g(1, TRY(f()))});",
                     "const T all[] = {TRY(f()), TRY(f())};", "P p{{}, {TRY(f())}};", "use([a, b = TRY(f())] { g(); });",
                     "f([&] { return 1; }, {a, TRY(f())});", "switch (a) { case 1: p = {a, TRY(f())}; }"):
            self.assertEqual(self.lines(text), [1], text)
        self.assertEqual(self.lines("// {a,\nP p{'{',  // TRY(\n    TRY(f())};\n"), [3])

    def test_a_try_within_new_is_a_fault(self):
        for text in ("return new P(TRY(f()));", "p.reset(new std::pair<A, B>{TRY(f())});"):
            self.assertEqual(self.lines(text), [1], text)

    def test_other_places_are_none(self):
        for text in ("P p{.a = TRY(f()), .b = T()};", "use(T(), TRY(f()));", "P p{use(a, TRY(f()))};",
                     "f(a, [&](int a, int b) { const int c = 1, d = TRY(f()); });", "P p{a, [] { return TRY(f()); }};",
                     "P p{a, b}; TRY(f());", "{ a, TRY(f()); }", 'P p{"{,", TRY};', "P p{a,\n#define Q TRY(f())\n};",
                     "const std::array<int, 2> p{TRY(f())};", "auto p = std::make_unique<P>(a, TRY(f()));"):
            self.assertEqual(self.lines(text), [], text)

    def test_faults_fail_with_file_and_line(self):
        with tempfile.TemporaryDirectory() as root:
            source = pathlib.Path(root) / "src" / "a.cpp"
            source.parent.mkdir()
            for text, expected in (("P p{a};\n", (0, "1 passed, 0 failed\n")),
                                   ("\nP p{a, TRY(b)};\n", (1, f"src/a.cpp:2: {check_try.FAULTS['{']}\n0 passed, 1 failed\n"))):
                source.write_text(text)
                done = subprocess.run([sys.executable, TOOLS / "check_try.py", root], capture_output=True, text=True,
                                      check=False)
                self.assertEqual((done.returncode, done.stdout), expected)


class CheckWords(unittest.TestCase):
    def faults(self, line, before="", path="src/base/a.h"):
        return list(check_words.faults_of(path, line, before))

    def test_openings_of_comments_are_faults(self):
        for line in ("// Of each rank.", "int a;  // None: the default.", "  // The same, of two.", "/// As above."):
            self.assertEqual(len(self.faults(line)), 1, line)
        self.assertEqual(len(self.faults("x = 1  #" + " Those of a rank.", path="tools/a.py")), 1)
        for line in ("int a;  // of each rank", "f();  // such as b"):
            self.assertEqual(len(self.faults(line)), 1, line)
        self.assertEqual(self.faults("// of each rank"), [], "a name or a formula may begin a line in lower case")
        for line in ("// Offsets of each rank.", "// The samples.", 'url("http://That.example")', "int That;"):
            self.assertEqual(self.faults(line), [], line)
        self.assertEqual(self.faults("# As a heading.", path="docs/a.md"), [])

    def test_a_sentence_may_go_on_with_such_a_word(self):
        self.assertEqual(self.faults("// That one comes first.", before="// It is the name of"), [])
        self.assertEqual(len(self.faults("// That one comes first.", before="// It is a name.")), 1)
        self.assertEqual(len(self.faults("// That one comes first.", before="int a;  // a name of")), 1)

    def test_names_of_tests_have_nine_words(self):
        self.assertEqual(check_words.words_of("ANamedCall_of2BytesInGB"), ["A", "Named", "Call", "of", "2", "Bytes", "In", "GB"])
        self.assertEqual(self.faults("TEST(A, OneTwoThreeFourFiveSixSevenEightNine) {"), [])
        self.assertEqual(len(self.faults("TEST_F(A, OneTwoThreeFourFiveSixSevenEightNineTen) {")), 1)
        self.assertEqual(len(self.faults("  def test_a_b_c_d_e_f_g_h_i_j(self):", path="tests/a.py")), 1)
        self.assertEqual(self.faults("  def test_a_b_c_d_e_f_g_h_i(self):", path="tests/a.py"), [])

    def test_only_added_lines_are_looked_at(self):
        with tempfile.TemporaryDirectory() as root:
            def git(*words):
                subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", root, *words], check=True,
                               capture_output=True)

            def check():
                done = subprocess.run([sys.executable, TOOLS / "check_words.py", "auto", root], capture_output=True,
                                      text=True, check=False)
                return done.returncode, done.stdout

            source = pathlib.Path(root) / "a.cpp"
            git("init", "-q")
            source.write_text("// Of old.\n")
            git("add", ".")
            git("commit", "-qm", "one")
            self.assertEqual(check(), (0, 'words are not checked: git has no history back to "auto"\n'))
            source.write_text("// Of old.\nint a;\n")
            git("commit", "-qam", "two")
            self.assertEqual(check(), (0, "1 lines looked at, 0 faults\n"))
            source.write_text("// Of old.\nint a;\n// Such as new.\n")
            git("commit", "-qam", "three")
            status, output = check()
            self.assertEqual(status, 1)
            self.assertIn('a.cpp:3: a comment begins with "Such"', output)


class Makefile(unittest.TestCase):
    ROOT = TOOLS.parent

    def test_every_target_expands_and_is_explained(self):
        text = (self.ROOT / "Makefile").read_text()
        targets = re.search(r"^\.PHONY: (.*)$", text, re.MULTILINE).group(1).split()
        rules = " ".join(re.findall(r"^([a-z][a-z -]*):(?! [A-Z_]+ = )(?!=)", text, re.MULTILINE)).split()
        self.assertEqual(sorted(targets), sorted(rules))
        for target in targets:
            done = subprocess.run(["make", "--dry-run", target], cwd=self.ROOT, capture_output=True, text=True, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), target)
            self.assertTrue(target == "help" or f"\n# make {target} " in "\n" + text, f"{target} has no line of help")

    def test_what_is_shipped_has_optimised_kernels(self):
        for target, options in (("dist", ()), ("wheel", ()), ("install", ()), ("build-cuda", ("CUDA_OPTIMISE=OFF",))):
            done = subprocess.run(["make", "--dry-run", target, *options], cwd=self.ROOT, capture_output=True, text=True, check=True)
            wanted = "OFF" if options else "ON"
            self.assertIn(f"-DTESSERA_CUDA_OPTIMISE={wanted}", done.stdout, target)

    def make_test_cuda(self, environment, tools=()):
        """Runs `make test-cuda` with a fake cmake, which only prints that it ran, and with the fake tools `tools`, a list
        of (name, script). Returns status and output."""
        with tempfile.TemporaryDirectory() as folder:
            for name, script in (("cmake", "echo cmake has run; exit 1\n"), *tools):
                path = pathlib.Path(folder) / name
                path.write_text("#!/bin/sh\n" + script)
                path.chmod(0o755)
            variables = os.environ | {"PATH": f"{folder}:{os.environ['PATH']}", "DEPS": "skip"} | environment
            done = subprocess.run(["make", "test-cuda"], cwd=self.ROOT, env=variables, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False)
            return done.returncode, done.stdout

    def test_the_gpu_is_looked_for_before_anything_is_built(self):
        no_gpu = ("nvidia-smi", "echo No devices were found\n")
        if not list(pathlib.Path("/dev").glob("nvidia[0-9]*")):
            status, output = self.make_test_cuda({"DEVICE": "cuda:1"}, [no_gpu])
            self.assertNotEqual(status, 0)
            self.assertIn("DEVICE is cuda:1, and there is no NVIDIA GPU; DEVICE=cpu runs", output)
            self.assertNotIn("cmake has run", output)
        self.assertIn("cmake has run", self.make_test_cuda({"DEVICE": "cpu"}, [no_gpu])[1])
        gpu = ("nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-0)'\n")
        self.assertIn("cmake has run", self.make_test_cuda({}, [gpu])[1])

    def test_the_archive_is_named_after_the_version(self):
        output = subprocess.run(["make", "--dry-run", "dist"], cwd=self.ROOT, capture_output=True, text=True, check=True).stdout
        self.assertRegex(output, r"build/tessera-\d+\.\d+\.\d+\.tar\.xz")


class InstallDeps(unittest.TestCase):
    """Runs install_deps.sh with a fake apt-get and dpkg-query, which only record their arguments."""

    def run_with(self, environment, installed, answer=None, what=()):
        """Returns exit status, output and the calls of apt-get. `answer` is typed on a terminal; if it is None, there is
        no terminal."""
        with tempfile.TemporaryDirectory() as folder:
            calls = pathlib.Path(folder) / "calls"
            calls.touch()
            for name, script in (("apt-get", f'echo "apt-get $*" | tee -a "{calls}"\n'), ("sudo", '"$@"\n'),
                                 ("dpkg-query", f"printf {'installed' if installed else 'not-installed'}\n")):
                path = pathlib.Path(folder) / name
                path.write_text("#!/bin/sh\n" + script)
                path.chmod(0o755)
            variables = {key: value for key, value in os.environ.items() if key not in ("CI", "DEPS")}
            variables |= {"PATH": f"{folder}:{os.environ['PATH']}"} | environment
            ours, terminal = pty.openpty() if answer is not None else (None, subprocess.DEVNULL)
            if answer is not None:
                os.write(ours, answer.encode())
            done = subprocess.run([TOOLS / "install_deps.sh", *what], env=variables, stdin=terminal, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, text=True, check=False, timeout=30)
            for end in (ours, terminal) if answer is not None else ():
                os.close(end)
            return done.returncode, done.stdout, calls.read_text()

    def setUp(self):
        if not re.search("^ID=debian$", pathlib.Path("/etc/os-release").read_text(), re.MULTILINE):
            self.skipTest("this is not Debian")

    def test_says_what_before_it_installs(self):
        for environment in ({}, {"CI": "true"}):
            status, output, calls = self.run_with(environment, installed=False)
            self.assertEqual(status, 0, output)
            self.assertIn("libdnnl-dev", calls)
            self.assertLess(output.index("To be installed from Debian"), output.index("apt-get update"))
            self.assertLess(output.index("  libdnnl-dev\n"), output.index("apt-get update"))

    def test_a_build_needs_no_tests_packages(self):
        both = self.run_with({}, installed=False)[2]
        built = self.run_with({}, installed=False, what=["build"])[2]
        for calls, has in ((both, True), (built, False)):
            self.assertIn("libdnnl-dev", calls)
            self.assertEqual("chromium" in calls, has, calls)
        self.assertEqual(self.run_with({}, installed=False, what=["biuld"])[::2], (2, ""))

    def test_installs_nothing_that_is_there(self):
        self.assertEqual(self.run_with({}, installed=True)[::2], (0, ""))

    def test_skipping_installs_nothing(self):
        status, output, calls = self.run_with({"DEPS": "skip"}, installed=False)
        self.assertEqual((status, calls), (0, ""))
        self.assertIn("DEPS=skip", output)
        self.assertEqual(self.run_with({"DEPS": "maybe"}, installed=False)[::2], (2, ""))

    def test_asks_on_a_terminal_unless_in_ci(self):
        self.assertEqual(self.run_with({}, installed=False, answer="n\n")[::2], (1, ""))
        self.assertEqual(self.run_with({}, installed=False, answer="\n")[::2], (1, ""))
        self.assertIn("install", self.run_with({}, installed=False, answer="y\n")[2])
        self.assertIn("install", self.run_with({"CI": "true"}, installed=False, answer="n\n")[2])


class RequestFields(unittest.TestCase):
    SOURCE = """
class Base(BaseModel):
    field_names: ClassVar[set] = None
    _private: int = 1
    model: str
class Request(Base):
    stop: list[str] = []
    def f(self): local: int = 3
class Other(BaseModel):
    other: int
"""
    DATA = {"versions": {"openai": "1.0"}, "fields": [
        {"name": "model", "on": {"chat": "openai vllm", "tokenize": "vllm", "other": ""}, "treatment": "served", "try": 1},
        {"name": "best_of", "on": {"chat": ""}, "treatment": "checked", "remark": "a|b", "accepted": [1], "try": 1},
        {"name": "audio", "on": {"chat": "openai"}, "treatment": "refused", "accepted": [False], "try": 1}]}

    def test_fields_are_the_classes_public_members(self):
        self.assertEqual(request_fields.class_fields(self.SOURCE, ["Base", "Request"]), {"model", "stop"})
        with self.assertRaisesRegex(LookupError, "no class Nothing"):
            request_fields.class_fields(self.SOURCE, ["Base", "Nothing"])

    def test_differences_are_named_both_ways(self):
        known = {("chat", "model"): {"openai"}, ("chat", "audio"): {"openai"}, ("chat", "new"): {"vllm"}}
        self.assertEqual(request_fields.differences(self.DATA, known),
                         ["chat: vllm has no model, and the file says it has",
                          "chat: vllm has new, and the file does not say so",
                          "tokenize: vllm has no model, and the file says it has"])

    def test_the_table_has_every_row_and_is_reproducible(self):
        document = f"a\n{request_fields.BEGIN}\nold\n{request_fields.END}\nb\n"
        made = request_fields.with_table(document, self.DATA)
        self.assertIn("| `model` | chat: OpenAI, vLLM; tokenize: vLLM; other: – |  |", made)
        self.assertIn("| `best_of` | chat: – | a\\|b |", made)
        self.assertIn("| `audio` | chat: OpenAI | accepted: `false` |", made)
        self.assertNotIn("old", made)
        self.assertEqual(request_fields.with_table(made, self.DATA), made)


if __name__ == "__main__":
    result = unittest.main(exit=False, testRunner=unittest.TextTestRunner(stream=sys.stdout)).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
