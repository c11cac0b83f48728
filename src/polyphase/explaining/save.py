"""Kernels as files of their own, which rebuild, check and time themselves when they are run."""

from __future__ import annotations

import shutil
from pathlib import Path

from polyphase.explaining.model import Explained, Graph, OurKernel

_OURS = '''\
"""{program}

Edit {source} and run this file: it builds that source, checks it against plain torch operations and times it beside the
kernel as it was generated.
"""

from pathlib import Path

from polyphase.explaining.replay import replay

replay(
    program={program!r},
    sizes={sizes!r},
    inputs={inputs!r},
    output={output!r},
    source=Path(__file__).with_name({source!r}),
)
'''

_INDUCTORS = '''\
"""Inductor's code of one graph. Edit {edited} and run this file: it builds both, checks one against the other, and
times both."""

from pathlib import Path

from polyphase.explaining.replay import replay_graphs

replay_graphs(Path(__file__).with_name({original!r}), Path(__file__).with_name({edited!r}))
'''


def save(explanation: Explained, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, graph in enumerate(explanation.graphs):
        for place, kernel in enumerate(graph.ours):
            written.append(_save_ours(kernel, folder, f"graph{number}_kernel{place}"))
        if graph.inductors:
            written.append(_save_inductors(graph, folder, f"graph{number}"))
    return written


def _save_ours(kernel: OurKernel, folder: Path, name: str) -> Path:
    source = name + Path(kernel.source_file).suffix
    shutil.copy(kernel.source_file, folder / source)
    keys = ("dtype", "shape", "strides", "device")
    inputs = [{key: one[key] for key in keys} for one in kernel.inputs]
    output = {key: kernel.output[key] for key in keys}
    script = _OURS.format(program=kernel.program, sizes=kernel.sizes, inputs=inputs, output=output, source=source)
    path = folder / f"{name}.py"
    path.write_text(script, encoding="utf-8")
    return path


def _save_inductors(graph: Graph, folder: Path, name: str) -> Path:
    original, edited = f"{name}_original.py", f"{name}_code.py"
    for copy in (original, edited):
        shutil.copy(graph.code_file, folder / copy)
    path = folder / f"{name}_run.py"
    path.write_text(_INDUCTORS.format(original=original, edited=edited), encoding="utf-8")
    return path
