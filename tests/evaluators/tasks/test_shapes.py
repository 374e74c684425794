"""Other shapes change sizes that `get_inputs` alone decides, and nothing else."""

from __future__ import annotations

import pytest
import torch

from evaluators.records import Task
from evaluators.shared import nesting
from evaluators.tasks import ProgramError, TaskProgram, load_tasks, program_source
from evaluators.tasks.shapes import shape_variants

BUNDLED = {task.id: task for task in load_tasks("bundled", "cpu")}


def task_of(top: str, inputs: str, arguments: str = "[]", body: str = "    def forward(self, x): return x") -> Task:
    source = (
        f"import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n{body}\n{top}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return {arguments}\n"
    )
    return Task("test/shapes", 1, "shapes", source)


MATMUL = task_of("M = 1024\nK = 4096\nN = 2048", "[torch.rand(M, K), torch.rand(K, N)]")
LINEAR = task_of(
    "batch_size, in_features, out_features = 128, 64, 32", "[torch.rand(batch_size, in_features)]",
    "[in_features, out_features]",
)  # fmt: skip
CONVOLUTION = task_of(
    "batch_size = 16\nin_channels = 3\nheight, width = 64, 48\nkernel_size = (3, 5)",
    "[torch.rand(batch_size, in_channels, height, width)]",
    "[in_channels, kernel_size]",
)
DERIVED = task_of(
    "size = 32\nheads = 4\nwidth = size * heads",
    "[torch.rand(size, width)]",
    "[heads]",
)


@pytest.mark.parametrize(
    ("task", "names"),
    [
        (MATMUL, {"M", "K", "N"}),
        (LINEAR, {"batch_size"}),
        (CONVOLUTION, {"batch_size", "height", "width"}),
        (DERIVED, {"size"}),
        (task_of("n = 8", "[torch.rand(4)]"), set()),
        (task_of("n = 8", "[torch.rand(n)]", body="    def forward(self, x): return x.view(n)"), set()),
        (task_of("n = 8\nm = n", "[torch.rand(m)]", "[m]"), set()),
        (task_of("n = 8\ndef shape(): return (n, 3)", "[torch.rand(shape())]"), {"n"}),
        (task_of("n = 8\ndef shape(): return (n, 3)", "[torch.rand(shape())]", "[shape()]"), set()),
        (task_of("n = 1\nflag = True\nrate = 2.5", "[torch.rand(n, int(flag), int(rate))]"), set()),
    ],
)
def test_the_sizes_that_vary_are_those_of_the_inputs_alone(task, names) -> None:
    variants = shape_variants(task)
    assert [set(one) for one in variants] == ([names, names] if names else [])


def test_variants_are_smaller_and_one_of_them_odd() -> None:
    first, second = shape_variants(MATMUL)
    assert first == {"M": 640, "K": 2560, "N": 1280}
    assert all(value % 2 == 1 for value in second.values())
    assert second != first


@pytest.mark.parametrize("size", range(2, 70))
def test_no_size_grows_or_vanishes(size) -> None:
    for one in shape_variants(task_of(f"n = {size}", "[torch.rand(n)]")):
        assert 1 <= one["n"] < size


@pytest.mark.parametrize(
    "task", [MATMUL, LINEAR, CONVOLUTION, DERIVED], ids=["matmul", "linear", "convolution", "derived"]
)
def test_inputs_change_their_shapes_and_the_constructor_gets_the_same(task) -> None:
    plain = TaskProgram(task)
    shapes = [[one.shape for one in plain.inputs(1)]]
    for sizes in shape_variants(task):
        other = TaskProgram(task.with_sizes(**sizes))
        assert other.init_inputs(1) == plain.init_inputs(1)
        shapes.append([one.shape for one in other.inputs(1)])
    assert shapes[1] != shapes[0]
    assert shapes[2] != shapes[0]


def test_a_derived_constant_follows() -> None:
    [sizes, _] = shape_variants(DERIVED)
    [given] = TaskProgram(DERIVED.with_sizes(**sizes)).inputs(1)
    assert given.shape == (20, 80)


def test_variants_start_from_the_sizes_a_task_was_given() -> None:
    assert shape_variants(LINEAR.with_sizes(batch_size=16))[0] == {"batch_size": 10}


@pytest.mark.parametrize("shape", ["(40, 3)", "40, 3"])
def test_a_constant_that_is_a_tuple_is_no_size(shape) -> None:
    task = task_of(f"shape = {shape}\nn = 8", "[torch.rand(n, *shape)]")
    assert [set(one) for one in shape_variants(task)] == [{"n"}, {"n"}]


