"""Make the pictures of the documentation from real runs: `make pictures` writes docs/images.

A simulated cluster runs, the commands run beside it, and what they print becomes SVG. The pictures load nothing and
contain no script. Times and names differ from run to run; what is shown does not.
"""

from __future__ import annotations

import fcntl
import html
import io
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, cast

from kubernetes import client, config
from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
NODESMITH = (sys.executable, "-m", "nodesmith_cli.main")
COLUMNS, ROWS = 104, 30
TOP_COLUMNS, TOP_ROWS = 118, 18
PATIENCE_SECONDS = 240.0
HOLD_SECONDS = 1.6
LAST_SECONDS = 9.0
TOGETHER_SECONDS = 0.4
"""Lines that are printed within this time appear together."""
THEME = TerminalTheme(
    (22, 27, 34),
    (214, 222, 231),
    [
        (72, 79, 88),
        (255, 123, 114),
        (86, 211, 100),
        (227, 179, 65),
        (108, 182, 255),
        (210, 168, 255),
        (86, 212, 221),
        (201, 209, 217),
    ],
)
CHAR_WIDTH, LINE_HEIGHT = 12.2, 24.4
"""Of Rich's pictures, in pixels."""
ANIMATED = """\
<svg viewBox="0 0 [width] [height]" xmlns="http://www.w3.org/2000/svg" role="img">
<title>[title]</title>
<style>
.{unique_id}-matrix {{ font: {char_height}px ui-monospace, Menlo, Consolas, monospace }}
.{unique_id}-title {{ font: bold 18px arial }}
{styles}
[style]
</style>
<defs>{lines}</defs>
<rect fill="#161b22" x="0" y="0" width="[width]" height="[height]" rx="8"/>
<text class="{unique_id}-title" fill="#d6dee7" text-anchor="middle" x="50%" y="27">[title]</text>
<g transform="translate(26,22)">
<circle r="7" fill="#ff5f57"/><circle cx="22" r="7" fill="#febc2e"/><circle cx="44" r="7" fill="#28c840"/>
</g>
<svg x="9" y="41" width="[width]" height="[rows]">
<g class="{unique_id}-scroll">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
<rect class="{unique_id}-cover" fill="#161b22" width="[width]" height="[rows]"/>
</svg>
</svg>
"""
"""Rich's format of a picture, with a window over the lines."""
_FONT_FACE = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


class Frame(NamedTuple):
    """How many lines a terminal has printed, and for how many seconds no more come."""

    printed: int
    seconds: float


def recorded(lines: Sequence[str], columns: int) -> Console:
    """Return a console that has printed lines with ANSI colours."""
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
    for line in lines:
        console.print(Text.from_ansi(line), soft_wrap=False, overflow="fold")
    return console


def picture(lines: Sequence[str], title: str, name: str, columns: int = COLUMNS) -> str:
    """Return lines with ANSI colours as an SVG of a terminal. `name` makes ids unique in a page."""
    return without_fonts(recorded(lines, columns).export_svg(title=title, theme=THEME, unique_id=name))


def without_fonts(svg: str) -> str:
    """Return a picture of Rich's without the fonts that it would fetch."""
    return _FONT_FACE.sub("", svg).replace("Fira Code, monospace", "ui-monospace, Menlo, Consolas, monospace")


