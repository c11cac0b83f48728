"""The command line, `polyphase try | bench | compare | report | explain | env | cache`: it reads options, and other
modules do the work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

try:
    import rich
    import typer
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )
    from rich.table import Column
    from typer.core import TyperGroup
except ModuleNotFoundError as missing:
    print(f'polyphase: the command line needs {missing.name}: pip install "polyphase[cli]"', file=sys.stderr)
    raise SystemExit(2) from None

from polyphase.errors import PolyphaseError
from polyphase.version import __version__

INTERRUPTED = 130  # as a shell says after Ctrl-C


class _Group(TyperGroup):
    """An error of ours is told in one line, with exit status 2."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except PolyphaseError as error:
            typer.echo(f"polyphase: {error}", err=True)
            raise typer.Exit(2) from None


app = typer.Typer(cls=_Group, no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
cache_app = typer.Typer(no_args_is_help=True, help="The kernels kept on disk.")
app.add_typer(cache_app, name="cache")


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"polyphase {__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[
        bool, typer.Option("--version", callback=_say_version, is_eager=True, help="and no more")
    ] = False,
) -> None:
    """Try Polyphase on your own transforms, measure it on this machine, and see what it runs on."""


@app.command("try")
def try_transforms(
    transform: Annotated[
        str | None,
        typer.Argument(
            help="package.module:name or FILE.py:name, a transform or what makes one; ImageNet's, if not said"
        ),
    ] = None,
    pictures: Annotated[
        str | None, typer.Argument(help="a folder or file, or a dataset as MODULE:NAME; drawn pictures, if not said")
    ] = None,
    kind: Annotated[
        str, typer.Option("--as", help="what pictures of files are given as: pillow, tensor, array")
    ] = "pillow",
    most: Annotated[int, typer.Option(help="so many pictures, at most")] = 12,
    threads: Annotated[int, typer.Option(help="of torch; a DataLoader's worker has one")] = 1,
    seed: Annotated[int, typer.Option(help="that both begin with, for each picture")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="the page")] = Path("polyphase-try.html"),
) -> None:
    """Run your transforms as they are and fused: the same pictures? What is one launch, and how long does it take?

    Ctrl-C keeps what was measured.
    """
    from polyphase.trying import page, said, session

    plan = session.plan(session.Request(transform, pictures, kind, most, threads, seed))
    with _progress(plan.steps) as tell:
        trials = session.execute(plan, tell)
    for one in trials:
        typer.echo(f"{said.as_text(one)}\n")
    page.write(trials, output)
    typer.echo(f"page: {output}")
    if not all(one.complete for one in trials):
        raise typer.Exit(INTERRUPTED)


@app.command()
def bench(
    suite: Annotated[
        str, typer.Option(help="aa, nearest, warp, flip, bicubic, chain, backward, model, library or all")
    ] = "all",
    quick: Annotated[bool, typer.Option("--quick", help="a few rows of each suite, briefly")] = False,
    device: Annotated[str, typer.Option(help="cpu or cuda")] = "cpu",
    threads: Annotated[int, typer.Option(help="of torch and of peers that can be told")] = 1,
    mode: Annotated[str | None, typer.Option(help="only this mode, or that of a case of your own")] = None,
    dtype: Annotated[str | None, typer.Option(help="only u8 or f32; f16, bf16, f64 of your own case")] = None,
    format: Annotated[str | None, typer.Option(help="only CF (channels first) or CL (channels last)")] = None,
    columns: Annotated[
        str | None, typer.Option(help="names with commas between; all that can run, if not said")
    ] = None,
    fusion: Annotated[bool, typer.Option(help="polyphase-compiled, or polyphase-unfused instead")] = True,
    dynamic: Annotated[
        bool | None, typer.Option("--dynamic/--static", help="torch.compile's; its own choice, if not said")
    ] = None,
    recompile_limit: Annotated[int | None, typer.Option(help="torch.compile's; 8, if not said")] = None,
    tag: Annotated[str, typer.Option(help="put behind the titles, to tell builds apart")] = "",
    input: Annotated[str | None, typer.Option(help="a case of your own: its shape, 1,3,480,640")] = None,
    size: Annotated[str | None, typer.Option(help="what it is resized to, 224,224")] = None,
    antialias: Annotated[bool, typer.Option("--antialias", help="of a case of your own")] = False,
    align_corners: Annotated[bool, typer.Option("--align-corners", help="of a case of your own")] = False,
    out: Annotated[Path, typer.Option(help="where the results go")] = Path("bench-results"),
    page: Annotated[Path | None, typer.Option("--report", help="write the page of `polyphase report` too")] = None,
) -> None:
    """Measure. Every column (one way to run a case) is checked before it is timed; Ctrl-C keeps what was measured."""
    from polyphase.bench import compare, report, results, session, tables

    request = session.Request(
        suite, quick, device, threads, mode, dtype, format, columns, fusion, dynamic, recompile_limit, tag,
        input, size, antialias, align_corners,
    )  # fmt: skip
    plan = session.plan(request)
    results.make_directory(out)
    if plan.environment.busy:
        typer.echo(f"the machine is {plan.environment.busy}; better measure when it is idle", err=True)
    with _progress(plan.steps) as tell:
        run = session.execute(plan, tell)
    if not run.complete:
        typer.echo("interrupted: this is what was measured", err=True)
    path = results.save(run, out)
    typer.echo(tables.as_text(compare.tables([run])))
    typer.echo(f"results: {path}")
    if page is not None:
        report.write([run], page)
        typer.echo(f"report: {page}")
    if not run.complete:
        raise typer.Exit(INTERRUPTED)


