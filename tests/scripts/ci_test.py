"""What CI rests on: .ci/run builds and tests a clone as a newcomer makes it, and scripts/test tries only tests with a clock
again, and keeps their names. With small projects in the place of dtrun's own tests."""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
EXIT_SKIPPED = 77

PRESETS = """{ "version": 3,
  "configurePresets": [{ "name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/release" }],
  "buildPresets": [{ "name": "release", "configurePreset": "release" }] }
"""
PROJECT = """cmake_minimum_required(VERSION 3.22)
project(small NONE)
enable_testing()
# Fails until it has run as often as its file says.
foreach(entry slow:busy net:late unit:wrong slow:always)
  string(REPLACE ":" ";" entry ${entry})
  list(GET entry 0 label)
  list(GET entry 1 name)
  add_test(NAME ${name} COMMAND sh -c "left=$(cat ${name}); echo ${name} has $left left; echo $((left - 1)) > ${name}; [ $left -le 0 ]"
           WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS ${label})
endforeach()
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


class TriedAgainTest(Case):
    def setUp(self):
        super().setUp()
        for name in ("test", "common.sh"):
            shutil.copy(ROOT / "scripts" / name, self.folder / "scripts")
        self.script("scripts/setup", "exit 0")
        (self.folder / "CMakePresets.json").write_text(PRESETS)
        (self.folder / "CMakeLists.txt").write_text(PROJECT)

    def run_with(self, **failures):
        for name in ("busy", "late", "wrong", "always"):
            (self.folder / name).write_text(f"{failures.get(name, 0)}\n")
        return self.run_in("scripts/test", "--quick")

    def kept(self):
        path = self.folder / "build/release/passed-alone.txt"
        return [line.split()[1] for line in path.read_text().splitlines()] if path.exists() else []

    def test_what_has_a_clock_and_passes_alone_is_named_counted_and_kept(self):
        code, said = self.run_with(busy=1, late=1)
        self.assertEqual(code, 0, said)
        self.assertIn("passed alone only: busy, 1 times so far", said)
        self.assertEqual(sorted(self.kept()), ["busy", "late"])
        code, said = self.run_with(busy=1)
        self.assertEqual(code, 0, said)
        self.assertIn("passed alone only: busy, 2 times so far", said)
        summary = said[said.rindex("passed alone only"):]
        self.assertIn("100% tests passed, 0 tests failed out of 1", summary)  # the last words are ctest's

    def test_what_fails_alone_too_fails_the_run(self):
        code, said = self.run_with(busy=1, always=2)
        self.assertEqual(code, 1, said)
        self.assertEqual(self.kept(), [])

    def test_what_has_no_clock_is_not_tried_again(self):
        code, said = self.run_with(busy=1, wrong=1)
        self.assertEqual(code, 1, said)
        self.assertIn("not tried again, since no clock is in it: wrong", said)
        repeated = said[said.rindex("tests failed out of"):]
        self.assertIn("-- busy\n", repeated)
        self.assertIn("   wrong has 1 left\n", repeated[repeated.index("-- wrong\n"):])
        self.assertEqual((self.folder / "busy").read_text(), "0\n")
        self.assertEqual(self.kept(), [])


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
        self.script("scripts/test", f'cd "$(dirname "$0")/.."; echo "in $PWD, CI=$CI"; ls; exit {code}')
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a commit")

    def test_the_commit_is_tested_in_a_clone_called_dtrun_below_a_folder_with_a_space(self):
        self.commit(3)
        (self.folder / "forgotten").touch()
        code, said = self.run_in(".ci/run")
        self.assertEqual(code, 3, said)
        self.assertIn(f"in {self.folder}/build/a folder/dtrun, CI=true\n", said)
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
    result = unittest.main(exit=False).result
    sys.exit(1 if not result.wasSuccessful() else EXIT_SKIPPED if result.skipped else 0)
