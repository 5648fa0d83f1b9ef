import pytest

from cdcd.avro.registry import RegistryStore
from cdcd.errors import SettingsError


@pytest.mark.parametrize("extra", [{}, {"no.such.property": "1"}])
def test_a_registry_that_nobody_could_reach_is_a_wrong_setting(extra: dict[str, str]) -> None:
    url = "http://localhost:8081" if extra else "htp:/user:secret@localhost:8081"
    with pytest.raises(SettingsError) as raised:
        RegistryStore(url, lambda schema, name: f"{schema}.{name}", extra)
    assert "avro.registry_url" in raised.value.cure
    assert "secret" not in raised.value.message