@contextmanager
def _progress(steps: int) -> Iterator[Callable[[str], None]]:
    """A function to call with the name of each step that begins. On a terminal it moves a bar, whose counts are never
    cut off; elsewhere it prints a line."""
    console = rich.console.Console(stderr=True)
    done = iter(range(steps + 1))
    if not console.is_terminal:
        yield lambda doing: typer.echo(f"{next(done)}/{steps} {doing}", err=True)
        return
    doing_now = TextColumn("{task.description}", table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis"))
    bar = (MofNCompleteColumn(), BarColumn(bar_width=16), TimeElapsedColumn(), TimeRemainingColumn(), doing_now)
    with Progress(*bar, console=console, expand=True) as progress:
        task = progress.add_task("starting", total=steps)
        yield lambda doing: progress.update(task, description=doing, completed=next(done))


@app.command("compare")
def compare_runs(
    files: Annotated[list[Path], typer.Argument(help="what `polyphase bench` wrote")],
    pairs: Annotated[
        list[str] | None,
        typer.Option("--compare", help="'REGEX;REGEX;title': the speed-up of the first column over the second"),
    ] = None,
    format: Annotated[str, typer.Option("--format", "-f", help="text, markdown or json")] = "text",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="a file, instead of the screen")] = None,
    fail_below: Annotated[
        float | None, typer.Option(help="exit status 1 if a speed-up is below this, beyond the noise")
    ] = None,
) -> None:
    """Compare runs, or columns of a run; differences within the noise are marked."""
    from polyphase.bench import compare, documents, results, tables

    runs = [results.load(path) for path in files]
    found = compare.tables(runs, pairs or ())
    text = tables.rendered(found, runs, format)
    if output is None:
        typer.echo(text)
    else:
        documents.put(text, output)
    slower = compare.slower_than(found, fail_below) if fail_below is not None else []
    for line in slower:
        typer.echo(f"below {fail_below:g}: {line}", err=True)
    if slower:
        raise typer.Exit(1)


@app.command("report")
def write_report(
    files: Annotated[list[Path], typer.Argument(help="what `polyphase bench` wrote")],
    output: Annotated[Path, typer.Option("--output", "-o", help="the page")] = Path("report.html"),
) -> None:
    """Write one HTML page of bars, tables, pictures and the environment; it needs no network."""
    from polyphase.bench import report, results

    report.write([results.load(path) for path in files], output)
    typer.echo(f"report: {output}")


@app.command("explain")
def explain_function(
    target: Annotated[str, typer.Argument(help="SCRIPT.py:FUNCTION; its inputs come from make_inputs() beside it")],
    backend: Annotated[str, typer.Option(help="polyphase or inductor")] = "polyphase",
    json: Annotated[bool, typer.Option("--json", help="as JSON")] = False,
    save: Annotated[Path | None, typer.Option(help="a folder for every kernel as a file that runs")] = None,
) -> None:
    """Say which kernels a function becomes, what was fused, what was not and why."""
    from polyphase.explaining import run, scripts

    function, inputs = scripts.load(target)
    explanation = run.explain(function, backend)(*inputs)
    typer.echo(explanation.to_json() if json else str(explanation))
    for path in explanation.save(save) if save else ():
        typer.echo(f"saved {path}", err=True)


@app.command()
def env() -> None:
    """Say what will run where: instruction set, compiler, cache, Triton, device."""
    from polyphase.bench import environment

    found = environment.where_it_runs()
    width = max(map(len, found))
    for name, value in found.items():
        typer.echo(f"{name:{width}}  {value}")


@cache_app.command("list")
def cache_list() -> None:
    """List the libraries, the latest used first: when each was used, how large it is, and what it is for."""
    from polyphase.bench.environment import megabytes, prebuilt
    from polyphase.kernels import store

    entries = store.entries()
    for path, size, used in entries:
        when = datetime.fromtimestamp(used).strftime("%Y-%m-%d %H:%M")
        name = path.name[: -len(path.suffix) - store.KEY_DIGITS + 8]  # as much of it as tells libraries apart
        typer.echo(f"{when}  {size / 1000:6.0f} kB  {name:17}  {store.purpose(path) or 'damaged: to be built again'}")
    typer.echo(f"{len(entries)} libraries, {megabytes(one.size for one in entries)}")
    if store.prebuilt_targets():
        typer.echo(f"with the package came {prebuilt()}")


@cache_app.command("clear")
def cache_clear() -> None:
    """Remove the libraries; kernels are built again when they are asked for."""
    from polyphase.kernels import store

    number = len(store.entries())
    store.clear()
    typer.echo(f"removed {number} libraries")


@cache_app.command("path")
def cache_path() -> None:
    """Print where the libraries are; POLYPHASE_CACHE_DIR puts them elsewhere."""
    from polyphase import settings

    typer.echo(str(settings.cache_dir()))


if __name__ == "__main__":
    app()
