#!/usr/bin/env python3
"""Tests of run_tests.py on made-up test programs. Catches: a count that hides a crash, an empty program, a failed script or
a skipped test; a quick run that leaves out more or less than its list says, and a list that names cases that are gone."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOLS = pathlib.Path(__file__).parent.resolve()
sys.path.insert(0, str(TOOLS))

import run_tests  # noqa: E402  (found through the path above)


class RunTests(unittest.TestCase):
    """Runs ctest on programs that the tests write."""

    def run_on(self, tests, known_skips=None, slow_cases=None, more=()):
        """tests: name → (script, properties of the test). `more`: further arguments. Returns exit status and the output's
        lines."""
        with tempfile.TemporaryDirectory() as build:
            lines = []
            for name, (script, properties) in tests.items():
                path = pathlib.Path(build) / name
                path.write_text("#!/bin/sh\n" + script)
                path.chmod(0o755)
                lines.append(f'add_test({name} "{path}")\nset_tests_properties({name} PROPERTIES {properties or "TIMEOUT 20"})\n')
            (pathlib.Path(build) / "CTestTestfile.cmake").write_text("".join(lines))
            flags = []
            if known_skips is not None:
                flags = ["--known-skips", pathlib.Path(build) / "known_skips.txt"]
                flags[1].write_text(known_skips)
            if slow_cases is not None:
                slow = pathlib.Path(build) / "slow_cases.txt"
                slow.write_text(slow_cases)
                flags += ["--slow-cases", slow]
            done = subprocess.run([sys.executable, TOOLS / "run_tests.py", *flags, build, *more], capture_output=True, text=True,
                                  check=False)
            return done.returncode, (done.stderr + done.stdout).rstrip("\n").split("\n")

    @staticmethod
    def report(name, cases):
        return f"cat > test-results/{name}.xml <<'E'\n<testsuites><testsuite>{cases}</testsuite></testsuites>\nE\n"

    PASSED = '<testcase classname="A" name="ok" status="run" result="completed"/>'
    FAILED = '<testcase classname="A" name="bad" status="run"><failure message="x.cpp:3&#10;1 is not 2"/></testcase>'
    SKIPPED = '<testcase classname="A" name="rest" status="run"><skipped message="x.cpp:4&#10;no GPU here"/></testcase>'

    def test_counts_cases(self):
        status, lines = self.run_on({
            "a_test": (self.report("a_test", self.PASSED * 3 + self.SKIPPED), ""),
            "one_script": ("echo done\n", ""),
            "two_script": ("echo 4 passed, 0 failed\n", ""),
            "three_script": ("echo no model; exit 77\n", "SKIP_RETURN_CODE 77"),
        })
        self.assertEqual(status, 0, lines)
        self.assertEqual(lines[-1], "8 passed, 0 failed")
        self.assertIn("  a_test: A.rest: no GPU here", lines)
        self.assertIn("  three_script: no model", lines)

    def test_failed_case_and_script(self):
        status, lines = self.run_on({
            "a_test": (self.report("a_test", self.PASSED + self.FAILED) + "exit 1\n", ""),
            "b_script": ("echo 2 passed, 3 failed\nexit 1\n", ""),
            "c_script": ("echo broken\nexit 1\n", ""),
        })
        self.assertEqual((status, lines[-1]), (1, "3 passed, 5 failed"))
        self.assertIn("1 is not 2", "\n".join(lines))
        self.assertIn("  c_script: broken", lines)

    def test_skips_fail_unless_they_are_listed(self):
        tests = {
            "a_test": (self.report("a_test", self.PASSED + self.SKIPPED), ""),
            "b_script": ("seq 2000\necho skipped: Case.one, which needs more\necho 4 passed, 0 failed\n", ""),
            "c_script": ("echo no model; exit 77\n", "SKIP_RETURN_CODE 77"),
        }
        status, lines = self.run_on(tests, "# A comment\n\na_test: A.*: no GPU here # no GPU\nb_script: Case.one* # needs more\n"
                                           "c_script: no model # because\n")
        self.assertEqual((status, lines[-1]), (0, "5 passed, 0 failed"))
        status, lines = self.run_on(tests, "a_test: A.other* # no GPU\nc_script: no model # because\n")
        self.assertEqual((status, lines[-1]), (1, "5 passed, 2 failed"))
        self.assertIn("  a_test: A.rest: no GPU here (skipped, and not on the list of known skips)", lines)
        self.assertIn("  b_script: Case.one, which needs more (skipped, and not on the list of known skips)", lines)
        self.assertIn("  c_script: no model", lines)
        self.assertEqual(self.run_on(tests)[0], 0, "skips are failures only where there is a list")

    def test_a_list_of_skips_has_reasons(self):
        status, lines = self.run_on({"b_script": ("exit 0\n", "")}, "a_test: *\n")
        self.assertEqual(status, 1)
        self.assertIn("known_skips.txt:1: no reason", lines[-1])

    def test_a_quick_run_leaves_out_what_is_listed(self):
        tests = {
            "a_test": (self.report("a_test", self.PASSED) + 'echo "filter: $GTEST_FILTER"\nexit 1\n', ""),
            "b_test": (self.report("b_test", self.PASSED), ""),
            "b_script": ("exit 1\n", ""),
        }
        listed = "# A comment\n\na_test: A.slow/* # 1.5\na_test: B.* # 20\nb_script: * # 3\n"
        status, lines = self.run_on(tests, slow_cases=listed, more=["--quick"])
        self.assertEqual((status, lines[-1]), (1, "2 passed, 1 failed"))
        self.assertIn("filter: -A.slow/*:B.*", "\n".join(lines))
        self.assertIn("  a_test: failed although every case passed (its output is above)", lines)
        status, lines = self.run_on({"a_test": (self.report("a_test", self.PASSED), "")}, more=["--quick"])
        self.assertEqual(status, 2)
        self.assertIn("--quick leaves out what --slow-cases lists, and no list is given", lines[-1])

    def test_a_list_of_slow_cases_names_existing_ones(self):
        tests = {
            "a_test": (self.report("a_test", self.PASSED), ""),
            "b_test": (self.report("b_test", self.PASSED.replace('"A"', '"B"')), ""),
            "c_script": ("exit 0\n", ""),
        }
        good = "a_test: A.* # 1\nb_test: * # 2.5\nc_script: * # 3\n"
        status, lines = self.run_on(tests, slow_cases=good)
        self.assertEqual((status, lines[-1]), (0, "3 passed, 0 failed"))
        for line, fault in (
            ("a_test: A.gone # 1", "a_test: A.gone: on the list of slow cases, but no case has such a name"),
            ("a_test: *.ok # 1", "a_test: *.ok: on the list of slow cases, but b_test has such a case too"),
            ("d_test: * # 1", "d_test: on the list of slow cases, but there is no such program"),
        ):
            status, lines = self.run_on(tests, slow_cases=good + line + "\n")
            self.assertEqual((status, lines[-1]), (1, "3 passed, 1 failed"))
            self.assertIn("  " + fault, lines)
        self.assertEqual(self.run_on(tests, slow_cases="d_test: * # 1\n", more=["-R", "a_test"])[0], 0, "not all ran")

    def test_a_list_of_slow_cases_has_times(self):
        for line in ("a_test: A.*", "a_test A.* # 1", "a_test: -A.* # 1", "a_test: A.*:B.* # 1", "a_test: A.* # long"):
            status, lines = self.run_on({"a_test": (self.report("a_test", self.PASSED), "")}, slow_cases=line + "\n")
            self.assertEqual(status, 1)
            self.assertIn(f"slow_cases.txt:1: {line!r} is not PROGRAM: PATTERN # SECONDS", lines[-1])

    def test_crash_timeout_and_silence_are_failures(self):
        for script, properties in (
            ("kill -SEGV $$\n", ""),
            ("sleep 30\n", "TIMEOUT 1"),
            ("exit 0\n", ""),  # no report
            (self.report("a_test", self.PASSED) + "kill -ABRT $$\n", ""),  # dies after its cases
            (self.report("a_test", ""), ""),  # no case
            ("printf '<testsuites><testsuite>' > test-results/a_test.xml\n", ""),  # a truncated report
        ):
            status, lines = self.run_on({"a_test": (script, properties), "b_script": ("exit 0\n", "")})
            self.assertEqual(status, 1, script)
            self.assertRegex(lines[-1], r"^[12] passed, 1 failed$", script)

    def test_nothing_to_run_is_a_failure(self):
        status, lines = self.run_on({})
        self.assertEqual((status, lines[-1]), (1, "0 passed, 1 failed"))

    def test_cause_of_a_crash_is_named(self):
        tally = run_tests.Tally()
        run_tests.count_script("x_script", "first\nthe reason\n", False, tally)
        self.assertEqual(tally.failed, ["x_script: the reason"])


if __name__ == "__main__":
    result = unittest.main(exit=False, testRunner=unittest.TextTestRunner(stream=sys.stdout)).result
    bad = len(result.failures) + len(result.errors)
    print(f"{result.testsRun - bad} passed, {bad} failed")
    sys.exit(1 if bad else 0)
