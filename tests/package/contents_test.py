"""What cpack and `cmake --install` make of a build, and that it runs wherever it is unpacked.

  contents_test.py BUILD [unittest options…]
"""

import json
import os
import pathlib
import shutil
import sys
import tempfile
import unittest
import urllib.parse

from packing import (DATA, EVERYWHERE, JOB, MIB, NO_DEB, ROOT, UBUNTU_24_04, Elf, elf_files, is_elf, make_packages, need,
                     params_sha256, run, version)
import cases

sys.path.append(str(ROOT / "scripts/lib"))
import bench_gpu_pack

BUILD = pathlib.Path(sys.argv.pop(1)).resolve()
CONFIG = "share/dtrun/configs/fashion_mnist_convnet.json"


def files_of(folder):
    """Each path below it, with what tells whether it was written to."""
    return {path: (path.lstat().st_mtime_ns, path.lstat().st_size) for path in folder.rglob("*")}


def setUpModule():
    global scratch, packages, unpacked
    folder = tempfile.TemporaryDirectory(prefix="dtrun-package-test-")
    unittest.addModuleCleanup(folder.cleanup)
    scratch = pathlib.Path(folder.name)
    packages = make_packages(BUILD, scratch)
    place = scratch / "a folder, with spaces"
    place.mkdir()
    for archive in ("archive", "tests"):  # the second adds to the first
        need("tar", "-xf", packages[archive], "-C", place)
    (unpacked,) = place.iterdir()


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir=scratch)))

    def train(self, dtrun, config, output, **how):
        code, said = run(dtrun, "--standalone", "--nproc_per_node", "2", config, f"output_dir={output}", *JOB, **how)
        self.assertEqual(code, 0, said)
        return params_sha256(output)


