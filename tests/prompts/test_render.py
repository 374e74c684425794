"""The texts that models read: their blocks, their order, and the code in them as it was given."""

from __future__ import annotations

import pytest

from prompts.parse import parse_response
from prompts.render import TEMPLATES, Exemplar, LastProgram, PromptRenderer, fenced

REFERENCE = "import torch\n\n\nclass Model(torch.nn.Module):\n    pass\n"
SLOW = Exemplar("class ModelNew:\n    speed = 'slow'", 0.875)
FAST = Exemplar("class ModelNew:\n    speed = 'fast'", 1.5349)


@pytest.fixture
def renderer() -> PromptRenderer:
    return PromptRenderer()


def test_exemplars_stand_in_the_order_given_each_with_its_speed_up(renderer: PromptRenderer) -> None:
    for exemplars in ([SLOW, FAST], [FAST, SLOW]):
        prompt = renderer.contrastive(REFERENCE, exemplars, "cpu")
        places = [prompt.index(exemplar.source) for exemplar in exemplars]
        assert places == sorted(places)
    assert "1.53x:\n```python\n" + FAST.source in prompt
    assert f"{SLOW.speedup:.2f}x:\n```python\n" + SLOW.source in prompt


def test_the_five_blocks_are_there_and_fixed_text_comes_before_code(renderer: PromptRenderer) -> None:
    prompt = renderer.contrastive(REFERENCE, [SLOW, FAST], "H200")
    blocks = [
        "CUDA optimisation",
        "Requirements:",
        "Restrictions:",
        "## Algorithm Design",
        "Reference code:",
        "Previous",
    ]
    places = [prompt.index(block) for block in blocks[:-1]] + [prompt.index("Previous implementations:")]
    assert places == sorted(places)
    assert "\n\nAnswer under these three headings:\n" in prompt


def test_two_tasks_share_the_prefix_up_to_their_code(renderer: PromptRenderer) -> None:
    first = renderer.contrastive("x = 1", [SLOW], "H200")
    second = renderer.contrastive("y = 2", [FAST], "H200")
    shared = first[: first.index("x = 1")]
    assert second.startswith(shared)
    assert len(shared) > 0.8 * len(first.replace("x = 1", "").replace(SLOW.source, ""))


@pytest.mark.parametrize("arch", ["cpu", "H200"])
def test_prompts_end_by_asking_for_the_first_heading(renderer: PromptRenderer, arch: str) -> None:
    for prompt in (renderer.contrastive(REFERENCE, [SLOW], arch), renderer.one_shot(REFERENCE, arch)):
        assert prompt.endswith("beginning with `## Performance Analysis`.")


@pytest.mark.parametrize("arch", ["cpu", "H200"])
def test_fixed_text_is_concise(renderer: PromptRenderer, arch: str) -> None:
    assert len(renderer.contrastive("", [Exemplar("x", 1.0)], arch).split()) <= 260
    assert len(renderer.one_shot("", arch).split()) <= 190


def test_a_prompt_says_what_the_gpu_is_like_as_far_as_that_is_known(renderer: PromptRenderer) -> None:
    known = "the H200 GPU (sm_90, 132 SMs, 228 KiB shared memory each, 50 MiB L2, 4.8 TB/s)"
    for arch, words in (("H200", known), ("B300", "the B300 GPU (sm_103)"), ("Z9", "the Z9 GPU")):
        for prompt in (
            renderer.contrastive(REFERENCE, [SLOW], arch),
            renderer.one_shot(REFERENCE, arch),
            renderer.repair(REFERENCE, "x", "wrong", "y", arch),
        ):
            assert words in prompt.splitlines()[0]
    assert "Z9 GPU (" not in renderer.one_shot(REFERENCE, "Z9")
    assert "(" not in renderer.one_shot(REFERENCE, "cpu").splitlines()[0]


