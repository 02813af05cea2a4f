"""What CI rests on: .ci/run builds and tests a clone as a newcomer makes it, and scripts/test runs the entries of a tier. With
small projects in the place of dtrun's own tests."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts/lib"), str(ROOT / "tests/support")]
import cases
import test_entries

PRESETS = """{ "version": 3,
  "configurePresets": [{ "name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release" }],
  "buildPresets": [{ "name": "release", "configurePreset": "release" }] }
"""
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(small NONE)
enable_testing()
foreach(entry one two long_one)
  add_test(NAME ${entry} COMMAND sh -c "echo run >> ${entry}.runs; echo ${entry} says $(cat ${entry}); exit $(cat ${entry})"
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
endforeach()
set_tests_properties(one two PROPERTIES LABELS "unit;default")
set_tests_properties(long_one PROPERTIES LABELS "unit;long")
"""


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "a folder"
        (self.folder / "scripts").mkdir(parents=True)

    def script(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    def run_in(self, *words):
        done = subprocess.run([self.folder / words[0], *words[1:]], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                                   "GIT_COMMITTER_EMAIL": "a@b"})
        return done.returncode, done.stdout


class TestCommandTest(Case):
    """scripts/test, which runs a project of four entries."""

    def setUp(self):
        super().setUp()
        for name in ("test", "common.sh", "lib/test_entries.py"):
            (self.folder / "scripts/lib").mkdir(exist_ok=True)
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts" / name)
        self.script("scripts/setup", "exit 0")
        (self.folder / "CMakePresets.json").write_text(PRESETS)
        (self.folder / "CMakeLists.txt").write_text(PROJECT)

    def run_with(self, *options, failing=()):
        for name in ("one", "two", "long_one"):
            (self.folder / name).write_text("1\n" if name in failing else "0\n")
        return self.run_in("scripts/test", "--quick", *options)

    def test_a_failure_is_no_matter_of_chance(self):
        code, said = self.run_with(failing=["two"])
        self.assertEqual(code, 1, said)
        repeated = said[said.rindex("tests failed out of"):]
        self.assertIn("   two says 1\n", repeated[repeated.index("-- two\n"):])
        self.assertNotIn("-- one\n", repeated)
        self.assertIn("dtrun: failed: release\n", repeated)
        self.assertEqual((self.folder / "two.runs").read_text(), "run\n")

    def test_the_default_tier_runs_and_what_an_option_names_of_any(self):
        code, said = self.run_with(failing=["long_one"])
        self.assertEqual(code, 0, said)
        self.assertIn("100% tests passed, 0 tests failed out of 2", said)
        code, said = self.run_with("-R", "long", failing=["long_one"])
        self.assertEqual(code, 1, said)
        self.assertIn("0% tests passed, 1 tests failed out of 1", said)

    def test_what_excludes_each_other_is_refused(self):
        code, said = self.run_with("--all")
        self.assertEqual(code, 64, said)


