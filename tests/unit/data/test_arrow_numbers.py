"""Numbers pass between numpy and Arrow unchanged, and without pandas."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from bridgepack.data.shards.arrow_numbers import arrow_array, arrow_text, numpy_array

TYPES = ("int8", "uint8", "int16", "int32", "uint32", "int64", "float16", "float32", "float64", "bool")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("num_values", [0, 1, 9, 1000])
def test_values_survive(name: str, num_values: int) -> None:
    values = (np.arange(num_values) % 2 if name == "bool" else np.arange(num_values) % 100).astype(name)

    assert arrow_array(values).equals(pa.array(values))
    assert arrow_array(values[::2]).to_pylist() == values[::2].tolist()
    for part in (slice(0, None), slice(3, 8)):
        found = numpy_array(arrow_array(values)[part])
        assert (found.dtype, found.tolist()) == (values.dtype, values[part].tolist())


def test_nulls_and_texts() -> None:
    assert np.isnan(numpy_array(pa.array([1, None, 3]))).tolist() == [False, True, False]
    assert numpy_array(pa.array(["a", "b"])).tolist() == ["a", "b"]
    assert arrow_text("für 你").equals(pa.array(["für 你"]))


def test_pandas_is_not_imported(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    program = (
        "import sys; from pathlib import Path; from bridgepack.data.store.token_file import *; "
        "path = Path(sys.argv[1])\n"
        "with write_token_file(path) as writer: writer.add_dropped_row(RowDrop(0, 'bad_row', 'x'))\n"
        "assert read_token_index(path).kinds == (('bad_row', 'x'),); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "a.tokens")], check=True)
