"""An option that a command has not: the usage of that command, and the option that was meant."""

from __future__ import annotations

import pytest

from crossstream.cli.arguments import make_parser


@pytest.mark.parametrize(
    ("words", "command", "said"),
    [
        ("run app.py --bootstrap-server h:9", "run", "--bootstrap-server (did you mean --bootstrap-servers"),
        ("run app.py --application-idd=x", "run", "--application-idd (did you mean --application-id?)"),
        ("topics list --topic-dir t", "topics list", "--topic-dir (did you mean --topics-dir?)"),
        ("topics write t --bootstrap-server h:9", "topics write", "(did you mean --bootstrap-servers?)"),
        ("query state --formt json", "query", "--formt (did you mean --format?)"),
        ("state inspect state --frmat json", "state inspect", "--frmat (did you mean --format?)"),
        ("demo --postgre", "demo", "--postgre (did you mean --postgres"),
        ("run app.py --zzz", "run", "unrecognized arguments: --zzz\n"),
        ("run app.py other", "run", "unrecognized arguments: other\n"),
    ],
)
def test_an_option_that_the_command_has_not(
    words: str, command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        make_parser().parse_args(words.split())
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"usage: crossstream {command} ")
    assert f"crossstream {command}: error: " in error
    assert said in error


def test_an_option_of_the_program(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        make_parser().parse_args(["--versoin"])
    assert "unrecognized arguments: --versoin (did you mean --version?)" in capsys.readouterr().err


def test_what_follows_two_dashes_is_no_option() -> None:
    assert (
        make_parser().parse_args(["query", "state", "store", "get", "--", "--key"]).operation[-1] == "--key"
    )
