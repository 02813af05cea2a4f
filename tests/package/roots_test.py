"""The archive, the Debian package and the wheel in systems that have nothing else: unpacked and installed there, they train to
the same bits as the build. Needs root, debootstrap and the distribution's mirror; without them it is skipped (exit code 77).

  roots_test.py BUILD [unittest options…]
"""

import concurrent.futures
import pathlib
import shutil
import sys
import tempfile
import unittest

from bare_roots import NoRoots, new_root, run_inside, suites
from packing import DATA, EXIT_NO_INPUT, JOB, NO_DEB, ROOT, make_packages, make_wheel, need, params_sha256
import cases

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CONFIG = "share/dtrun/configs/fashion_mnist_convnet.json"
EXIT_NO_LIBRARY = 127  # the loader's


def make_roots(folder):
    """A folder of each suite, never changed afterwards, or a NoRoots."""
    def make(suite):
        try:
            (folder / suite).mkdir()
            new_root(suite, BUILD, folder / suite)
            shutil.copytree(DATA, folder / suite / DATA.relative_to("/"))
            return folder / suite
        except NoRoots as reason:
            return reason

    with concurrent.futures.ThreadPoolExecutor() as pool:
        return dict(zip(suites(), pool.map(make, suites())))


def setUpModule():
    global scratch, packages, built, bare
    folder = tempfile.TemporaryDirectory(prefix="dtrun-roots-test-")
    unittest.addModuleCleanup(folder.cleanup)
    scratch = pathlib.Path(folder.name)
    if not DATA.is_dir():
        raise unittest.SkipTest("dataset-fashion-mnist is not installed")
    bare = make_roots(scratch)
    if all(isinstance(root, NoRoots) for root in bare.values()):
        raise unittest.SkipTest(f"no bare system can be made: {bare[suites()[0]]}")
    packages = make_packages(BUILD, scratch)
    need(BUILD / "bin/dtrun", "--standalone", "--nproc_per_node", "2", ROOT / "configs/fashion_mnist_convnet.json",
         f"output_dir={scratch / 'built'}", *JOB)
    built = params_sha256(scratch / "built")


class Case(unittest.TestCase):
    def root(self, suite):
        """A copy for the test alone."""
        if isinstance(bare[suite], NoRoots):
            self.skipTest(str(bare[suite]))
        copy = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=scratch, prefix=f"{suite}-")))
        need("cp", "-a", f"{bare[suite]}/.", copy)
        return copy

    def check_jobs(self, root, dtrun, config):
        job = (dtrun, "--standalone", "--nproc_per_node", "2", config, *JOB)
        code, said = run_inside(root, *job, "output_dir=/root/run")
        self.assertEqual(code, 0, said)
        self.assertEqual(params_sha256(root / "root/run"), built)
        code, said = run_inside(root, *job, "output_dir=/root/other", "data.path=/nowhere")
        self.assertEqual(code, EXIT_NO_INPUT, said)
        self.assertIn("/nowhere", said)


class ArchiveTest(Case):
    def check_in(self, suite):
        root = self.root(suite)
        place = root / "root/a folder"
        place.mkdir()
        need("tar", "-xf", packages["archive"], "-C", place)
        need("tar", "-xf", packages["tests"], "-C", place)
        (unpacked,) = place.iterdir()
        inside = pathlib.Path("/") / unpacked.relative_to(root)
        (root / "usr/bin/dtrun").symlink_to(inside / "bin/dtrun")
        self.check_jobs(root, "dtrun", inside / CONFIG)
        for program in (unpacked / "tests").glob("*_test*"):  # without a GPU they list their cases
            code, said = run_inside(root, inside / "tests" / program.name, "--list-test-cases")
            self.assertEqual(code, 0, said)
        shutil.rmtree(unpacked / "lib")
        code, said = run_inside(root, "dtrun", "--version")
        self.assertEqual(code, EXIT_NO_LIBRARY, said)
        self.assertRegex(said, "error while loading shared libraries: lib")

    def test_it_trains_where_nothing_is_installed(self):
        for suite in suites():
            with self.subTest(suite):
                self.check_in(suite)


class DebTest(Case):
    def files(self, root):
        """Without etc/, where shadow's and the loader's own files come and go."""
        folders = ("opt", "usr", "var/lib/dpkg/info")
        return {str(path.relative_to(root)) for folder in folders for path in (root / folder).rglob("*")}

    def test_it_installs_with_its_dependencies_trains_and_leaves_nothing_behind(self):
        if "deb" not in packages:
            self.skipTest(NO_DEB)
        root = self.root(suites()[0])
        shutil.copy(packages["deb"], root / "root/dtrun.deb")
        apt = ("apt-get", "-y", "-q", "--no-install-recommends")
        code, said = run_inside(root, "apt-get", "update")
        self.assertEqual(code, 0, said)
        before = self.files(root)
        code, said = run_inside(root, *apt, "install", "/root/dtrun.deb")
        self.assertEqual(code, 0, said)
        self.assertIn("usr/bin/dtrun", self.files(root))
        self.check_jobs(root, "dtrun", f"/usr/{CONFIG}")
        code, said = run_inside(root, *apt, "purge", "--autoremove", "dtrun")
        self.assertEqual(code, 0, said)
        self.assertEqual(self.files(root) ^ before, set())


class WheelTest(Case):
    def check_in(self, suite):
        root = self.root(suite)
        wheel = make_wheel(BUILD, root / "root")
        for words in (("apt-get", "update"), ("apt-get", "-y", "-q", "--no-install-recommends", "install", "python3-venv"),
                      ("python3", "-m", "venv", "/root/venv"), ("/root/venv/bin/pip", "install", "--no-index", f"/root/{wheel.name}")):
            code, said = run_inside(root, *words)
            self.assertEqual(code, 0, said)
        self.check_jobs(root, "/root/venv/bin/dtrun", f"/root/venv/{CONFIG}")
        (root / "root/where.py").write_text("import sys; print(sys.prefix)\n")
        code, said = run_inside(root, "/root/venv/bin/dtrun", "/root/where.py")
        self.assertEqual(code, 0, said)
        self.assertIn("/root/venv\n", said)

    def test_pip_installs_it_into_an_empty_environment_and_it_trains(self):
        for suite in suites():
            with self.subTest(suite):
                self.check_in(suite)


if __name__ == "__main__":
    cases.run()
