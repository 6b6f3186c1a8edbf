"""The packages of the wheel: they stand at the top of the checkout, and inside `relascope` there.

Everything else about the package is in pyproject.toml.
"""

from pathlib import Path

from setuptools import find_packages, setup

ROOMS = {p.parent.name for p in Path(__file__).parent.glob("*/__init__.py")} - {"relascope"}

setup(
    package_dir={"relascope": "relascope", **{f"relascope.{room}": room for room in ROOMS}},
    packages=[
        "relascope",
        *(f"relascope.{room}" for room in sorted(ROOMS)),
        *(f"relascope.{room}.{inner}" for room in sorted(ROOMS) for inner in find_packages(room)),
    ],
)