class EntriesTest(unittest.TestCase):
    ENTRIES = [("agent_stop", {"proc", "default"}), ("agent_core_decide", {"unit", "default"}), ("e2e_nodes", {"net", "default"}),
               ("e2e_nodes_long", {"net", "long"}), ("e2e_ssh_ends_long", {"net", "long"}), ("package_roots", {"package", "long"})]

    def selected(self, tier, *changed):
        return test_entries.selected(self.ENTRIES, tier, changed)

    def test_tiers(self):
        self.assertEqual(self.selected("default"), ["agent_stop", "agent_core_decide", "e2e_nodes"])
        self.assertEqual(self.selected("all"), [name for name, _ in self.ENTRIES])
        self.assertEqual(self.selected("clock"), ["agent_stop", "e2e_nodes"])

    def test_a_long_entry_runs_if_what_it_rests_on_has_changed(self):
        def long_ones(*changed):
            return self.selected("changed", *changed)[3:]
        self.assertEqual(long_ones(), [])
        self.assertEqual(long_ones("docs/cli.md", "tests/support/process.cc"), [])
        self.assertEqual(long_ones("package/sbom.cmake"), ["package_roots"])
        self.assertEqual(long_ones("tests/e2e/nodes_test.cc"), ["e2e_nodes_long"])
        self.assertEqual(long_ones("tests/e2e/ssh/ssh_hosts.cc"), ["e2e_ssh_ends_long"])
        self.assertEqual(long_ones("tests/e2e/hosts.cc"), ["e2e_nodes_long", "e2e_ssh_ends_long"])
        self.assertEqual(long_ones("cmd/hosts/hostfile.cc"), ["e2e_ssh_ends_long"])

    def test_what_is_built_only_where_it_has_changed(self):
        self.assertEqual(test_entries.main(["rests", "package_", "docs/cli.md", "cmd/install.cmake"]), 0)
        self.assertEqual(test_entries.main(["rests", "package_", "worker/device/cuda/lane.cc"]), 1)
        self.assertEqual(test_entries.main(["rests", "worker_device_cuda", "tests/worker/device/cuda/lane_test.cc"]), 0)
        self.assertEqual(test_entries.main(["rests", "worker_device_cuda"]), 1)

    def test_each_row_of_the_table_names_paths_that_are_there(self):
        tracked = subprocess.run(["git", "-C", ROOT, "ls-files"], capture_output=True, text=True).stdout.split()
        if not tracked:
            self.skipTest("needs a checkout")
        for paths, _ in test_entries.INPUTS:
            for path in re.sub(r"\((.*?)\)", lambda found: found[1].split("|")[0], paths).split("|"):
                self.assertTrue(any(re.match(path, name) for name in tracked), path)

    def test_the_report(self):
        costs = [f"release: entry_{i} {i}.5 {2 * i} 0" for i in range(300)]
        lines, is_fair = test_entries.report(costs)
        self.assertEqual(lines[1].split(), ["299.5", "598.0", "release:", "entry_299"])
        self.assertEqual(len(lines), 11)
        self.assertTrue(is_fair)
        starved = [line[:-1] + "1" for line in costs[:4]]
        lines, is_fair = test_entries.report(starved[:3] + costs[3:])
        self.assertIn("entry_2", lines[-1])
        self.assertTrue(is_fair)
        self.assertFalse(test_entries.report(starved + costs[4:])[1])


class CloneTest(Case):
    def setUp(self):
        if not shutil.which("git"):
            self.skipTest("needs git")
        super().setUp()
        (self.folder / ".ci").mkdir()
        shutil.copy(ROOT / ".ci/run", self.folder / ".ci/run")
        (self.folder / ".gitignore").write_text("/build/\n")
        self.git("init", "-q")

    def git(self, *words):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", self.folder, *words], check=True)

    def commit(self, code):
        self.script("scripts/test", f'cd "$(dirname "$0")/.."; echo "in $PWD, CI=$CI, $*"; ls; exit {code}')
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a commit")

    def test_the_commit_is_tested_in_a_clone_called_dtrun_below_a_folder_with_a_space(self):
        self.commit(3)
        (self.folder / "forgotten").touch()
        code, said = self.run_in(".ci/run")
        self.assertEqual(code, 3, said)
        self.assertIn(f"in {self.folder}/build/a folder/dtrun, CI=true, --changed\n", said)
        self.assertNotIn("forgotten", said)
        self.git("add", "-A")
        self.commit(0)
        (self.folder / "build/a folder/dtrun/build").mkdir()
        self.git("checkout", "-q", "--detach")
        code, said = self.run_in(".ci/run")
        self.assertEqual(code, 0, said)
        self.assertIn("forgotten", said)
        self.assertIn("build", said.split())  # what was built there stays

    def test_another_users_checkout_is_tested_too(self):
        if os.geteuid() != 0:
            self.skipTest("needs root")
        self.commit(0)
        for path in [self.folder, *self.folder.rglob("*")]:
            os.chown(path, 65534, 65534, follow_symlinks=False)
        code, said = self.run_in(".ci/run")
        self.assertEqual(code, 0, said)


if __name__ == "__main__":
    cases.run()
