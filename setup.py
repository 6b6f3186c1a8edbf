"""The packages of the wheel: they stand at the top of the checkout, and inside `relascope` there.

Everything else about the package is in pyproject.toml.
"""

from setuptools import find_packages, setup

ROOMS = ("commands", "core", "engine", "passes", "samples", "viz")

setup(
    package_dir={"relascope": "relascope", **{f"relascope.{room}": room for room in ROOMS}},
    packages=[
        "relascope",
        *(
            f"relascope.{package}"
            for room in ROOMS
            for package in (room, *(f"{room}.{inner}" for inner in find_packages(room)))
        ),
    ],
)
