"""What `explain` gives its users: data that prints itself, becomes JSON, and saves its kernels."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

from polyphase.explaining import save as saving
from polyphase.explaining import show
from polyphase.explaining.model import Explained


class Explanation(Explained):
    """What became of a function, and what can be done with that."""

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2)

    def save(self, folder: str | Path) -> list[Path]:
        """Write every kernel as a file that rebuilds, checks and times itself. Edit the files by hand, and run them."""
        return saving.save(self, Path(folder))

    def __str__(self) -> str:
        return show.text_of(self)
