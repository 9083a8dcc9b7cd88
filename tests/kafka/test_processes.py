"""Processes in the background."""

from __future__ import annotations

from pathlib import Path

from crossstream.kafka import broker as processes


def test_a_process_that_becomes_another_program_is_running(tmp_path: Path) -> None:
    """For a moment it has no command line: a broker on a busy machine was taken for dead then."""
    for number in range(40):
        mark = f"cross-{number}"
        command = ["/bin/sh", "-c", "exec /bin/sh -c 'sleep 5' \"$0\"", mark]
        pid = processes.start_detached(command, tmp_path / "log", tmp_path)
        assert all(processes.is_running(pid, mark) for _ in range(20))
        assert processes.end(pid, mark, 5)
        assert not processes.is_running(pid, mark)
