"""What is in the packages: the same bytes from each build, real files, and nothing of the tests."""

import json
import subprocess
import tarfile
import zipfile
from hashlib import sha256
from pathlib import Path

from domain import __version__
from tests.release.conftest import EXTRAS, ROOT, TOOLS
from tests.release.figures import report

NAMES = {
    f"spillgate-{__version__}-py3-none-any.whl",
    f"spillgate-{__version__}.tar.gz",
    f"spillgate_client-{__version__}-py3-none-any.whl",
    f"spillgate_client-{__version__}.tar.gz",
    f"spillgate-client-{__version__}.tgz",
}


def hashes(folder: Path) -> dict[str, str]:
    return {path.name: sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_two_builds_are_the_same_bytes_and_checksums_name_them(dists: tuple[Path, Path]) -> None:
    one, two = map(hashes, dists)
    assert set(one) == NAMES | {"SHA256SUMS"}
    assert one == two
    subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=dists[0], check=True)


def test_the_wheel_has_real_files_of_the_product_alone(dist: Path) -> None:
    path = dist / f"spillgate-{__version__}-py3-none-any.whl"
    assert path.stat().st_size <= 1.25 * (1 << 20)
    report("wheel", path.stat().st_size / (1 << 20), 1.25, "MiB")
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        for name in ("http1.py", "addresses.py"):
            linked = wheel.getinfo(f"machine/{name}")
            assert (linked.external_attr >> 16) & 0o170000 == 0o100000
            assert wheel.read(linked) == (ROOT / "clients/python/spillgate" / name).read_bytes()
        assert "integrations/opencode/spillgate.js" in names
        folders = {name.split("/")[0] for name in names if ".dist-info" not in name}
        metadata = wheel.read(f"spillgate-{__version__}.dist-info/METADATA").decode()
    assert not folders & {"tests", "bench", "clients", "docs", "deploy", "spillgate"}
    assert "Classifier: Programming Language :: Python :: 3.14\n" in metadata
    assert set(EXTRAS) == {
        line.partition(": ")[2] for line in metadata.splitlines() if line.startswith("Provides-Extra")
    }


def test_the_wheel_of_the_client_is_the_client_alone(dist: Path) -> None:
    with zipfile.ZipFile(dist / f"spillgate_client-{__version__}-py3-none-any.whl") as wheel:
        assert {name.split("/")[0] for name in wheel.namelist() if ".dist-info" not in name} == {"spillgate"}


def test_a_source_distribution_builds_the_wheel(dist: Path, tmp_path: Path) -> None:
    for name in ("spillgate", "spillgate_client"):
        with tarfile.open(dist / f"{name}-{__version__}.tar.gz") as archive:
            archive.extractall(tmp_path, filter="data")
        source = tmp_path / f"{name}-{__version__}"
        build = [
            TOOLS / "python",
            "-m",
            "build",
            "--no-isolation",
            "--wheel",
            "--quiet",
            "--outdir",
            tmp_path,
        ]
        subprocess.run([*build, source], check=True)
        wheel = f"{name}-{__version__}-py3-none-any.whl"
        with zipfile.ZipFile(dist / wheel) as one, zipfile.ZipFile(tmp_path / wheel) as two:
            assert {name: one.read(name) for name in one.namelist()} == {
                name: two.read(name) for name in two.namelist()
            }


def test_the_npm_package_has_source_and_types_alone(dist: Path) -> None:
    with tarfile.open(dist / f"spillgate-client-{__version__}.tgz") as archive:
        names = {name.removeprefix("package/") for name in archive.getnames()}
        member = archive.extractfile("package/package.json")
        assert member is not None
        package = json.load(member)
    assert {name.split("/")[0] for name in names} == {"src", "types", "LICENSE", "README.md", "package.json"}
    assert {"src/index.js", "types/index.d.ts", "types/ai.d.ts"} <= names
    assert "dependencies" not in package