@pytest.mark.parametrize(
    ("top", "inputs", "names"),
    [
        ("[a, *rest, b] = 4, 5, 6, 7\nn = 8", "[torch.rand(n, a, b, *rest)]", {"n"}),
        ("(a, b), n = (4, 5), 8", "[torch.rand(n, a, b)]", {"n"}),
        ("n = both = 8", "[torch.rand(n, both)]", {"n", "both"}),
        ("pair = a, b = 4, 6", "[torch.rand(a, b, *pair)]", {"a", "b"}),
        ("n = 8\nn = (2, 3)", "[torch.rand(*n)]", set()),
    ],
)
def test_constants_are_unpacked_as_python_does(top, inputs, names) -> None:
    task = task_of(top, inputs)
    variants = shape_variants(task)
    assert [set(one) for one in variants] == ([names, names] if names else [])
    for sizes in variants:
        assert TaskProgram(task.with_sizes(**sizes)).inputs(1)


@pytest.mark.parametrize(
    "body",
    [
        "    def forward(self, x):\n        n = x.size(0)\n        return x.view(n, -1)",
        "    def forward(self, x, n=None): return x if n is None else x[:n]",
        "    def forward(self, x):\n        n = x.size(0)\n        def again(): return x[:n]\n        return again()",
        "    def forward(self, x): return torch.stack([x[n] for n in range(x.size(0))])",
        "    def forward(self, x): return (lambda n: x[:n])(x.size(0))",
        "    def forward(self, x):\n        if (n := x.size(0)) > 1: x = x[:n]\n        return x",
    ],
    ids=["assigned", "argument", "nested", "comprehension", "lambda", "walrus"],
)
def test_a_local_name_of_the_model_is_not_the_constant(body) -> None:
    task = task_of("n = 8", "[torch.rand(n, 4)]", body=body)
    assert [set(one) for one in shape_variants(task)] == [{"n"}, {"n"}]


@pytest.mark.parametrize(
    "body",
    [
        "    def forward(self, x):\n        def other(n): return n\n        return other(x.view(n, -1))",
        "    def forward(self, x):\n        def inner(): return x.view(n, -1)\n        return inner()",
        "    def forward(self, x, size=n): return x.view(size, -1)",
        "    def forward(self, x, n=n): return x.view(n, -1)",
        "    n = n\n    def forward(self, x): return x.view(self.n, -1)",
        "    def forward(self, x):\n        global n\n        return x.view(n, -1)",
        "    def forward(self, x): return torch.stack([x[i] for i in range(n)])",
    ],
    ids=["another's local", "nested", "default", "default of its name", "class", "global", "comprehension"],
)
def test_a_constant_that_the_model_reads_does_not_vary(body) -> None:
    source = task_of("", "[torch.rand(n, 4)]", body=body).source
    assert shape_variants(Task("test/read", 1, "read", "n = 8\n" + source)) == []


@pytest.mark.parametrize(
    "top",
    [
        "n = 8\nwidth: int = 4 * n",
        "n = 8\nwidth = 4\nwidth *= n",
        "n = 8\nif n > 4:\n    width = n\nelse:\n    width = 4",
        "n = 8\nwidth, depth = n, 3",
    ],
    ids=["annotated", "augmented", "conditional", "unpacked"],
)
def test_a_constant_is_followed_into_what_derives_from_it(top) -> None:
    assert "n" in shape_variants(task_of(top, "[torch.rand(width)]"))[0]
    assert shape_variants(task_of(top, "[torch.rand(n, width)]", "[width]")) == []


@pytest.mark.parametrize("change", ['sizes["n"] = n', "Model.rows = n"])
def test_a_constant_set_on_something_is_followed(change) -> None:
    body = "    sizes = {}\n    def forward(self, x): return x.view(sizes['n'], -1)"
    assert shape_variants(task_of(f"n = 8\nsizes = {{}}\n{change}", "[torch.rand(n, 4)]", body=body)) == []


# The bundled tasks


@pytest.mark.parametrize("identity", BUNDLED)
def test_a_bundled_task_runs_at_its_variants_or_its_reference_refuses(identity) -> None:
    task = BUNDLED[identity]
    plain = TaskProgram(task)
    arguments, shapes = plain.init_inputs(1), [one.shape for one in nesting.flatten(plain.inputs(1))[1]]
    variants = shape_variants(task)
    assert variants
    ran = 0
    for sizes in variants:
        assert program_source(task.with_sizes(**sizes)) != program_source(task)
        other = TaskProgram(task.with_sizes(**sizes))
        try:
            given = other.inputs(2)
            spec = other.output_spec(1, arguments, given)
        except ProgramError:
            continue
        ran += 1
        assert [one.shape for one in nesting.flatten(given)[1]] != shapes
        assert nesting.tensor_specs(spec)
        # A model for the task's own sizes, such as a runner's, has outputs of the same form there.
        with torch.no_grad(), other.seeded(1):
            again = nesting.flatten(plain.model(1, arguments)(*given))[0]
        assert nesting.difference(spec, again) is None
    assert ran
