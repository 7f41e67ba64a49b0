"""What the scripts that measure whole models share: the synthetic checkpoints of ../shared/rig, the peer, one run."""

import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import benchlib
from benchlib import RIG, WORK, fail, note

SHAPES = ("mini", "dense-mini", "30b-q", "30b")
PEER = "xllamacpp==2026.10.11549"
PEERS = benchlib.ROOT / "build/peers"
FIRST_START, START_STEP = 1000, 3000  # of unrelated sequences on the cycle
TIMEOUT_S = 1800
PACKED = set()  # (shape, programs) that this script has packed


def shapes_of(text):
    """The names of a --shape option."""
    shapes = text.split(",")
    unknown = [shape for shape in shapes if shape not in SHAPES]
    if unknown:
        fail(f"--shape {unknown[0]} is not one of {', '.join(SHAPES)}")
    return shapes


def check_rig(*programs):
    for name in ("synth_moe.py", "peers/llama_peer.py", *programs):
        if not (RIG / name).is_file():
            fail(f"{name} is not in ../shared/rig: checkpoints are made, and peers run, by the programs of that folder, "
                 "which is kept beside a checkout")
    if importlib.util.find_spec("numpy") is not None:
        return
    # The first Python of the path may be another one than the system's, whose packages apt-get installs.
    system = "/usr/bin/python3"
    has_numpy = [system, "-c", "import numpy"]
    if os.path.realpath(sys.executable) != os.path.realpath(system) and os.path.exists(system) and \
            subprocess.run(has_numpy, capture_output=True).returncode == 0:
        os.execv(system, [system, *sys.argv])
    fail("Python has no numpy, which synth_moe.py needs: apt-get install python3-numpy")


def synth_module():
    spec = importlib.util.spec_from_file_location("synth_moe", RIG / "synth_moe.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def synth(*arguments, stdout=None):
    return subprocess.run([sys.executable, str(RIG / "synth_moe.py"), *map(str, arguments)], stdout=stdout, text=True)


def checkpoint(shape, form):
    """Path of a synthetic checkpoint, made when it is not there."""
    path = WORK / (f"{shape}-mlx" if form == "mlx" else f"{shape}.gguf")
    if not path.exists():
        unfinished = path.with_name("unfinished-" + path.name)
        note(f"making {path.relative_to(benchlib.ROOT)} ...")
        if synth("write", "--shape", shape, "--format", form, "--out", unfinished, stdout=sys.stderr).returncode != 0:
            fail(f"synth_moe.py could not write {unfinished}")
        unfinished.rename(path)
    return path


def packed(shape, folder, as_checkpoint=False):
    """What nunspark runs: a pack of the MLX checkpoint made by the programs in `folder`, or the checkpoint itself."""
    source = checkpoint(shape, "mlx")
    if as_checkpoint:
        return source
    path = WORK / f"{shape}-pack"
    if (shape, folder) in PACKED:
        return path
    command = [str(folder / "nunspark"), "pack", str(source), str(path)]
    note(f"packing {path.relative_to(benchlib.ROOT)} ...")
    # The packer itself knows whether a pack is up to date; another revision's is made anew.
    made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0 and path.exists():
        shutil.rmtree(path)
        made = subprocess.run(command, capture_output=True, text=True)
    if made.returncode != 0:
        fail(f"{' '.join(command)}: {made.stderr.strip()}")
    PACKED.add((shape, folder))
    return path


def prompt_file(shape, start, count):
    path = WORK / f"{shape}-{start}-{count}.ids"
    if not path.exists():
        made = synth("prompt", "--shape", shape, "--start", start, "--n", count, "--ids", stdout=subprocess.PIPE)
        if made.returncode != 0:
            fail(f"synth_moe.py could not make a prompt of {count} tokens of {shape}")
        path.write_text(made.stdout)
    return path


def peer_python():
    """The Python that has the peer, or None with a note saying why it is left out."""
    python = PEERS / "bin/python"
    works = [str(python), "-c", "import xllamacpp"]
    if python.exists() and subprocess.run(works, capture_output=True).returncode == 0:
        return python
    note(f"installing the peer, {PEER}, from the package index into build/peers (once) ...")
    try:
        subprocess.run([sys.executable, "-m", "venv", str(PEERS)], check=True, stdout=sys.stderr)
        subprocess.run([str(PEERS / "bin/pip"), "install", "--quiet", PEER], check=True, stdout=sys.stderr)
        subprocess.run(works, check=True, stdout=sys.stderr)
        return python
    except (OSError, subprocess.CalledProcessError) as error:
        note(f"Note: no peer in this run: {error}")
        return None


# ---- one run

def last_json(command, first):
    """The last JSON line that a command prints; `first`: it runs before all other processes."""
    run = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                         preexec_fn=benchlib.run_first if first else None)
    lines = [line for line in run.stdout.splitlines() if line.startswith("{")]
    if run.returncode != 0 or not lines:
        fail(f"{' '.join(map(str, command))} failed with status {run.returncode}\n"
             f"{run.stdout[-2000:]}{run.stderr[-2000:]}")
    return json.loads(lines[-1])


def limited(command, memory, first=False, evict=None, bps=None, drive=None):
    """The last JSON line of a command inside a limit of memory (bytes), and what `limit` says about it. With `bps` the
    drive that holds `drive` gives no more bytes a second; `evict` is dropped from the page cache before."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as report:
        limit = [RIG / "limit", "--json", report.name, "--timeout", TIMEOUT_S]
        if memory:
            limit += ["--mem", memory]
        if bps:
            limit += ["--bps", bps, "--path", drive]
        if first:
            limit.append("--first")
        if evict:
            limit += ["--evict", evict]
        result = last_json([*limit, "--", *command], False)
        return result, json.loads(report.read().splitlines()[-1])


def check(shape, start, count, tokens, who):
    """Ends the script when `tokens`, ids or their text, are not what follows `count` tokens from `start` on."""
    file = WORK / "output.ids"
    file.write_text(tokens if isinstance(tokens, str) else ",".join(map(str, tokens)))
    run = synth("check", "--shape", shape, "--start", start, "--n", count, file, stdout=subprocess.PIPE)
    if run.returncode != 0:
        fail(f"{who} went another way than {shape} prescribes from {start + count} on: {run.stdout.strip()}")
