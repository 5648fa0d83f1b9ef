"""The same rules for another program's settings: what `cdcd spark` needs of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import BaseModel, ConfigDict, Field

from cdcd.config.layers import Layers, Loaded, SettingNames, from_file
from cdcd.errors import SettingsError


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Lake(Section):
    catalog: str = Field(min_length=1)
    tables: tuple[str, ...] = ("*",)
    properties: dict[str, str] = Field(default_factory=dict)


class Store(Section):
    dsn: str = ""


class Layer(Section):
    match: str
    kind: str = ""


class Job(Section):
    lake: Lake | None = None
    store: Store = Field(default_factory=Store)
    spark: dict[str, str] = Field(default_factory=dict)
    layer: tuple[Layer, ...] = ()


NAMES = SettingNames(Job, "config/job.toml")


def load(tmp_path: Path, text: str, *, dsn: str | None = None) -> Loaded[Job]:
    path = tmp_path / "job.toml"
    path.write_text(text)
    layers = Layers(NAMES)
    layers.add(from_file(str(path), NAMES))
    if dsn is not None:
        layers.add([("store.dsn", dsn, "environment DSN")])
    return layers.validated()


def test_names_follow_from_the_model() -> None:
    assert NAMES.known() == ["lake.catalog", "lake.tables", "lake.properties", "store.dsn", "spark", "layer"]
    assert NAMES.known("store") == ["store.dsn"]
    assert list(NAMES.sections) == ["lake", "store"]
    assert NAMES.free_form == {"lake.properties", "spark"}
    assert NAMES.json_outside_the_file == {"lake.properties", "spark", "lake.tables", "layer"}


def test_a_later_layer_overrides_and_is_the_origin(tmp_path: Path) -> None:
    loaded = load(tmp_path, '[store]\ndsn = "a"\n[spark]\n"spark.ui.enabled" = "false"\n', dsn="b")
    assert (loaded.settings.store.dsn, loaded.origins["store.dsn"]) == ("b", "environment DSN")
    assert loaded.settings.spark == {"spark.ui.enabled": "false"}
    assert loaded.origins["spark"] == f"file {tmp_path}/job.toml"
    assert loaded.settings.lake is None


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("[lake]\n", "lake.catalog is not set", "Set it in the file under [lake]"),
        (
            '[lake]\ncatalog = ""\n',
            "lake.catalog must be a text of 1 or more characters (file ",
            "config/job.toml des",
        ),
        ('[lake]\ncatalogue = "c"\n', "There is no setting lake.catalogue (file ", "Did you mean lake.catalog?"),
        ("[lke]\n", "There is no section [lke] (file ", "Did you mean [lake]?"),
        ("[sprk]\n", "There is no section [sprk] (file ", "Did you mean [spark]?"),
        ("[x]\n", "There is no section [x] (file ", "There are [lake], [store], [spark]"),
        ("x = 1\n", "There is no setting x (file ", "config/job.toml lists every setting"),
        ("lake = 5\n", "lake must be a section, as in [source]", "config/job.toml describes it"),
        (
            "[[lake]]\n",
            "lake must be one section, [lake]; did you mean [[layer]]? (file ",
            "config/job.toml describes it",
        ),
        ("[layer]\nmatch = 'x'\n", "layer must be written as [[layer]], once for each entry", "config/job.toml"),
        (
            "[[layer]]\nmatch = 'x'\nknd = 1\n",
            "knd in [[layer]] with match = 'x' is no setting; did you mean kind?",
            "",
        ),
        ("[spark]\nspark.master = 'x'\n", 'spark must have names with a dot in quotes: "spark.master" = ...', ""),
        ("[lake\n", "is not TOML", "config/job.toml shows the form"),
    ],
)
def test_a_mistake_is_named_with_its_hint(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(tmp_path, text)
    assert message in caught.value.message
    assert caught.value.hint.startswith(hint)


def test_a_value_where_a_section_belongs_does_not_hide_the_mistake(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="store must be a section"):
        load(tmp_path, "store = 5\n", dsn="b")
