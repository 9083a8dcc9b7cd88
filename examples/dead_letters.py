"""Bad records go to a topic of their own, with the reason; the application goes through.

python examples/dead_letters.py
crossstream run examples/dead_letters.py --topics-dir topics --processing-errors dead-letter:readings-bad
"""

from __future__ import annotations

import crossstream as cs
from crossstream import serdes

JSON = serdes.json()


def build() -> cs.Topology:
    builder = cs.StreamsBuilder()
    readings = builder.stream("readings")
    readings.map_values(lambda reading: 1 / reading["ohm"], named=cs.Named("siemens")).to(
        "conductances", cs.Produced(value=serdes.float64())
    )
    return builder.build()


def main() -> None:
    letters = cs.DeadLetter("readings-bad")
    with cs.TopologyTestDriver(build(), processing_errors=letters, deserialization_errors=letters) as driver:
        readings = driver.create_input_topic("readings", str, bytes)
        for key, value in (("r1", b'{"ohm": 4}'), ("r2", b'{"ohm": 0}'), ("r3", b"not JSON")):
            readings.pipe_input(key, value)

        good = driver.create_output_topic("conductances", str, float)
        assert good.read_key_values() == [("r1", 0.25)]

        bad = driver.create_output_topic("readings-bad", str, bytes).read_records()
        for record in bad:
            headers = {name: text.decode() for name, text in record.headers}
            print(record.key, headers["crossstream.operator"], headers["crossstream.reason"], sep=": ")
        assert [record.key for record in bad] == ["r2", "r3"]
        assert driver.metrics()["dropped"] == {"siemens: failed": 1, "readings: undecodable": 1}


if __name__ == "__main__":
    main()
