"""What the scripts behind `./dev bench` share: machine facts, building and finding programs, figures, tables, files."""

import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
RIG = ROOT / "../shared/rig"  # checkpoints, peers and limits that are kept beside a checkout
WORK = ROOT / "build/bench"   # what the benchmarks make and keep
RATE = "1/s"  # of a Google Benchmark counter; its name says of what
BENCHMARK_FIELDS = {"family_index", "per_family_instance_index", "repetitions", "repetition_index", "threads",
                    "iterations", "real_time", "cpu_time"}
PROGRAM = re.compile(r"nunspark_(\w+)_bench$")


def fail(message):
    sys.exit(f"Error: {message}")


def note(message):
    print(message, file=sys.stderr, flush=True)


# ---- the machine

def output(*command, cwd=ROOT):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout.strip()


def revision(cwd=ROOT):
    changed = " with local changes" if output("git", "status", "--porcelain", "--untracked-files=no", cwd=cwd) else ""
    return output("git", "rev-parse", "--short", "HEAD", cwd=cwd) + changed


def first_match(path, pattern, fallback="unknown"):
    try:
        match = re.search(pattern, pathlib.Path(path).read_text(), re.M)
    except OSError:
        return fallback
    return match.group(1) if match else fallback


def machine_facts():
    """What two figures must have in common before anyone compares them: a list of (name, value)."""
    processor = first_match("/proc/cpuinfo", r"^model name\s*:\s*(.*)$", platform.machine())
    flags = set(first_match("/proc/cpuinfo", r"^(?:flags|Features)\s*:\s*(.*)$", "").split())
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_int8", "asimd", "asimddp", "i8mm")
    vectors = [name for name in known if name in flags]
    memory_kb = int(first_match("/proc/meminfo", r"^MemTotal:\s*(\d+)", "0"))
    huge_pages = first_match("/sys/kernel/mm/transparent_hugepage/enabled", r"\[(\w+)\]")
    compiler = first_match(ROOT / "build/release/CMakeCache.txt", r"^CMAKE_CXX_COMPILER:\w+=(.*)$", "c++")
    return [
        ("processor", f"{processor} ({', '.join(vectors) or 'no vector extensions that are known here'})"),
        ("cores", output("nproc")),
        ("memory", f"{memory_kb * 1024 / 1e9:.1f} GB, transparent huge pages: {huge_pages}"),
        ("kernel", platform.release()),
        ("compiler", output(compiler, "--version").splitlines()[0]),
        ("revision", revision()),
        ("load before", " ".join(f"{load:.1f}" for load in os.getloadavg())),
    ]


def run_first():
    """For subprocess's preexec_fn: the program runs before all others, in a scheduling group of its own. Needs root."""
    os.setsid()
    try:
        pathlib.Path("/proc/self/autogroup").write_text("-20")
    except OSError:
        pass  # this system groups by other things than sessions
    os.nice(-20)


# ---- programs

def build(tree, targets=()):
    """Builds targets, or everything, of a source tree; returns its program folder."""
    note(f"building {tree.relative_to(ROOT) if tree != ROOT else 'this revision'} ...")
    if not targets:
        # Configured anew, since the benchmark library may have been installed after the last time.
        (tree / "build/release/build.ninja").unlink(missing_ok=True)
    preset = ["release", *targets] if targets else []
    subprocess.run([str(tree / "dev"), "build", *preset], cwd=tree, check=True, stdout=subprocess.DEVNULL)
    return tree / "build/release/bin"


def revision_tree(rev):
    """A worktree of `rev` below build/base, kept for the next comparison."""
    commit = output("git", "rev-parse", "--verify", rev + "^{commit}")
    tree = ROOT / "build/base" / commit[:12]
    if not (tree / "dev").exists():
        subprocess.run(["git", "worktree", "prune"], cwd=ROOT, check=True)
        subprocess.run(["git", "worktree", "add", "--force", "--detach", str(tree), commit], cwd=ROOT, check=True,
                       stdout=subprocess.DEVNULL)
    return tree


def find_programs(folder, wanted):
    """name -> path of the wanted benchmark programs, all of them when none is named."""
    found = {PROGRAM.match(path.name).group(1): path for path in sorted(folder.glob("nunspark_*_bench"))}
    unknown = [name for name in wanted if name not in found]
    if unknown or not found:
        fail(f"no benchmark program {', '.join(unknown) or 'at all'} in {folder}; there are: "
             f"{', '.join(found) or 'none'}")
    return {name: found[name] for name in (wanted or found)}


def run_once(program, arguments):
    """Figures of one run: name -> (value, unit). What the program prints for people goes to standard error."""
    with tempfile.NamedTemporaryFile(suffix=".json") as report:
        # Google Benchmark takes its flags from the environment too; other programs ignore these.
        environment = dict(os.environ, BENCHMARK_OUT=report.name, BENCHMARK_OUT_FORMAT="json")
        run = subprocess.run([str(program), *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, env=environment)
        if run.returncode != 0:
            fail(f"{program.name} failed with status {run.returncode}\n{run.stdout}")
        text = report.read()
    note(run.stdout)
    return figures_of_report(json.loads(text)) if text.strip() else figures_of_lines(run.stdout)


def figures_of_report(report):
    """Google Benchmark's JSON: the counters of a benchmark that has any, which are rates; else its time."""
    figures = {}
    for entry in report["benchmarks"]:
        counters = {key: value for key, value in entry.items() if key not in BENCHMARK_FIELDS and
                    isinstance(value, (int, float))}
        for key, value in counters.items():
            figures[f"{entry['name']} {key}"] = (value, RATE)
        if not counters:
            figures[entry["name"]] = (entry["real_time"], entry["time_unit"])
    return figures


def figures_of_lines(text):
    """Lines of three columns separated by tabs: name, value, unit."""
    figures = {}
    for line in text.splitlines():
        columns = line.split("\t")
        try:
            figures[columns[0].strip()] = (float(columns[1]), columns[2].strip())
        except (IndexError, ValueError):
            continue
    return figures


# ---- text

def number(value):
    return f"{value:.4g}" if abs(value) < 1e5 else f"{value:.0f}"


def spread(values, form=number):
    """Median and range: "12.3 (11.9-12.8)"; the range is left out for one value."""
    if not values:
        return "-"
    text = form(statistics.median(values))
    return text if len(values) == 1 else f"{text} ({form(min(values))}-{form(max(values))})"


def table(header, rows):
    widths = [max(len(str(row[column])) for row in [header, *rows]) for column in range(len(header))]
    lines = []
    for row in [header, ["-" * width for width in widths], *rows]:
        lines.append("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |")
    return "\n".join(lines)


def fact_lines(facts):
    return "\n".join(f"- {key}: {value}" for key, value in facts)


def save(name, command, sections):
    """Writes docs/measurements/NAME.md."""
    target = ROOT / "docs/measurements" / f"{name}.md"
    target.write_text(f"# {name}\n\nTaken with `{command}`.\n\n" + "\n\n".join(sections) + "\n")
    note(f"saved to {target.relative_to(ROOT)}")


def split_arguments(argv):
    """What comes before `--`, and what after."""
    if "--" not in argv:
        return argv, []
    cut = argv.index("--")
    return argv[:cut], argv[cut + 1:]
