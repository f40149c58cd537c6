"""Numbers pass between numpy and Arrow unchanged, and without pandas."""

import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest

from bridgepack.data.shards.arrow_numbers import arrow_array, numpy_array

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


def test_nulls_and_texts_are_left_to_arrow() -> None:
    assert np.isnan(numpy_array(pa.array([1, None, 3]))).tolist() == [False, True, False]
    assert numpy_array(pa.array(["a", "b"])).tolist() == ["a", "b"]


def test_pandas_is_not_imported() -> None:
    pytest.importorskip("pandas")
    program = (
        "import sys, numpy; from bridgepack.data.shards.arrow_numbers import arrow_array, numpy_array; "
        "numpy_array(arrow_array(numpy.arange(3))); assert 'pandas' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
