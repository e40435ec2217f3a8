"""The page on networks lists exactly what the code reads."""

import re
from pathlib import Path

import pytest

from caql.importers import activations, keras_layers, torch_functions, torch_layers
from caql.network_files.operator_table import OPERATORS

PAGE = (Path(__file__).parent.parent / "docs" / "reference" / "networks.md").read_text()
TABLES = {
    "ONNX": {*OPERATORS, "Constant"},
    "torch modules": set(torch_layers.LAYERS),
    "torch functions and methods": {*torch_functions.FUNCTIONS, *torch_functions.METHODS},
    "Keras layers": set(keras_layers.LAYERS),
    "Keras functions": set(keras_layers.FUNCTIONS),
    "Activations": set(activations.KNOWN),
}


@pytest.mark.parametrize("heading", TABLES)
def test_every_name_is_listed_and_no_other(heading: str) -> None:
    section = PAGE.split(f"### {heading}\n")[1].split("\n#")[0]
    listed = re.findall(r"`([^`]+)`", section)
    assert sorted(listed) == sorted(TABLES[heading])
