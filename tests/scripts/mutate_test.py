"""scripts/mutate: what it builds and runs of a test, whether that is a program of ours or a script."""

import importlib.machinery
import importlib.util
import pathlib
import sys
import tempfile
import unittest

LOADER = importlib.machinery.SourceFileLoader("mutate", str(pathlib.Path(__file__).resolve().parents[2] / "scripts/mutate"))
mutate = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", LOADER))
sys.modules["mutate"] = mutate  # dataclasses look there
LOADER.exec_module(mutate)


class OfATest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="dtrun-mutate-")
        self.addCleanup(self.folder.cleanup)
        here = pathlib.Path(self.folder.name)
        mutate.AWAKE, mutate.BUILD, self.log, self.program = here / "awake", here, here / "log", here / "a_test"
        self.program.write_text('#!/bin/sh\necho "$@"\n')
        self.program.chmod(0o755)

    def ran(self, *command):
        test = mutate.Test(list(command), self.folder.name, 30)
        self.assertEqual(test.run(self.log)[0], 0)
        return test.targets(), self.log.read_text()

    def test_a_program_of_ours_is_built_and_ends_with_its_first_failure(self):
        self.assertEqual(self.ran(str(self.program), "x"), (["a_test"], "x --abort-after=1\n"))

    def test_a_script_gets_no_option_of_doctest_and_both_programs(self):
        self.assertEqual(self.ran("echo", "x"), (["dtrun", "dtrun-worker"], "x\n"))


if __name__ == "__main__":
    unittest.main()
