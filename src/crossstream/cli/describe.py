"""`crossstream describe`: a topology as text, as a drawing, or as the plan that Spark runs. No JVM."""

from __future__ import annotations

from argparse import Namespace

from crossstream.cli.loading import load
from crossstream.cli.values import refuse_without


def main(arguments: Namespace) -> int:
    """Prints the topology of a file."""
    if arguments.form != "plan":
        refuse_without("--plan", "add --plan, or drop it", arguments, "partitions")
    topology = load(arguments.file).topology
    if arguments.form == "mermaid":
        text = topology.to_mermaid()
    elif arguments.form == "dot":
        text = topology.to_dot()
    elif arguments.form == "plan":
        text = topology.plan(arguments.partitions)
    else:
        text = topology.describe()
    print(text.rstrip("\n"))
    return 0
