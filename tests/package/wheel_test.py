"""The wheel: what is in it, and what pip makes of it. The check with auditwheel needs that program (PyPI), and is skipped
without.

  wheel_test.py BUILD [unittest options…]
"""

import base64
import csv
import hashlib
import io
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import venv
import zipfile

from packing import DATA, JOB, MIB, ROOT, make_wheel, need, params_sha256, run
import cases

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CONFIG = "share/dtrun/configs/fashion_mnist_convnet.json"
WHERE = "import sys; print('prefix:' + sys.prefix)\n"
PLAIN = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}  # no environment is activated
EX_UNAVAILABLE = 69


def files_of(folder):
    return {path.relative_to(folder) for path in folder.rglob("*") if not path.is_dir() and "__pycache__" not in path.parts}


def setUpModule():
    global scratch, wheel
    folder = tempfile.TemporaryDirectory(prefix="dtrun-wheel-test-")
    unittest.addModuleCleanup(folder.cleanup)
    scratch = pathlib.Path(folder.name) / "a folder"
    scratch.mkdir()
    wheel = make_wheel(BUILD, scratch)


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=scratch)))
        self.script = self.folder / "where.py"
        self.script.write_text(WHERE)

    def environment(self):
        venv.create(self.folder / "venv", with_pip=True)
        return self.folder / "venv"

    def pip(self, environment, *words):
        return need(environment / "bin/python3", "-m", "pip", "--no-input", "--disable-pip-version-check", *words)


class WheelTest(Case):
    def test_its_record_has_every_file_once_and_its_name_says_what_it_asks_for(self):
        major, minor = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]
        tag = f"py3-none-manylinux_{major}_{minor}_x86_64"
        version = need(BUILD / "bin/dtrun", "--version").split()[1]
        self.assertEqual(wheel.name, f"dtrun-{version}-{tag}.whl")
        self.assertLess(wheel.stat().st_size, 25 * MIB)
        with zipfile.ZipFile(wheel) as archive:
            information = f"dtrun-{version}.dist-info"
            self.assertIn(f"Tag: {tag}\n", archive.read(f"{information}/WHEEL").decode())
            record = archive.read(f"{information}/RECORD").decode()
            rows = {name: (digest, size) for name, digest, size in csv.reader(io.StringIO(record))}
            self.assertEqual(sorted(rows), sorted(archive.namelist()))
            self.assertEqual(len(rows), len(record.splitlines()))
            for name, (digest, size) in rows.items():
                if name != f"{information}/RECORD":
                    content = archive.read(name)
                    expected = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
                    self.assertEqual((digest, int(size)), (f"sha256={expected}", len(content)), name)
            said = archive.read(f"{information}/METADATA").decode()
            self.assertEqual([name for name in rows if "sbom" in name], [f"{information}/sboms/sbom.cdx.json"])
            notices = [name for name in rows if "/licenses/" in name]
            self.assertTrue(notices or not shutil.which("dpkg-query"))
            for name in notices:
                self.assertIn(f"License-File: {name.partition('/licenses/')[2]}\n", said)

    def test_the_same_build_makes_the_same_bytes(self):
        self.assertEqual(make_wheel(BUILD, self.folder).read_bytes(), wheel.read_bytes())

    def test_auditwheel_finds_it_as_portable_as_it_says(self):
        environment = self.environment()
        code, said = run(environment / "bin/pip", "install", "-q", "auditwheel")
        if code != 0:
            self.skipTest("auditwheel cannot be had from PyPI here")
        said = " ".join(need(environment / "bin/auditwheel", "show", wheel).split())
        found = [int(word) for word in said.partition('"manylinux_2_')[2].split("_")[:1]]
        self.assertTrue(found, said)
        self.assertLessEqual(found[0], int(wheel.name.partition("manylinux_2_")[2].split("_")[0]), said)


class InstalledTest(Case):
    def prefix_of(self, *words, **variables):
        code, said = run(*words, self.script, env={**PLAIN, **variables}, cwd=self.folder)
        self.assertEqual(code, 0, said)
        return said.partition("prefix:")[2].splitlines()[0]

    def test_a_script_has_the_python_of_the_environment_that_dtrun_lies_in(self):
        environment = self.environment()
        before = files_of(environment)
        self.pip(environment, "install", "--no-index", str(wheel))
        dtrun, python = environment / "bin/dtrun", environment / "bin/python3"
        self.assertEqual(need(dtrun, "--version"), need(BUILD / "bin/dtrun", "--version"))
        self.assertEqual(need(python, "-m", "dtrun", "--version"), need(dtrun, "--version"))
        self.assertEqual(self.prefix_of(dtrun), str(environment))
        self.assertEqual(self.prefix_of(python, "-m", "dtrun"), str(environment))
        outside = need("python3", "-c", WHERE, env=PLAIN).strip().partition(":")[2]
        self.assertEqual(self.prefix_of(dtrun, PYTHON_EXEC="/usr/bin/python3"), outside)
        # As pipx and uv do: a link to a tool's own environment, which has nothing that scripts import.
        (environment / "pipx_metadata.json").write_text("{}")
        (self.folder / "dtrun").symlink_to(dtrun)
        self.assertEqual(self.prefix_of(self.folder / "dtrun"), outside)
        (environment / "pipx_metadata.json").unlink()
        self.pip(environment, "uninstall", "-y", "dtrun")
        self.assertEqual(files_of(environment), before)

    @unittest.skipUnless(DATA.is_dir(), "dataset-fashion-mnist is not installed")
    def test_it_trains_to_the_same_bits_as_the_build(self):
        environment = self.environment()
        self.pip(environment, "install", "--no-index", str(wheel))
        self.assertFalse([name for name in os.listdir(environment / "lib") if name.startswith("lib")])
        hashes = []
        for dtrun, config in ((BUILD / "bin/dtrun", ROOT / "configs/fashion_mnist_convnet.json"),
                              (environment / "bin/dtrun", environment / CONFIG)):
            output = self.folder / f"run{len(hashes)}"
            need(dtrun, "--standalone", "--nproc_per_node", "2", config, f"output_dir={output}", *JOB, env=PLAIN)
            hashes.append(params_sha256(output))
        self.assertEqual(*hashes)

    def test_in_a_folder_of_its_own_it_runs_too_and_without_its_program_the_way_out_is_said(self):
        environment = self.environment()
        target = self.folder / "target"
        self.pip(environment, "install", "--no-index", "--target", str(target), str(wheel))
        python = environment / "bin/python3"
        self.assertEqual(self.prefix_of(python, "-m", "dtrun", PYTHONPATH=str(target)), str(environment))
        (target / "bin/dtrun").unlink()
        code, said = run(python, "-m", "dtrun", "--version", env={**PLAIN, "PYTHONPATH": str(target), "HOME": str(self.folder)})
        self.assertEqual(code, EX_UNAVAILABLE, said)
        self.assertIn("pip install --force-reinstall dtrun", said)


if __name__ == "__main__":
    cases.run()
