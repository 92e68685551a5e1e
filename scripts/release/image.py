"""image.py ROOT...: writes an OCI image of folders, a layer each, as one tar.

The same folders give the same bytes: names in order, one date, no owners. The tar is an OCI layout, and has the list
that `docker load` wants beside it. Arguments: --out FILE --name NAME --version VERSION, with SOURCE_DATE_EPOCH in the
environment.
"""

from __future__ import annotations

import argparse
import datetime
import gzip
import hashlib
import io
import json
import os
import tarfile
from pathlib import Path
from typing import Any

TITLE = "Farside"
ABOUT = "One virtual address space over host memory and any number of accelerators"
SOURCE = "https://github.com/farside-svm/farside"
LICENCES = "MIT OR Apache-2.0"
MANIFEST = "application/vnd.oci.image.manifest.v1+json"


class Layout:
    """Blobs by their digest."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def add(self, blob: bytes, media_type: str) -> dict[str, Any]:
        """A descriptor of the blob."""
        digest = hashlib.sha256(blob).hexdigest()
        self.files[f"blobs/sha256/{digest}"] = blob
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(blob)}

    def add_json(self, value: object, media_type: str) -> dict[str, Any]:
        return self.add(json.dumps(value, sort_keys=True).encode(), media_type)


def archive(members: list[tuple[tarfile.TarInfo, bytes | None]]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content) if content is not None else None)
    return out.getvalue()


def member(path: Path, name: str, date: int) -> tuple[tarfile.TarInfo, bytes | None]:
    info = tarfile.TarInfo(name)
    status = path.lstat()
    info.mode, info.mtime = status.st_mode & 0o7777, date
    if path.is_symlink():
        info.type, info.linkname = tarfile.SYMTYPE, os.readlink(path)
        return info, None
    if path.is_dir():
        info.type = tarfile.DIRTYPE
        return info, None
    content = path.read_bytes()
    info.size = len(content)
    return info, content


def layer(root: Path, date: int) -> bytes:
    paths = sorted(root.rglob("*"), key=lambda path: path.relative_to(root).parts)
    return archive([member(path, str(path.relative_to(root)), date) for path in paths])


def add_image(layout: Layout, roots: list[Path], version: str, date: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Descriptors of the manifest, and the manifest itself."""
    created = datetime.datetime.fromtimestamp(date, datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    layers, diffs = [], []
    for root in roots:
        plain = layer(root, date)
        packed = gzip.compress(plain, compresslevel=9, mtime=0)
        layers.append(layout.add(packed, "application/vnd.oci.image.layer.v1.tar+gzip"))
        diffs.append(f"sha256:{hashlib.sha256(plain).hexdigest()}")
    labels = {
        "org.opencontainers.image.title": TITLE,
        "org.opencontainers.image.description": ABOUT,
        "org.opencontainers.image.source": SOURCE,
        "org.opencontainers.image.licenses": LICENCES,
        "org.opencontainers.image.version": version,
    }
    config = {
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/usr/bin/farside"], "Cmd": ["--help"], "WorkingDir": "/", "Labels": labels},
        "rootfs": {"type": "layers", "diff_ids": diffs},
        "history": [{"created": created, "created_by": f"image.py {root.name}"} for root in roots],
    }
    manifest: dict[str, Any] = {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": layout.add_json(config, "application/vnd.oci.image.config.v1+json"),
        "layers": layers,
        "annotations": labels,
    }
    return layout.add_json(manifest, MANIFEST), manifest


def blob_path(descriptor: dict[str, Any]) -> str:
    return f"blobs/{descriptor['digest'].replace(':', '/')}"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("roots", nargs="+", type=Path)
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--version", required=True)
    given = parser.parse_args()
    date = int(os.environ["SOURCE_DATE_EPOCH"])
    layout = Layout()
    described, manifest = add_image(layout, given.roots, given.version, date)
    described["annotations"] = {
        "org.opencontainers.image.ref.name": given.version,
        "io.containerd.image.name": f"localhost/{given.name}:{given.version}",
    }
    index = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    }
    docker = {
        "Config": blob_path(manifest["config"]),
        "RepoTags": [f"{given.name}:{given.version}"],
        "Layers": [blob_path(descriptor) for descriptor in manifest["layers"]],
    }
    layout.files["oci-layout"] = json.dumps({"imageLayoutVersion": "1.0.0"}).encode()
    layout.files["index.json"] = json.dumps(index, sort_keys=True).encode()
    layout.files["manifest.json"] = json.dumps([docker], sort_keys=True).encode()
    members: list[tuple[tarfile.TarInfo, bytes | None]] = []
    for name, content in sorted(layout.files.items()):
        info = tarfile.TarInfo(name)
        info.size, info.mode, info.mtime = len(content), 0o644, date
        members.append((info, content))
    given.out.write_bytes(archive(members))


if __name__ == "__main__":
    main()
