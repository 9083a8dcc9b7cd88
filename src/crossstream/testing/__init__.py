"""Testing topologies in the process: no JVM, no broker, the production operators."""

from crossstream.testing.driver import TestRecord, TopologyTestDriver
from crossstream.testing.topics import TestInputTopic, TestOutputTopic

__all__ = ["TestInputTopic", "TestOutputTopic", "TestRecord", "TopologyTestDriver"]