def animation(lines: Sequence[str], frames: Sequence[Frame], title: str, name: str) -> str:
    """Return lines as an SVG that prints and scrolls them frame by frame, or shows the end if no motion is wanted."""
    whole, begin, steps = sum(frame.seconds for frame in frames), 0.0, []
    for frame in frames:
        moved, hidden = -max(frame.printed - ROWS, 0), min(frame.printed, ROWS)
        steps.append((100 * begin / whole, moved * LINE_HEIGHT, hidden * LINE_HEIGHT))
        begin += frame.seconds
    scroll = " ".join(f"{at:.2f}% {{ transform: translateY({moved:.1f}px) }}" for at, moved, _ in steps)
    cover = " ".join(f"{at:.2f}% {{ transform: translateY({hidden:.1f}px) }}" for at, _, hidden in steps)
    window = {
        "width": COLUMNS * CHAR_WIDTH + 20,
        "height": ROWS * LINE_HEIGHT + 52,
        "rows": ROWS * LINE_HEIGHT,
    }
    parts = {"scroll": (scroll, steps[-1][1]), "cover": (cover, steps[-1][2])}
    style = " ".join(
        f"@keyframes {name}-{part} {{ {moves} }} .{name}-{part} {{ transform: translateY({last:.1f}px); "
        f"animation: {name}-{part} {whole:.0f}s step-end infinite }}"
        for part, (moves, last) in parts.items()
    )
    style += " @media (prefers-reduced-motion: reduce) { g, rect { animation: none !important } }"
    framed = ANIMATED.replace("[style]", style.replace("{", "{{").replace("}", "}}"))
    framed = framed.replace("[title]", html.escape(title))
    for key, value in window.items():
        framed = framed.replace(f"[{key}]", f"{value:.0f}")
    return recorded(lines, COLUMNS).export_svg(title=title, theme=THEME, code_format=framed, unique_id=name)


def environment(home: Path, columns: int = COLUMNS) -> dict[str, str]:
    """Return the environment of commands: no account, no other cluster, colours."""
    kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
    return {
        **kept,
        "HOME": str(home),
        "KUBECONFIG": str(home / ".kube" / "nodesmith-local"),
        "AWS_EC2_METADATA_DISABLED": "true",
        "FORCE_COLOR": "1",
        "TTY_INTERACTIVE": "0",  # lines instead of bars that are drawn again and again
        "COLUMNS": str(columns),
        "TERM": "xterm-256color",
        "COLORTERM": "truecolor",
    }


def lines_of(home: Path, *arguments: str) -> list[str]:
    """Return what a command prints. Raises CalledProcessError if it fails."""
    told = subprocess.run(
        [*NODESMITH, *arguments], env=environment(home), capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [f"\x1b[1m$ nodesmith {' '.join(arguments)}\x1b[0m", *told.stdout.rstrip().splitlines()]


def demo(home: Path) -> str:
    """Return the demo as it prints."""
    command = "nodesmith demo"
    frames, lines, began = [], [f"\x1b[1m$ {command}\x1b[0m"], time.monotonic()
    with subprocess.Popen(
        [*NODESMITH, "demo"], env=environment(home), stdout=subprocess.PIPE, text=True, cwd=ROOT
    ) as running:
        for line in running.stdout or ():
            now = time.monotonic()
            if now - began > TOGETHER_SECONDS:
                frames.append(Frame(len(lines), min(now - began, HOLD_SECONDS)))
                began = now
            lines += wrapped(line.rstrip("\n"))
    if running.returncode:
        raise subprocess.CalledProcessError(running.returncode, command)
    return animation(lines, [*frames, Frame(len(lines), LAST_SECONDS)], command, "demo")


def wrapped(line: str) -> list[str]:
    """Return a line as the lines of a terminal."""
    found = Text.from_ansi(line).wrap(Console(), COLUMNS, overflow="fold", no_wrap=False)
    console = Console(width=COLUMNS, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    with console.capture() as told:
        console.print(*found, sep="\n")
    return told.get().rstrip("\n").split("\n")


@contextmanager
def local_cluster(home: Path) -> Iterator[client.AppsV1Api]:
    """Run `nodesmith local up` and yield a client of its API server."""
    kubeconfig = home / ".kube" / "nodesmith-local"
    command = [*NODESMITH, "local", "up", "--speed", "2"]
    with (home / "up.log").open("w") as log:
        running = subprocess.Popen(command, env=environment(home), stdout=log, stderr=log, cwd=ROOT)
    try:
        wait_until(kubeconfig.exists, "a kubeconfig")
        config.load_kube_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        wait_until(lambda: "Ctrl-C ends it" in (home / "up.log").read_text(), "the cluster")
        yield client.AppsV1Api()
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(60)


def wait_until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds. Raises TimeoutError."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        if time.monotonic() > until:
            raise TimeoutError(f"{what} did not come within {PATIENCE_SECONDS:.0f} s")
        time.sleep(0.5)


def deployment(name: str, replicas: int, cpu: str, memory: str, **labels: str) -> dict[str, Any]:
    """Return a Deployment whose pods request cpu and memory."""
    app = {"app": name, **labels}
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": name, "image": "registry.example.com/app", "resources": {"requests": requests}}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": app}, "spec": {"containers": [container]}},
        },
    }


