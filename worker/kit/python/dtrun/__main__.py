"""python -m dtrun …: the program dtrun of this environment; the scripts that it starts run under this Python."""

import os
import pathlib
import sys
import sysconfig

EX_UNAVAILABLE = 69


def program():
    """Where pip has put the program: an environment's, the user's own, or beside this package (pip install --target)."""
    folders = [sysconfig.get_path("scripts"), sysconfig.get_path("scripts", f"{os.name}_user"),
               str(pathlib.Path(__file__).resolve().parent.parent / "bin"), os.path.dirname(sys.executable)]
    for folder in folders:
        path = os.path.join(folder, "dtrun")
        if os.access(path, os.X_OK):
            return path
    print(f"dtrun: there is no program dtrun in {', '.join(dict.fromkeys(folders))}: pip install --force-reinstall dtrun",
          file=sys.stderr)
    sys.exit(EX_UNAVAILABLE)


if __name__ == "__main__":
    os.environ.setdefault("PYTHON_EXEC", sys.executable)
    found = program()
    os.execv(found, [found, *sys.argv[1:]])
