"""A test of a user, in plain Python, with the crossstream that is installed: `make release` runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import crossstream as cs


def joined() -> list[dict[str, object]]:
    """The results of a foreign-key join whose right row changes."""
    builder = cs.StreamsBuilder()
    products, merchants = builder.table("products"), builder.table("merchants")
    offers = products.join(merchants, foreign_key="merchant_id", on_merge=cs.prefixed("merchant_"))
    offers.to("offers")
    with cs.TopologyTestDriver(builder.build()) as driver:
        left = driver.create_input_topic("products", str, dict)
        right = driver.create_input_topic("merchants", str, dict)
        left.pipe_input("scarf", {"price": 19.5, "merchant_id": "m1"}, timestamp=1_000)
        right.pipe_input("m1", {"name": "Knit & Co"}, timestamp=2_000)
        right.pipe_input("m1", {"name": "Best Knits"}, timestamp=3_000)
        return list(driver.create_output_topic("offers", str, dict).read_values())


def main() -> int:
    place = Path(cs.__file__).resolve()
    if not place.is_relative_to(Path(sys.prefix).resolve()):
        sys.exit(f"crossstream is not the installed one: {place}")
    found = [row["merchant_name"] for row in joined()]
    if found != ["Knit & Co", "Best Knits"]:
        sys.exit(f"the join gives {found}")
    command = Path(sys.executable).parent / "crossstream"
    version = subprocess.run([command, "--version"], capture_output=True, text=True, check=True).stdout
    if cs.__version__ not in version:
        sys.exit(f"crossstream --version prints {version!r}, and the package is {cs.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
