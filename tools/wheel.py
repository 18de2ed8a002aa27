"""Writes Python wheels: files with their digests in a ZIP archive (packaging.python.org, "Binary distribution format")."""

import base64
import hashlib
import pathlib
import zipfile

TAG = "py3-none-manylinux_2_36_x86_64"
# A fixed date for all files, so that the same build gives the same bytes.
DATE = (2020, 1, 1, 0, 0, 0)

METADATA = """Metadata-Version: 2.1
Name: {name}
Version: {version}
Summary: {summary}
License: Apache-2.0
Requires-Python: >=3.9
Classifier: Operating System :: POSIX :: Linux
Classifier: Programming Language :: Python :: 3 :: Only
{fields}Description-Content-Type: text/markdown

{description}"""


def write_info(folder, package, version, summary, fields, description):
    """Makes the .dist-info folder, into which licences go too; returns it. `fields` are more lines of METADATA."""
    info = folder / f"{package}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(METADATA.format(name=package.replace("_", "-"), version=version, summary=summary,
                                                   fields="".join(f"{field}\n" for field in fields), description=description))
    (info / "WHEEL").write_text(f"Wheel-Version: 1.0\nGenerator: tools/make_wheel.py\nRoot-Is-Purelib: false\nTag: {TAG}\n")
    return info


def digest(data):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()


def write_wheel(folder, info, target):
    """Writes all files of `folder` as one wheel in the folder `target`. Returns its path."""
    path = target / f"{info.name.removesuffix('.dist-info')}-{TAG}.whl"
    record = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        def add(name, data, mode):
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = (0o100000 | mode) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data, compresslevel=6)  # level 9 takes four times as long and saves one percent

        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            name, data = file.relative_to(folder).as_posix(), file.read_bytes()
            add(name, data, 0o755 if "/bin/" in name else 0o644)
            record.append(f"{name},{digest(data)},{len(data)}")
        name = f"{info.name}/RECORD"
        add(name, "\n".join([*record, f"{name},,"]).encode() + b"\n", 0o644)
    return path


def copy_package(source, package):
    """Copies the Python files and py.typed."""
    for file in sorted(pathlib.Path(source).rglob("*")):
        if file.suffix == ".py" or file.name == "py.typed":
            target = package / file.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(file.read_bytes())
