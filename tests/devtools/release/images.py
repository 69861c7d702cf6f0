"""Small images for tests, without a program that builds images."""

import hashlib
import io
import json
import tarfile
from pathlib import Path

import httpx

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
CONFIG = {"architecture": "amd64", "os": "linux", "config": {}}


def push_empty_image(host: str, name: str) -> str:
    """Put an image without layers into a registry without TLS; its reference with the digest."""
    config = json.dumps({**CONFIG, "rootfs": {"type": "layers", "diff_ids": []}, "author": name}).encode()
    described = {"mediaType": CONFIG_TYPE, "digest": digest(config), "size": len(config)}
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "config": described, "layers": []}
    data = json.dumps(manifest).encode()
    with httpx.Client(base_url=f"http://{host}/v2/{name}/") as registry:
        upload = registry.post("blobs/uploads/").raise_for_status().headers["Location"]
        registry.put(httpx.URL(upload).copy_merge_params({"digest": digest(config)}), content=config).raise_for_status()
        registry.put("manifests/1", content=data, headers={"Content-Type": MANIFEST_TYPE}).raise_for_status()
    return f"{host}/{name}@{digest(data)}"


def write_image(archive: Path, files: dict[str, str]) -> None:
    """An archive of docker with an image of one layer that has these files."""
    layer = packed({name: text.encode() for name, text in files.items()})
    config = json.dumps({**CONFIG, "rootfs": {"type": "layers", "diff_ids": [digest(layer)]}}).encode()
    manifest = [{"Config": "config.json", "RepoTags": ["test:1"], "Layers": ["layer.tar"]}]
    parts = {"manifest.json": json.dumps(manifest).encode(), "config.json": config, "layer.tar": layer}
    archive.write_bytes(packed(parts))


def packed(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for name, data in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return buffer.getvalue()


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
