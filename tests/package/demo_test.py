"""The README's first command where nothing is installed: scripts/demo in a bare system of each Debian, from a copy of what lies
here, at the same path. Only ccache is there before, with this machine's cache, where it has one: what was compiled once with
the same compiler is not compiled again.

  demo_test.py BUILD [unittest options…]
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

from bare_roots import NoRoots, new_root, run_inside
from packing import JOB, ROOT, need
import cases

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
PLACE = ROOT.relative_to("/")  # ccache knows files at other paths only if those have no space
APT = ("apt-get", "-y", "-q", "--no-install-recommends")


def copy_of_sources(folder):
    """What a clone of this folder would have, changes that are not committed included."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-coz", "--exclude-standard"], capture_output=True, text=True)
    if listed.returncode != 0:
        raise unittest.SkipTest(f"needs git, and its folder: {listed.stderr.strip()}")
    for name in listed.stdout.split("\0"):
        if name and (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)


def compilers_cache():
    """The folder of this machine's ccache and its settings that matter to who shares it; nothing where it has none."""
    if not shutil.which("ccache"):
        return (), {}
    folder, size = (need("ccache", "--get-config", name).strip() for name in ("cache_dir", "max_size"))
    pathlib.Path(folder).mkdir(parents=True, exist_ok=True)
    # The language of messages is part of what it looks for, and a variable that is empty is not one that is not set.
    words = {name: value for name, value in os.environ.items() if name == "LANG" or name.startswith("LC_")}
    return (folder, "/root/.cache/ccache"), {"CCACHE_MAXSIZE": size, "LC_ALL": None, **words}


class DemoTest(unittest.TestCase):
    def check_in(self, suite):
        root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(prefix="dtrun-demo-test-")))
        try:
            new_root(suite, BUILD, root)
        except NoRoots as reason:
            self.skipTest(str(reason))
        copy_of_sources(root / PLACE)
        seen, variables = compilers_cache()
        if seen:
            self.inside(root, *APT, "update")
            self.inside(root, *APT, "install", "ccache")
        # It fills the gaps that tests leave which wait; those that look at the clock go first.
        said = self.inside(root, "nice", "-n", "10", f"/{PLACE}/scripts/demo", *JOB, seen=seen, **variables)
        self.assertIn("done: 20 steps", said)
        self.assertTrue((root / PLACE / "runs/fashion_mnist/model.safetensors").is_file(), said)
        again = self.inside(root, f"/{PLACE}/scripts/demo", *JOB, seen=seen, **variables)
        self.assertIn("this one goes to runs/fashion_mnist-2", again)
        self.assertNotIn("installing", again)
        self.inside(root, "cmake", "--install", f"/{PLACE}/build/release", "--prefix", "/opt/dtrun")
        self.assertIn("usage", self.inside(root, "/opt/dtrun/bin/dtrun", "-h").lower())

    def inside(self, root, *words, **how):
        code, said = run_inside(root, *words, **how)
        self.assertEqual(code, 0, said)
        return said

    def test_in_debian_12(self):
        self.check_in("bookworm")

    def test_in_debian_13(self):
        self.check_in("trixie")


if __name__ == "__main__":
    cases.run()
