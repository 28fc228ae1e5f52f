"""What only a GPU shows, prepared to the second: `python scripts/gpu.py --out FOLDER`, within a call of 600 seconds.

    python scripts/gpu.py --rehearse                # all parts, tiny and on whatever there is
    python scripts/gpu.py --only a c.lora           # items or parts
    python scripts/gpu.py --page FOLDER             # stores what a call brought back, writes docs/results/hardware.md

The list is in gpu_parts.py, in order of worth. Each part has a process of its own, which is ended at its limit with all
that it has started; what it had told by then is kept. A part whose whole limit is no longer left waits for the next
call, which runs what is not done: neither here (``--work``) nor in docs/results/gpu. Results are written after each
part, an item a file. ``OFMU_SHARED`` is a folder with data/tofu and models/tofu-tiny-full (no weights needed).
"""

import argparse
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

import psutil
from gpu_parts import PARTS, ROOT, Part, Place
from gpu_records import STORED, Records, keep, line, publish, read

from ofmu_pl import __version__
from ofmu_pl.support.files import read_json
from ofmu_pl.support.provenance import versions

PACKAGES = ("torch", "transformers", "lightning", "peft", "bitsandbytes")
GRACE = 20
"""Seconds of a call for its own imports, and for ending a part."""
REHEARSED = 300
"""Limit of each part of a rehearsal, on whatever machine."""
TAIL = 1500
"""Characters of a failed part's output that are kept."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a folder that also gets the results")
    parser.add_argument("--work", type=Path, help="folder of models, logs and results (default: logs/gpu)")
    parser.add_argument("--seconds", type=float, default=600, help="of the whole call (default: 600)")
    parser.add_argument("--only", nargs="+", default=[], help="items or parts, with commas or spaces")
    parser.add_argument("--again", action="store_true", help="also what is done")
    parser.add_argument("--rehearse", action="store_true", help="tiny, in logs/gpu_rehearsal")
    parser.add_argument("--page", type=Path, nargs="?", const=STORED, help="store a folder's results, write the page")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    args = parser.parse_args()
    work = args.work or ROOT / "logs" / ("gpu_rehearsal" if args.rehearse else "gpu")
    if args.page:
        publish(args.page)
    elif args.part:
        limit = REHEARSED if args.rehearse else PARTS[args.part].seconds
        PARTS[args.part].call(Place(work, work / f"told/{args.part}.json", args.rehearse, limit))
    else:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended from outside"))  # so that a part ends with it
        wanted = chosen([name for word in args.only for name in word.split(",")])
        known = ({} if args.rehearse else read(STORED)) | read(work / "results")
        again = [sys.executable, __file__, "--work", str(work), *(["--rehearse"] if args.rehearse else [])]
        done = {} if args.again else {name: record for name, record in known.items() if record["outcome"] == "done"}
        wanted.sort(key=lambda name: name in known)  # what has failed before comes last
        work_through(wanted, done, args, work, lambda name: [*again, "--part", name])


def chosen(words: list[str]) -> list[str]:
    """The parts that words name, an item's all; no word: all parts."""
    unknown = [word for word in words if not any(in_item(name, word) for name in PARTS)]
    if unknown:
        raise SystemExit(f"--only {' '.join(unknown)}: give items or parts, of {', '.join(PARTS)}.")
    return [name for name in PARTS if not words or any(in_item(name, word) for word in words)]


def in_item(name: str, word: str) -> bool:
    """Whether a part is the one that a word names, or one of an item's."""
    return name == word or name.startswith(f"{word}.")


def work_through(
    wanted: list[str], done: Records, args: argparse.Namespace, work: Path, command: Callable[[str], list[str]]
) -> None:
    """Run what is wanted and not done, part after part, as far as the seconds go."""
    end = time.monotonic() + args.seconds
    device = the_device()
    for name in wanted:
        part, left = PARTS[name], end - time.monotonic() - GRACE
        limit = REHEARSED if args.rehearse else part.seconds
        if name in done:
            say(name, f"is done already, {done[name]['date']}")
        elif part.after and part.after not in done and args.only == []:
            say(name, f"waits for {part.after}")
        elif limit > left:
            say(name, f"waits for the next call: it may take {limit} s, and {max(left, 0):.0f} s are left")
        else:
            record = ran(name, part, command(name), limit, work) | device | {"rehearsal": args.rehearse}
            if record["outcome"] == "done":
                done[name] = record
            for folder in filter(None, (work / "results", args.out)):
                keep(folder, name, record)
            took = f"{record['outcome']} after {record['seconds']:.0f} of {limit} s"
            say(name, took, *last_line(record), line(record["figures"]))


def ran(name: str, part: Part, command: list[str], limit: float, work: Path) -> dict[str, Any]:
    """Run a part's process for at most ``limit`` seconds; what became of it."""
    told, log = work / f"told/{name}.json", work / f"logs/{name}.txt"
    for file in (told, log):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.unlink(missing_ok=True)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    began = time.monotonic()
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=ROOT, start_new_session=True
        )
        try:
            code = process.wait(limit)
            outcome = "failed" if code else "done"
        except subprocess.TimeoutExpired:
            outcome = "ended at its limit"
        finally:
            end_all(process)
    record = {"outcome": outcome, "what": part.what, "date": str(date.today()), "limit": limit}
    record |= {"seconds": time.monotonic() - began, "figures": read_json(told) if told.is_file() else {}}
    return record if outcome == "done" else record | {"error": log.read_text(errors="replace")[-TAIL:]}


def end_all(process: subprocess.Popen[bytes]) -> None:
    """End a process, its group, and what it has started in groups of their own."""
    with suppress(psutil.NoSuchProcess, ProcessLookupError):  # where all have ended by themselves
        children = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
        os.killpg(process.pid, signal.SIGKILL)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.kill()
    process.wait()


def the_device() -> dict[str, Any]:
    """The device and the versions; nothing here takes memory of the device."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        device = subprocess.run(query, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        device = f"no GPU, {os.cpu_count()} cores, {platform.machine()}"
    ours = {"python": platform.python_version(), "ofmu_pl": __version__}
    return {"device": device, "versions": {**ours, **versions(*PACKAGES)}}


def say(name: str, sentence: str, *more: str) -> None:
    print(f"{name}: {sentence}", *filter(None, more), sep="\n    ", flush=True)


def last_line(record: dict[str, Any]) -> list[str]:
    """The last line of what went wrong."""
    return record.get("error", "").strip().splitlines()[-1:]


if __name__ == "__main__":
    main()
