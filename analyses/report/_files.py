"""Where the numbers of a report lie: links from the page to the files of a result's folder."""

import os
from pathlib import Path
from urllib.parse import quote

_PATTERNS = ("result.json", "tables/[!.]*.parquet", "arrays.safetensors", "figures/[!.]*.svg")


def linked_files(folder: str | Path | None, page: Path) -> dict[str, str]:
    """Address of every raw file of a result, seen from the page, by its name in the folder.

    Args:
        folder: Of the result; none if it is not known.
        page: The HTML file.

    Returns:
        Empty where the folder holds no result, or no relative way leads there.
    """
    if folder is None or not (Path(folder) / "result.json").is_file():
        return {}
    folder = Path(folder)
    try:
        way = os.path.relpath(folder.resolve(), page.resolve().parent)
    except ValueError:  # another drive
        return {}
    found = [path for pattern in _PATTERNS for path in sorted(folder.glob(pattern))]
    names = [path.relative_to(folder).as_posix() for path in found]
    return {name: quote(f"{Path(way).as_posix()}/{name}".removeprefix("./")) for name in names}