class ArchiveTest(Case):
    def test_it_is_small_and_has_one_top_folder_that_all_may_read(self):
        self.assertLess(packages["archive"].stat().st_size, 32 * MIB)
        self.assertLess(packages["archive"].stat().st_size + packages["tests"].stat().st_size, 64 * MIB)
        for name in ("archive", "tests"):
            tops = {line.split("/")[0] for line in need("tar", "-tf", packages[name]).splitlines()}
            self.assertEqual(tops, {unpacked.name})
        for line in need("tar", "-tvf", packages["archive"]).splitlines():
            self.assertRegex(line, r"^(drwxr-xr-x|-rwxr-xr-x|-rw-r--r--|lrwxrwxrwx) ")
        self.assertRegex(unpacked.name, r"^dtrun-\d+\.\d+\.\d+-linux-x86_64$")

    def test_its_programs_have_canaries_checked_copies_and_tables_that_nobody_writes_to(self):
        for program in filter(is_elf, (unpacked / "bin").iterdir()):
            symbols = need("readelf", "--wide", "--dyn-syms", program)
            self.assertIn(" __stack_chk_fail@", symbols, program)
            self.assertRegex(symbols, r" __\w+_chk@", program)
            self.assertRegex(need("readelf", "--wide", "--dynamic", program), r"\(FLAGS_1\).*\bNOW\b", program)
            self.assertIn(" GNU_RELRO ", need("readelf", "--wide", "--segments", program), program)
        # The libraries that are linked in could have brought the above: these are dtrun's own functions.
        for library, names in (("rendezvous/core/libdtrun_rendezvous_core.a", {"__stack_chk_fail"}),
                               ("rendezvous/identity/libdtrun_rendezvous_identity.a", {"__stack_chk_fail", "__read_chk"})):
            wanted = {line.split()[-1] for line in need("nm", "--undefined-only", BUILD / library).splitlines() if line}
            self.assertLessEqual(names, wanted, library)

    def test_it_says_what_it_is_made_of(self):
        said = need(unpacked / "bin/dtrun", "--version")
        self.assertRegex(said, r"(?m)^gRPC \d+\.\d+\.\d+, OpenSSL 3\.\d+\.\d+ .*, build [0-9a-f]{40}$")
        build = said.split()[-1]
        self.assertIn(f"Build ID: {build}", need("readelf", "--notes", "--wide", unpacked / "bin/dtrun"))

    def test_beside_it_are_the_sums_of_all_packages_also_of_one_that_was_made_again(self):
        sums = (packages["archive"].parent / "SHA256SUMS").read_text()
        self.assertEqual(sorted(line.split("  ")[1] for line in sums.splitlines()), sorted(path.name for path in packages.values()))
        need("sha256sum", "--check", "--strict", "SHA256SUMS", cwd=packages["archive"].parent)
        again = self.folder / "again"
        again.mkdir()
        stale = f"{64 * '0'}  {packages['archive'].name}\n{64 * '0'}  gone.tar.gz\n{64 * '1'}  stays.deb\n"
        (again / "SHA256SUMS").write_text(stale)
        (again / "stays.deb").touch()
        need("cmake", "-D", f"CPACK_PACKAGE_FILES={packages['archive']}", "-D", f"CPACK_PACKAGE_DIRECTORY={again}", "-P",
             ROOT / "package/sums.cmake")
        sum_of_it = [line for line in sums.splitlines() if line.endswith(f"  {packages['archive'].name}")]
        self.assertEqual((again / "SHA256SUMS").read_text().splitlines(), [*sum_of_it, f"{64 * '1'}  stays.deb"])

    def test_its_bill_of_materials_names_what_is_linked_in_with_the_versions_that_dpkg_tells(self):
        bill = json.loads((unpacked / "share/doc/dtrun/sbom.cdx.json").read_text())
        self.assertEqual((bill["bomFormat"], bill["specVersion"]), ("CycloneDX", "1.5"))
        self.assertEqual(bill["metadata"]["component"]["name"], "dtrun")
        self.assertIn(bill["metadata"]["component"]["version"], need(unpacked / "bin/dtrun", "--version"))
        if not shutil.which("dpkg-query"):
            self.skipTest("not Debian: nobody knows what brought the libraries")
        by_linkage = {}
        for component in bill["components"]:
            of = {entry["name"]: entry["value"] for entry in component["properties"]}
            by_linkage.setdefault(of["dtrun:linkage"], set()).add(of["dtrun:source"])
            fields = need("dpkg-query", "--show", "--showformat", "${Version} ${Architecture} ${source:Package}", component["name"])
            version, architecture, source = fields.split()
            self.assertEqual((component["version"], of["dtrun:source"]), (version, source))
            purl = urllib.parse.unquote(component["purl"])
            self.assertRegex(purl, r"^pkg:deb/[a-z]+/")
            self.assertTrue(purl.endswith(f"/{component['name']}@{version}?arch={architecture}&upstream={source}"), purl)
        self.assertLessEqual({"grpc", "openssl", "protobuf", "abseil", "c-ares", "re2", "pcre2", "zlib", "libpng1.6", "libjpeg-turbo"}, by_linkage["static"])
        self.assertLessEqual({"cli11", "nlohmann-json3"}, by_linkage["headers"])
        self.assertEqual({"dygraphs"}, by_linkage["embedded"])
        names = {component["name"] for component in bill["components"]}
        for library in (unpacked / "lib/dtrun").iterdir():
            owners = {line.split(":")[0] for line in run("dpkg-query", "-S", f"*/{library.name}")[1].splitlines()}
            self.assertTrue(owners & names, library.name)

    def test_every_library_is_in_it_or_in_every_distribution(self):
        there = {path.name for path in (unpacked / "lib/dtrun").iterdir()}
        self.assertFalse(there & EVERYWHERE)
        self.assertFalse([name for name in there if name.startswith(("libcu", "libnv", "libnccl"))])
        self.assertTrue([name for name in there if name.startswith("libdnnl.so")])
        files = elf_files(unpacked)
        self.assertGreater(len(files), len(there) // 2)
        for path in files:
            elf = Elf(path)
            self.assertFalse(elf.needed - there - EVERYWHERE, path)
            # DT_RPATH of the programs: it holds for the libraries' libraries, which therefore need none.
            expected = [] if path.parent.parent.name == "lib" else [("RPATH", "$ORIGIN/../lib/dtrun:$ORIGIN/../data/lib/dtrun")]
            self.assertEqual(elf.search, expected, path)

    def test_its_symbols_are_no_newer_than_ubuntu_24_04(self):
        if version(os.confstr("CS_GNU_LIBC_VERSION").split()[1]) > UBUNTU_24_04["GLIBC"]:
            self.skipTest("this machine's libraries are newer than Ubuntu 24.04's: an archive for that is built on Debian 12")
        self.assertLessEqual({"GLIBC", "GLIBCXX", "CXXABI", "GCC"}, set(Elf(unpacked / "bin/dtrun").newest))
        for path in elf_files(unpacked):
            for library, newest in Elf(path).newest.items():
                self.assertLessEqual(newest, UBUNTU_24_04[library], f"{path} needs {library}")

    def test_the_programs_are_stripped_and_no_file_names_a_folder_of_the_build(self):
        for path in elf_files(unpacked):
            self.assertNotIn(".debug_info", need("readelf", "--sections", "--wide", path), path)
        for path in filter(pathlib.Path.is_file, unpacked.rglob("*")):
            for folder in (ROOT, BUILD):
                self.assertFalse(os.fsencode(folder) + b"/" in path.read_bytes(), f"{path} names {folder}")

    @unittest.skipUnless(DATA.is_dir(), "dataset-fashion-mnist is not installed")
    def test_it_trains_to_the_same_bits_as_the_build_and_writes_nothing_beside_itself(self):
        built = self.train(BUILD / "bin/dtrun", ROOT / "configs/fashion_mnist_convnet.json", self.folder / "built")
        before = files_of(unpacked)
        self.assertEqual(self.train(unpacked / "bin/dtrun", unpacked / CONFIG, self.folder / "packaged", cwd="/"), built)
        self.assertEqual(files_of(unpacked), before)

    @unittest.skipUnless(DATA.is_dir(), "dataset-fashion-mnist is not installed")
    def test_it_trains_through_a_link_where_others_have_set_ld_library_path(self):
        """To folders with files that are no libraries, by the names of its own."""
        others = self.folder / "others"
        others.mkdir()
        for library in (unpacked / "lib/dtrun").iterdir():
            (others / library.name).write_text("not a library\n")
        link = self.folder / "dtrun"
        link.symlink_to(unpacked / "bin/dtrun")
        self.train(link, unpacked / CONFIG, self.folder / "run", env={"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": str(others)})

    def test_programs_that_it_starts_have_the_users_library_path_and_no_other(self):
        words = ["--", "sh", "-c", 'echo "path:${LD_LIBRARY_PATH-none}:${LD_PRELOAD-none}"']
        for environment, path in (({}, "none"), ({"LD_LIBRARY_PATH": "/users"}, "/users")):
            code, said = run(unpacked / "bin/dtrun", *words, env={"PATH": "/usr/bin:/bin", **environment})
            self.assertEqual(code, 0, said)
            self.assertIn(f"path:{path}:none", said)

    def test_its_libraries_are_those_that_are_loaded(self):
        for program in filter(is_elf, [*(unpacked / "bin").iterdir(), *(unpacked / "tests").glob("*")]):
            for line in need("ldd", program).splitlines():
                name, _, place = line.strip().partition(" => ")
                if place and name not in EVERYWHERE:
                    self.assertIn(str(unpacked), place, f"{program.name} loads {line}")

    def test_without_its_own_the_machines_libraries_are_loaded(self):
        """As docs/gpu.md says of InfiniBand's."""
        need("cp", "-al", f"{unpacked}/.", self.folder)
        libraries = [path for path in (self.folder / "lib/dtrun").iterdir() if path.name.startswith(("libibverbs", "libnl"))]
        self.assertTrue(libraries)
        for path in libraries:
            path.unlink()
        said = need("ldd", self.folder / "bin/dtrun-worker")
        for name in {path.name for path in libraries} & {line.split()[0] for line in said.splitlines()}:
            self.assertRegex(said, rf"(?m)^\s*{name} => /(usr/)?lib/")
        self.assertIn("libibverbs.so.1 => ", said)

    def test_who_wrote_its_libraries_is_told(self):
        if not shutil.which("dpkg-query"):
            self.skipTest("not Debian: there are no notices to bring")
        notices = {path.name for path in (unpacked / "share/doc/dtrun/notices").iterdir()}
        for library in (unpacked / "lib/dtrun").iterdir():
            owners = {line.split(":")[0] for line in run("dpkg-query", "-S", f"*/{library.name}")[1].splitlines()}
            self.assertTrue(owners & notices, library.name)
        self.assertLessEqual({"libgrpc-dev", "libssl-dev", "libprotobuf-dev", "nlohmann-json3-dev"}, notices)

    def test_the_tests_are_in_it_where_cuda_is(self):
        built = [name for name in bench_gpu_pack.TESTS if (BUILD / name).exists()]
        self.assertEqual(sorted(f"tests/{path.name}" for path in (unpacked / "tests").glob("*")), sorted(built))
        code, said = run(unpacked / "scripts/bench_gpu", "--part", "gpus", cwd="/", env={"PATH": "/usr/bin:/bin"})
        self.assertEqual(code, 0, said)
        self.assertRegex(said, "(?m)^  dtrun gpus +ok ")


class DebTest(Case):
    def setUp(self):
        super().setUp()
        if "deb" not in packages:
            self.skipTest(NO_DEB)
        need("dpkg-deb", "-x", packages["deb"], self.folder)
        self.files = {str(path.relative_to(self.folder)) for path in self.folder.rglob("*") if not path.is_dir()}

    def field(self, name):
        return need("dpkg-deb", "-f", packages["deb"], name).strip()

    def test_it_depends_on_debians_libraries_and_carries_none(self):
        depends = {word.split()[0] for word in self.field("Depends").split(", ")}
        for library in ("libc6", "libstdc++6", "libgloo", "libdnnl"):
            self.assertTrue(any(name.startswith(library) for name in depends), depends)
        self.assertFalse([name for name in self.files if ".so" in name])
        self.assertEqual([path.name for path in elf_files(self.folder)], ["dtrun", "dtrun-worker"])
        for path in elf_files(self.folder):
            self.assertEqual(Elf(path).search, [], path)
        self.assertLess(packages["deb"].stat().st_size, 16 * MIB)

    def test_files_are_where_debian_has_them(self):
        self.assertEqual({name for name in self.files if not name.startswith(("usr/share/doc/dtrun/", "usr/share/dtrun/configs/"))},
                         {"usr/bin/dtrun", "usr/bin/dtrun-worker", "usr/share/man/man1/dtrun.1.gz",
                          "usr/share/man/man5/dtrun-config.5.gz", "usr/share/bash-completion/completions/dtrun",
                          "usr/share/zsh/vendor-completions/_dtrun", "usr/share/fish/vendor_completions.d/dtrun.fish"})
        self.assertIn("usr/share/dtrun/configs/job.schema.json", self.files)
        self.assertEqual(need("gzip", "-dc", self.folder / "usr/share/man/man1/dtrun.1.gz"),
                         need(BUILD / "bin/dtrun", "help", "--format", "man"))
        for path in self.folder.rglob("*"):
            expected = 0o755 if path.is_dir() or path.parent.name == "bin" else 0o644
            self.assertEqual(path.stat().st_mode & 0o7777, expected, path)


class InstallTest(Case):
    def install(self, *options, **environment):
        need("cmake", "--install", BUILD, *options, env={**os.environ, **environment})

    def test_by_itself_it_brings_neither_libraries_nor_tests_and_again_changes_nothing(self):
        self.install("--prefix", self.folder)
        before = files_of(self.folder)
        self.assertEqual({path.name for path in self.folder.iterdir()}, {"bin", "share"})
        self.install("--prefix", self.folder)
        self.assertEqual(files_of(self.folder), before)

    def test_destdir_goes_in_front_of_the_prefix(self):
        for component in ("runtime", "libraries", "tests"):
            self.install("--prefix", "/opt/dtrun-of-a-test", "--component", component, DESTDIR=str(self.folder))
        self.assertFalse(pathlib.Path("/opt/dtrun-of-a-test").exists())
        there = self.folder / "opt/dtrun-of-a-test"
        self.assertTrue((there / "bin/dtrun").exists() and (there / "scripts/bench_gpu").exists())
        self.assertTrue(any((there / "lib/dtrun").iterdir()))
        self.assertEqual(run(there / "bin/dtrun", "--version")[0], 0)


if __name__ == "__main__":
    cases.run()
