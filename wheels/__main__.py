"""`python -m wheels sdist` and `python -m wheels wheel`, by `make sdist` and `make wheel`."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import sys
from pathlib import Path

import polyphase
from polyphase.cuda.build import PREBUILT_FOR
from wheels import archives, contents, cuda_contents, prebuild

#: Most megabytes of a wheel, and of its libraries for the CPU.
MOST, MOST_FOR_CPU = 40, 8


def main() -> None:
    parser = argparse.ArgumentParser(prog="wheels", description="Make what is published.")
    parser.add_argument("kind", choices=("sdist", "wheel"))
    parser.add_argument("--out", type=Path, default=archives.ROOT / "dist")
    parser.add_argument("--without-cuda", action="store_true", help="leave CUDA's kernels to NVRTC")
    given = parser.parse_args()
    if not Path(polyphase.__file__).is_relative_to(archives.ROOT):
        raise SystemExit(f"this makes a wheel of {archives.ROOT}, but Python imports {polyphase.__file__}")
    print(archives.sdist(given.out) if given.kind == "sdist" else wheel(given.out, not given.without_cuda))


def wheel(out: Path, with_cuda: bool) -> Path:
    build = archives.ROOT / "build"
    os.environ["POLYPHASE_CACHE_DIR"] = str(build / "built")  # whoever makes it again builds only what has changed
    folder = build / "prebuilt"
    shutil.rmtree(folder, ignore_errors=True)
    machine = platform.machine()
    if sys.platform != "linux" or machine not in prebuild.ISAS:
        raise SystemExit(f"no wheels are made for {sys.platform} on {machine}, only the sdist")
    requests = [one for isa in prebuild.ISAS[machine] for one in contents.requests(isa)]
    prebuild.prebuild([prebuild.for_cpu(one) for one in requests], folder)
    if with_cuda:
        every = [prebuild.for_cuda(kernel, target) for kernel in cuda_contents.kernels() for target in PREBUILT_FOR]
        prebuild.prebuild(every, folder)
    made = archives.platform_wheel(archives.pure_wheel(build / "pure"), folder, out)
    sizes = archives.compressed_megabytes(made)
    print(", ".join(f"{kind} {size:.1f} MB" for kind, size in sizes.items()), file=sys.stderr)
    if sum(sizes.values()) > MOST or sizes["CPU"] > MOST_FOR_CPU:
        raise SystemExit(f"{made} is too large: at most {MOST} MB, {MOST_FOR_CPU} MB of them for the CPU")
    return made


main()
