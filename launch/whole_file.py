"""Writes small files whole: a reader sees the old content or the new one, also after a crash or on a full disk."""
import pathlib


def write_whole(path, data):
    """Replaces the file with a text or bytes, by a rename. Raises OSError and leaves the old file."""
    unfinished = pathlib.Path(f"{path}.unfinished")
    try:
        unfinished.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
        unfinished.replace(path)
    except OSError:
        unfinished.unlink(missing_ok=True)
        raise