def top(home: Path, after_seconds: int = 8) -> str:
    """Return the screen of `nodesmith top` some seconds after its start, as Textual draws it."""
    target = home / "top.svg"
    target.unlink(missing_ok=True)
    asked = {
        "TEXTUAL_SCREENSHOT": str(after_seconds),
        "TEXTUAL_SCREENSHOT_LOCATION": str(home),
        "TEXTUAL_SCREENSHOT_FILENAME": target.name,
    }
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(ROOT)
        os.execve(NODESMITH[0], [*NODESMITH, "top"], environment(home, TOP_COLUMNS) | asked)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", TOP_ROWS, TOP_COLUMNS, 0, 0))
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                if not os.read(terminal, 65536):
                    break
            except OSError:  # Linux reports the end of a terminal as an error
                break
    os.close(terminal)
    os.waitpid(pid, 0)
    return without_fonts(target.read_text())


def write(name: str, svg: str) -> None:
    """Write a picture."""
    IMAGES.mkdir(exist_ok=True)
    (IMAGES / f"{name}.svg").write_text(svg)
    print(f"docs/images/{name}.svg {len(svg) / 1024:.0f} KiB", flush=True)


WORKLOADS = (
    deployment("web", 24, "750m", "1500Mi"),
    deployment("api", 16, "1", "3Gi"),
    deployment("cache", 4, "2", "14Gi"),
)


def main() -> None:
    """Make all pictures."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        write("demo", demo(home / "demo"))
        planned = lines_of(home, "plan", "-f", "examples/gpu-beside-general")
        write("plan", picture(planned, "nodesmith plan", "plan"))
        with local_cluster(home) as apps:
            day(home, apps)


def node_names(core: client.CoreV1Api) -> set[str]:
    """Return the names of the cluster's nodes."""
    found: Any = core.list_node().items  # the client's types make everything optional
    return {each.metadata.name for each in found}


def busiest(core: client.CoreV1Api) -> str:
    """Return the name of the node with the most pods."""
    pods: Any = core.list_namespaced_pod("default").items
    return max(Counter(str(pod.spec.node_name) for pod in pods).items(), key=itemgetter(1))[0]


def day(home: Path, apps: client.AppsV1Api) -> None:
    """Make the pictures of the tour, from the morning's pods to the evening."""
    core = client.CoreV1Api()

    def run(count: int) -> bool:
        found: Any = core.list_namespaced_pod("default").items
        return len(found) == count and all(pod.status.phase == "Running" for pod in found)

    for each in WORKLOADS:
        apps.create_namespaced_deployment("default", cast(Any, each))
    write("tour-pending", top(home))
    wait_until(partial(run, 44), "the morning's pods")
    write("tour-running", top(home, after_seconds=30))  # by then it has compared the nodes with a plan
    for name in ("decision latest", "nodepool"):
        command = ["explain", *name.split()]
        title = f"nodesmith {' '.join(command)}"
        write(f"explain-{command[1]}", picture(lines_of(home, *command), title, command[1]))
    write("savings", picture(lines_of(home, "savings"), "nodesmith savings", "savings"))
    nodes = node_names(core)
    largest = busiest(core)
    lines_of(home, "local", "interrupt", largest)
    write("tour-interrupted", top(home))
    wait_until(lambda: largest not in node_names(core), "its end")
    wait_until(partial(run, 44), "the interrupted pods")
    apps.patch_namespaced_deployment_scale("web", "default", {"spec": {"replicas": 4}})
    wait_until(partial(run, 24), "the evening's pods")
    write("tour-evening", top(home))
    wait_until(lambda: len(node_names(core)) < len(nodes), "fewer nodes")
    write("tour-night", top(home))


if __name__ == "__main__":
    main()
