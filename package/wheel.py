"""Makes a wheel of what `cmake --install` has brought: the programs are its scripts, libraries and pages its data.

  wheel.py INSTALLED VERSION FOLDER

  INSTALLED   the prefix with the components runtime and libraries
  FOLDER      where the wheel is written; its path is printed

The format is that of https://packaging.python.org/specifications/binary-distribution-format/. The same build makes the
same bytes. It asks for a libc no older than that of this machine, as its tag says (PEP 600).
"""

import base64
import hashlib
import os
import pathlib
import platform
import sys
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "worker/kit/python"
NOTICES = pathlib.PurePath("share/doc/dtrun/notices")
SBOM = pathlib.PurePath("share/doc/dtrun/sbom.cdx.json")
EARLIEST = (1980, 1, 1, 0, 0, 0)  # of a zip

METADATA = """\
Metadata-Version: 2.4
Name: dtrun
Version: {version}
Summary: Start distributed training, keep it going, bring it to its end
Keywords: distributed training,launcher,elastic,torchrun,PyTorch,MPI,Slurm,Kubernetes
Classifier: Environment :: Console
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3
Classifier: Topic :: Scientific/Engineering :: Artificial Intelligence
Classifier: Topic :: System :: Distributed Computing
Requires-Python: >=3.9
Description-Content-Type: text/markdown
{notices}
{description}"""

WHEEL = """\
Wheel-Version: 1.0
Generator: dtrun {version}
Root-Is-Purelib: false
Tag: {tag}
"""


def tag():
    major, minor = os.confstr("CS_GNU_LIBC_VERSION").split()[1].split(".")[:2]
    return f"py3-none-manylinux_{major}_{minor}_{platform.machine()}"


def libraries(folder):
    """{the name that programs ask for: file}: a wheel has no links, so a library is in it under that name alone."""
    files = {path.name: path for path in folder.iterdir()}
    behind_links = {path.resolve().name for path in files.values() if path.is_symlink()}
    return {name: path for name, path in files.items() if name not in behind_links}


def contents(installed, version):
    """{path in the wheel: file or bytes}."""
    data, information = f"dtrun-{version}.data", f"dtrun-{version}.dist-info"
    files, texts = {}, {}  # texts: those of the notices, some of which are of several packages
    for path in PACKAGE.rglob("*.py"):
        files[path.relative_to(PACKAGE).as_posix()] = path
    for name, path in libraries(installed / "lib/dtrun").items():
        files[f"{data}/data/lib/dtrun/{name}"] = path
    for path in installed.rglob("*"):
        inside = path.relative_to(installed)
        if path.is_dir() or inside.parts[0] == "lib" or inside.suffix == ".png":
            continue  # the docs' pictures: 300 kB of at most 25 MB
        if inside.parent == NOTICES:
            texts.setdefault(path.read_bytes(), []).append(path.name)
        elif inside == SBOM:  # PEP 770
            files[f"{information}/sboms/{path.name}"] = path
        elif inside.parts[0] == "bin":
            files[f"{data}/scripts/{path.name}"] = path
        else:
            files[f"{data}/data/{inside.as_posix()}"] = path
    notices = {"notices/" + "_".join(sorted(names)): text for text, names in texts.items()}
    files |= {f"{information}/licenses/{name}": text for name, text in notices.items()}
    lines = "".join(f"License-File: {name}\n" for name in sorted(notices))
    files[f"{information}/METADATA"] = METADATA.format(
        version=version, notices=lines, description=(ROOT / "README.md").read_text()).encode()
    files[f"{information}/WHEEL"] = WHEEL.format(version=version, tag=tag()).encode()
    return files


def record_line(name, content):
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(content)}\n"


def add(archive, name, content):
    entry = zipfile.ZipInfo(name, EARLIEST)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = (0o100755 if "/scripts/" in name else 0o100644) << 16
    archive.writestr(entry, content, compresslevel=9)


def main(installed, version, folder):
    wheel = pathlib.Path(folder) / f"dtrun-{version}-{tag()}.whl"
    record, record_name = "", f"dtrun-{version}.dist-info/RECORD"
    with zipfile.ZipFile(wheel, "w") as archive:
        # What says what is in the archive comes last in it.
        for name, source in sorted(contents(pathlib.Path(installed), version).items(), key=lambda one: (".dist-info/" in one[0], one[0])):
            content = source if isinstance(source, bytes) else source.read_bytes()
            record += record_line(name, content)
            add(archive, name, content)
        add(archive, record_name, (record + f"{record_name},,\n").encode())
    print(wheel)


if __name__ == "__main__":
    main(*sys.argv[1:])
