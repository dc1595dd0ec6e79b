"""The packages that the benchmarks migrate: source distributions from PyPI, pinned by version and hash."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass
from pathlib import Path


class Unavailable(Exception):
    """A package could not be downloaded. The message explains why."""


@dataclass(frozen=True)
class Package:
    """A pinned source distribution.

    Attributes:
        name: name on PyPI.
        version: version of the release.
        file: file name of the source distribution.
        sha256: SHA-256 of the file.
    """

    name: str
    version: str
    file: str
    sha256: str


PACKAGES: tuple[Package, ...] = (
    Package(
        "accelerate",
        "1.15.0",
        "accelerate-1.15.0.tar.gz",
        "5654f8c5eaa0d4fa68b33e287a97765da6849bf6d51dcac874e73fbbddfb6134",
    ),
    Package(
        "avalanche-lib",
        "0.6.0",
        "avalanche_lib-0.6.0.tar.gz",
        "8d0886e76dbc2a769aa581aa879c711fcf7fa069291bb9986dffdd5d07f91d4a",
    ),
    Package(
        "pytorch-ignite",
        "0.5.5",
        "pytorch_ignite-0.5.5.tar.gz",
        "2c14de75c939a3cc06d2e7de00b1e0a261917ef9bd874dac2e69d789dfa9cc64",
    ),
    Package(
        "opacus",
        "1.6.0",
        "opacus-1.6.0.tar.gz",
        "20d77252c1e8528cd5826fbaba345cd39ed5c3edb841707eafb6403fe276140a",
    ),
    Package(
        "lightning",
        "2.6.6",
        "lightning-2.6.6.tar.gz",
        "1c6329e241f8a85f29fedead89c1ee138b36caa08de60c260c6a7eaee81c8295",
    ),
    Package(
        "mosaicml",
        "0.32.1",
        "mosaicml-0.32.1.tar.gz",
        "417c8aa574e22d39368a434eec0800268b275cb1cc2c8af8bc187475da4953d3",
    ),
    Package(
        "flair",
        "0.15.1",
        "flair-0.15.1.tar.gz",
        "780b4eeffba044c4a181f1810872fc01201c2eaed8d2ef4bcb126a6464e91933",
    ),
    Package(
        "torch-geometric",
        "2.8.1",
        "torch_geometric-2.8.1.tar.gz",
        "3d4431567fcf4865a29cfec25c52484382dd38fd46a45fb4f9d473545d64b812",
    ),
    Package(
        "anomalib",
        "2.7.0",
        "anomalib-2.7.0.tar.gz",
        "cc2f5fb457be8a344cbc8d31fc83e8269a7d6a5bdcf76e273f4e436d96aaa7e9",
    ),
    Package(
        "pykeen",
        "1.11.1",
        "pykeen-1.11.1.tar.gz",
        "702cb807c354a0d2fce0f0593db46e1fe15fba2a37e92bbb18cd1b9d0a85fe13",
    ),
    Package(
        "captum",
        "0.9.0",
        "captum-0.9.0.tar.gz",
        "e4868e22b68224f1a5355d2b7966803c021cf9fe5d893f51f587b4002a666b54",
    ),
    Package(
        "pythae",
        "0.1.2",
        "pythae-0.1.2.tar.gz",
        "191824894f1b49dc425dea4a53dc24491ebdbe22334298b4ac42e9f0b0726b09",
    ),
    Package(
        "skorch",
        "1.4.0",
        "skorch-1.4.0.tar.gz",
        "f7a5d3c13a3aecf0a0fe689ff25188be1145a95268f8fe81f01aaa9fbd7cead1",
    ),
    Package(
        "deepspeed",
        "0.19.8",
        "deepspeed-0.19.8.tar.gz",
        "9e491abd0827ea5c389dd702e15e11e13d83d904bac4a20d6c2a4cb37207a9af",
    ),
    Package(
        "pytorch-forecasting",
        "1.8.0",
        "pytorch_forecasting-1.8.0.tar.gz",
        "f7de2af2fb7ce0c4ef73287666b8b79391485ff55883c974b6267b505adf0422",
    ),
    Package(
        "timm",
        "1.0.31",
        "timm-1.0.31.tar.gz",
        "baa0b333339c46d3d6d4965d99b69f5053afed71210e8f433d7ea5ee6a18f0ec",
    ),
    Package(
        "asteroid",
        "0.7.0",
        "asteroid-0.7.0.tar.gz",
        "0326f28c5342495cb08ba0520efd0e21e39435dfd78854837fdd5a6c9c9ca410",
    ),
    Package(
        "transformers",
        "5.23.0",
        "transformers-5.23.0.tar.gz",
        "19d647a4d5d903a7c644ca5cde2d86efc3dde7d8c687ae7988806ff2205efa71",
    ),
)


def default_cache() -> Path:
    """Return the folder for downloads."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "chirp-migrate-bench"


def fetch(package: Package, cache: Path) -> Path:
    """Return the path of the source distribution, in ``cache``; download it if it is missing.

    Raises:
        Unavailable: pip cannot download the file, or its hash differs.
    """
    path = cache / package.file
    if not path.exists():
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as folder:
            wanted = Path(folder) / "requirements.txt"
            wanted.write_text(f"{package.name}=={package.version} --hash=sha256:{package.sha256}\n", encoding="utf-8")
            pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", package.name]
            command = [*pip, "--require-hashes", "--dest", str(cache), "--requirement", str(wanted)]
            ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if not path.exists():
            raise Unavailable(f"{package.name} {package.version} was not downloaded: {ended.stderr.strip()[-300:]}")
    if hashlib.sha256(path.read_bytes()).hexdigest() != package.sha256:
        raise Unavailable(f"{path} is not the pinned {package.name} {package.version}: remove it and try again")
    return path


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a source distribution below ``folder``, and return the root of its tree."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as file:
        file.extractall(folder, filter="data")
    (root,) = (path for path in folder.iterdir() if path.is_dir())
    return root
