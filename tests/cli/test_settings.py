"""The settings of `run`: a file's, with the options on top."""

from __future__ import annotations

from pathlib import Path

import pytest

from crossstream.cli.arguments import make_parser
from crossstream.cli.loading import load, settled
from crossstream.config import DeadLetter, StreamsConfig
from crossstream.errors import ConfigError
from tests.cli.cases import APP, app_file

CONFIG = "config = cs.StreamsConfig(application_id='promo', topics_dir='topics', partitions=3{more})\n"


def made(folder: Path, *options: str, config: str | None = None) -> StreamsConfig:
    file = app_file(folder, APP + (config or ""), "my app.py")
    return settled(load(str(file)), make_parser().parse_args(["run", str(file), *options]))


def test_options_alone_will_do(tmp_path):
    config = made(tmp_path, "--topics-dir", "t", "--trigger", "2 seconds", "--partitions", "2")
    assert (config.application_id, config.topics_path, config.trigger_ms, config.partitions) == (
        "my-app",
        "t",
        2000,
        2,
    )


def test_a_config_alone_will_do(tmp_path):
    config = made(tmp_path, config=CONFIG.format(more=""))
    assert (config.application_id, config.topics_path, config.partitions) == ("promo", "topics", 3)


def test_options_win(tmp_path):
    options = ("--partitions", "5", "--retain-batches", "2", "--on-lost-state", "restart")
    config = made(tmp_path, *options, config=CONFIG.format(more=""))
    assert (config.application_id, config.partitions, config.retain_batches) == ("promo", 5, 2)
    assert config.on_lost_state == "restart"


def test_another_place_replaces_the_place(tmp_path):
    config = made(tmp_path, "--bootstrap-servers", "host:1", config=CONFIG.format(more=""))
    assert (config.servers, config.topics_path) == ("host:1", None)
    kafka = (
        "config = cs.StreamsConfig(application_id='a', bootstrap_servers='h:1', kafka={'client.id': 'x'})\n"
    )
    config = made(tmp_path, "--topics-dir", "t", config=kafka)
    assert (config.servers, config.topics_path, dict(config.kafka)) == (None, "t", {})


def test_another_name_takes_another_default_state(tmp_path):
    assert made(tmp_path, "--application-id", "b", config=CONFIG.format(more="")).state_path.endswith("/b")
    kept = made(tmp_path, "--application-id", "b", config=CONFIG.format(more=", state_dir='s'"))
    assert kept.state_path == "s"


def test_settings_of_clients_are_added(tmp_path):
    config = made(
        tmp_path,
        "--spark", "spark.master=local[1]", "--spark", "spark.x=a=b",
        config=CONFIG.format(more=", spark={'spark.y': '1'}"),
    )  # fmt: skip
    assert config.spark == {"spark.y": "1", "spark.master": "local[1]", "spark.x": "a=b"}


class TestKafkaSettingsInAFile:
    PLACE = ("--bootstrap-servers", "host:1")

    def test_they_are_those_of_the_options(self, tmp_path):
        file = tmp_path / "client.properties"
        file.write_text(
            "# secrets\n\nsasl.username = me\nsasl.password=a=b # c\nclient.id=file\n", encoding="utf-8"
        )
        config = made(tmp_path, *self.PLACE, "--kafka-config", str(file), "--kafka", "client.id=option")
        assert config.kafka == {"sasl.username": "me", "sasl.password": "a=b # c", "client.id": "option"}

    @pytest.mark.parametrize(("text", "line"), [("a=b\nmy secret\n", 2), ("=my secret", 1)])
    def test_a_line_that_is_no_setting_is_not_shown(self, tmp_path, text, line):
        file = tmp_path / "client.properties"
        file.write_text(text, encoding="utf-8")
        with pytest.raises(
            ConfigError, match=f"line {line} of .*client.properties is not a setting"
        ) as caught:
            made(tmp_path, *self.PLACE, "--kafka-config", str(file))
        assert caught.value.code == "CS-281"
        assert "secret" not in str(caught.value)

    @pytest.mark.parametrize("content", [None, b"\xff\xfe"])
    def test_a_file_that_cannot_be_read(self, tmp_path, content):
        file = tmp_path / "client.properties"
        if content is not None:
            file.write_bytes(content)
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            made(tmp_path, *self.PLACE, "--kafka-config", str(file))
        assert (caught.value.code, caught.value.where["file"]) == ("CS-270", str(file))


def test_what_to_do_with_bad_records(tmp_path):
    place = ("--topics-dir", "t")
    config = made(
        tmp_path, *place, "--deserialization-errors", "dead-letter:bad", "--processing-errors", "skip"
    )
    assert (config.deserialization_errors, config.processing_errors) == (DeadLetter("bad"), "skip")


def test_there_must_be_a_place(tmp_path):
    with pytest.raises(ConfigError) as caught:
        made(tmp_path)
    assert caught.value.code == "CS-203"


@pytest.mark.parametrize("config", [None, CONFIG.format(more="")])
def test_a_wrong_option_is_refused_without_a_line_of_ours(tmp_path, config):
    with pytest.raises(ConfigError) as caught:
        made(tmp_path, "--topics-dir", "t", "--trigger", "soon", config=config)
    assert caught.value.code == "CS-210"
    assert "line" not in caught.value.where
    assert caught.value.next == 'give milliseconds, or a text such as "10 seconds" or "1 hour 30 minutes"'


def test_a_bare_number_is_milliseconds(tmp_path):
    durations = (
        "--trigger",
        "0",
        "--idle-after",
        "1500",
        "--max-task-idle",
        "7 ms",
        "--broker-patience",
        "9000",
    )
    config = made(tmp_path, "--topics-dir", "t", *durations)
    assert (config.trigger_ms, config.idle_after_ms) == (0, 1500)
    assert (config.max_task_idle_ms, config.broker_patience_ms) == (7, 9000)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        (("--kafka-config", ""), "the text is empty"),
        (("--processing-errors", "ignore"), "'ignore' is not one of: fail, skip, dead-letter:TOPIC"),
        (("--topics-dir", ""), "the text is empty"),
        (("--state-dir", ""), "the text is empty"),
    ],
)
def test_what_an_option_takes_is_said_in_words_of_the_command_line(tmp_path, capsys, option, said):
    with pytest.raises(SystemExit):
        made(tmp_path, *option)
    assert f"argument {option[0]}: {said}" in capsys.readouterr().err


def test_every_setting_has_an_option():
    options = set(vars(make_parser().parse_args(["run", "app.py"])))
    assert set(StreamsConfig.__dataclass_fields__) - options == {"processing_guarantee"}
