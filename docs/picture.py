"""The picture of the README: the first screen of the demo's report, as a headless Chromium shows it.

Run: make picture. It needs Chromium; the demo takes about 15 seconds. Few colours keep the file small.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

TARGET = Path(__file__).parent / "_static" / "report.png"
WIDTH, HEIGHT, SCALE, COLOURS = 900, 940, 1.5, 48
LARGEST = 150_000  # bytes


def take_picture(target: Path) -> int:
    """Run the demo, show its first page, write the picture, and return its size in bytes."""
    browser = next(
        filter(
            None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
        ),
        None,
    )
    if browser is None:
        raise SystemExit("no Chromium was found: install chromium")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        demo = [
            sys.executable,
            "-m",
            "caliope",
            "demo",
            "--quiet",
            "--fail-on",
            "never",
        ]
        subprocess.run(demo, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        shot, page = Path(folder) / "shot.png", Path(folder) / "caliope-demo.html"
        flags = "--headless --no-sandbox --disable-gpu --hide-scrollbars --disable-background-networking"
        size = [
            f"--window-size={WIDTH},{HEIGHT}",
            f"--force-device-scale-factor={SCALE}",
        ]
        files = [
            f"--user-data-dir={folder}/profile",
            f"--screenshot={shot}",
            page.as_uri(),
        ]
        subprocess.run(
            [browser, *flags.split(), *size, *files],
            check=True,
            stderr=subprocess.DEVNULL,
        )
        with Image.open(shot) as image:
            image.convert("RGB").quantize(COLOURS).save(target, optimize=True)
    return target.stat().st_size


if __name__ == "__main__":
    found = take_picture(TARGET)
    print(f"{TARGET.name}: {found} bytes")
    sys.exit(int(found > LARGEST))