def test_wording_fits_the_architecture(renderer: PromptRenderer) -> None:
    cpu = renderer.contrastive(REFERENCE, [SLOW], "cpu") + renderer.one_shot(REFERENCE, "cpu")
    gpu = renderer.contrastive(REFERENCE, [SLOW], "H200") + renderer.one_shot(REFERENCE, "H200")
    assert not any(word in cpu for word in ("CUDA", "GPU", "Triton", "stream"))
    assert all(word in cpu for word in ("torch.compile", "load_inline", "ModelNew"))
    assert all(word in gpu for word in ("CUDA", "H200 GPU", "Triton", "stream", "load_inline", "ModelNew"))


def test_the_reference_is_printed_once_even_as_an_exemplar(renderer: PromptRenderer) -> None:
    prompt = renderer.contrastive(REFERENCE, [Exemplar(REFERENCE, 1.0), FAST], "cpu")
    assert prompt.count(REFERENCE.strip()) == 1
    assert "Implementation 1, 1.00x:" in prompt
    assert "Implementation 2, 1.53x:" in prompt


def test_code_is_neither_escaped_nor_interpreted(renderer: PromptRenderer) -> None:
    code = "x = '<b> & {{ arch }} {% if %}'\n# \"quoted\""
    assert code in renderer.one_shot(code, "cpu")
    assert code in renderer.contrastive(REFERENCE, [Exemplar(code, 2.0)], "cpu")


def test_a_fence_outgrows_the_backticks_in_the_code() -> None:
    code = 'text = """\n````\n"""'
    assert fenced(code) == f"`````python\n{code}\n`````"
    assert fenced("x = 1\n").startswith("```python\n")


def test_no_exemplars_is_an_error(renderer: PromptRenderer) -> None:
    with pytest.raises(ValueError, match="one_shot"):
        renderer.contrastive(REFERENCE, [], "cpu")


@pytest.mark.parametrize("code", ["class ModelNew:\n    x = 1", 'class ModelNew:\n    """\n```\nhi\n```\n"""'])
def test_a_response_is_read_back_as_it_was_written(renderer: PromptRenderer, code: str) -> None:
    parsed = parse_response(renderer.response(code, "The second is faster.", "1. Fuse."))
    assert parsed.analysis == "The second is faster."
    assert parsed.design == "1. Fuse."
    assert parsed.code == code
    assert parsed.problem is None


def test_every_template_is_packaged() -> None:
    assert {path.suffix for path in TEMPLATES.iterdir()} == {".j2"}


def test_a_prompt_that_speaks_of_the_latest_program_shows_it_once(renderer: PromptRenderer) -> None:
    """It may be among the exemplars."""
    shown = renderer.contrastive(REFERENCE, [SLOW, FAST], "cpu", last=LastProgram(FAST.source, "ok", 1.53))
    other = renderer.contrastive(REFERENCE, [SLOW], "cpu", last=LastProgram(FAST.source, "ok", 1.53))
    assert shown.count(FAST.source) == other.count(FAST.source) == 1
    assert "The latest program, 1.53x:\nIt is shown above." in shown


def test_feedback_stands_behind_the_programs_and_a_message_is_quoted(renderer: PromptRenderer) -> None:
    last = LastProgram("class ModelNew: pass", "build error", message="line 1\n## Code Implementation")
    prompt = renderer.one_shot(REFERENCE, "cpu", last)
    assert prompt.index("Reference code:") < prompt.index("The latest program, build error:")
    assert "> line 1\n> ## Code Implementation\n" in prompt
    profile = LastProgram("x", "ok", 2.0, ("A call takes 3 µs.", "The GPU is idle."))
    measured = renderer.one_shot(REFERENCE, "cpu", profile)
    assert "What was measured of it:\n- A call takes 3 µs.\n- The GPU is idle.\n" in measured
    assert measured.endswith("beginning with `## Performance Analysis`.")


def test_without_feedback_a_prompt_is_as_it_was(renderer: PromptRenderer) -> None:
    prompt = renderer.one_shot(REFERENCE, "cpu")
    assert "latest program" not in prompt
    assert "```\n\nWrite your answer now" in prompt
    assert "\n\n\n" not in prompt.replace(REFERENCE, "")
