"""The memory of blocks that profiles declare."""

import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tests.runtime.models.onnx_files import floats, made

from partita_api.session.module import TensorSpec
from partita_profiling.memory import block_memory
from partita_runtime.models.onnx.module import onnx_module
from partita_runtime.models.partitioned_model import partition

WIDTH = 64


def test_weights_in_branches_are_counted() -> None:
    """ONNX Runtime loads those of both branches."""
    branches = {
        name: helper.make_graph(
            [helper.make_node("MatMul", ["x", f"{name}_weights"], [f"{name}_y"])],
            name,
            [],
            [floats(f"{name}_y", "batch", WIDTH)],
            [numpy_helper.from_array(np.eye(WIDTH, dtype=np.float32) * factor, f"{name}_weights")],
        )
        for factor, name in enumerate(("then", "else"))
    }
    model = made(
        [
            helper.make_node("Constant", [], ["yes"], value=helper.make_tensor("", TensorProto.BOOL, [], [True])),
            helper.make_node("If", ["yes"], ["y"], then_branch=branches["then"], else_branch=branches["else"]),
        ],
        [floats("x", "batch", WIDTH)],
        [floats("y", "batch", WIDTH)],
    )
    input = TensorSpec(shape=(WIDTH,))

    (memory,) = block_memory(partition(onnx_module(model), input, 1), input)

    assert 2 * WIDTH * WIDTH * 4 <= memory.weights_bytes <= 2 * WIDTH * WIDTH * 4 + 1000
