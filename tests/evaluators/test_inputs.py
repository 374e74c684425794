"""Other values keep an input's form; other shapes change what `get_inputs` decides on its own, and nothing else."""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from evaluators import tree
from evaluators.inputs import distributions, rounding_alike, shape_variants
from evaluators.records import Task
from evaluators.tasks import ProgramError, TaskProgram, load_tasks, program_source

BUNDLED = {task.id: task for task in load_tasks("bundled", "cpu")}


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def task_of(top: str, inputs: str, arguments: str = "[]", body: str = "    def forward(self, x): return x") -> Task:
    source = (
        f"import torch\nimport torch.nn as nn\nclass Model(nn.Module):\n{body}\n{top}\n"
        f"def get_inputs():\n    return {inputs}\ndef get_init_inputs():\n    return {arguments}\n"
    )
    return Task("test/shapes", 1, "shapes", source)


# Values


def test_positive_inputs_become_normal_and_then_larger() -> None:
    given = [torch.rand(200, 50)]
    (first, [normal]), (second, [wide]), (third, [far]) = distributions(given, generator())
    assert first == "normally distributed"
    assert float(normal.mean()) == pytest.approx(0.0, abs=0.05)
    assert float(normal.std()) == pytest.approx(1.0, abs=0.05)
    assert second == "4 times larger"
    assert torch.equal(wide, 4 * given[0])
    assert third == "64 times larger"
    assert torch.equal(far, 64 * given[0])
    assert float(given[0].amin()) >= 0  # the task's own are left alone


def test_inputs_that_are_negative_somewhere_only_become_larger() -> None:
    given = [torch.randn(200)]
    (name, [wide]), _ = distributions(given, generator())
    assert name == "4 times larger"
    assert torch.equal(wide, 4 * given[0])


@pytest.mark.parametrize("coarser", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_errors_that_would_cancel_add_up(dtype, coarser) -> None:
    given = torch.randn(400, 300, dtype=dtype).t()
    changed, indices = rounding_alike([given, torch.arange(40)])
    assert torch.equal(indices, torch.arange(40))
    assert changed.dtype is dtype
    assert changed.stride() == given.stride()
    assert float(((changed - given) / given).abs().max()) < 1 / 16
    normal = given.abs() > 1e-3
    lost = ((changed.to(coarser).double() - changed) / changed)[normal]
    assert bool((lost.sign() == lost[0].sign()).all())
    before = ((given.to(coarser).double() - given) / given)[normal]
    assert abs(float(lost.mean())) > 20 * abs(float(before.mean()))


def test_zeros_and_what_is_not_finite_stay() -> None:
    given = torch.tensor([0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-44])
    [changed] = rounding_alike([given])
    assert torch.equal(changed.view(torch.int32), given.view(torch.int32))


def test_nothing_rounds_alike_without_digits_to_spare() -> None:
    assert rounding_alike([torch.randn(20).half(), torch.arange(9)]) is None


def test_integers_stay_in_every_distribution() -> None:
    indices, mask = torch.arange(12), torch.tensor([True, False])
    found = list(distributions([indices, torch.rand(3), mask], generator()))
    assert len(found) == 3
    for _, (same, changed, same_mask) in found:
        assert torch.equal(same, indices)
        assert torch.equal(same_mask, mask)
        assert changed.dtype is torch.float32
    assert list(distributions([indices, mask, 3, "word"], generator())) == []


def test_only_what_is_positive_is_drawn_anew() -> None:
    signed, positive = torch.randn(50), torch.rand(50)
    _, (kept, drawn) = next(distributions([signed, positive], generator()))
    assert torch.equal(kept, signed)
    assert not torch.equal(drawn, positive)


@pytest.mark.parametrize(
    "given",
    [torch.rand(4, 6).t(), torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.rand(3).bfloat16()],
    ids=["transposed", "channels last", "bfloat16"],
)
def test_strides_and_dtype_are_kept(given) -> None:
    for _, [values] in distributions([given], generator()):
        assert values.stride() == given.stride()
        assert values.shape == given.shape
        assert values.dtype is given.dtype


def test_nested_inputs_keep_their_form() -> None:
    given = [torch.rand(4), 3, None, "constant", [torch.rand(2), (torch.rand(2), 1.5)], {"k": torch.rand(3)}]
    for _, values in distributions(given, generator()):
        assert tree.difference(tree.flatten(given)[0], tree.flatten(values)[0]) is None
        pairs = zip(tree.flatten(given)[1], tree.flatten(values)[1], strict=True)
        assert not any(torch.equal(one, other) for one, other in pairs)


def test_values_depend_on_the_generator() -> None:
    given = [torch.rand(20)]
    drawn = [next(distributions(given, generator(seed)))[1][0] for seed in (1, 1, 2)]
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_no_elements_make_no_distribution_of_their_own() -> None:
    assert [name for name, _ in distributions([torch.empty(0)], generator())] == ["4 times larger", "64 times larger"]


# Shapes


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
    arguments, shapes = plain.init_inputs(1), [one.shape for one in tree.flatten(plain.inputs(1))[1]]
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
        assert [one.shape for one in tree.flatten(given)[1]] != shapes
        assert tree.tensor_specs(spec)
        # A model that was made for the task's own sizes, as a runner's was, gives the same there.
        with torch.no_grad(), other.seeded(1):
            again = tree.flatten(plain.model(1, arguments)(*given))[0]
        assert tree.difference(spec, again) is None
    assert ran


@pytest.mark.parametrize("identity", BUNDLED)
def test_a_bundled_reference_takes_other_values(identity) -> None:
    program = TaskProgram(BUNDLED[identity])
    model = program.model(1, program.init_inputs(1))
    found = list(islice(distributions(program.inputs(1), generator()), 2))
    assert found
    for name, values in found:
        with torch.no_grad(), program.seeded(1):
            outputs = tree.flatten(model(*values))[1]
        assert all(bool(one.isfinite().all()) for one in outputs), name
