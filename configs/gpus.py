"""What is known of GPUs by Ray's names of accelerators: for prompts, and for builders on machines without them.

From NVIDIA's data sheets and architecture white papers, and from the table of compute capabilities in the CUDA C++
Programming Guide. Where a name has several variants, the row is that of the SXM module with the most memory.
`tests/evaluators/host/test_cuda_device.py` holds the row of a machine's own GPU to what the GPU says of itself.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Gpu:
    """One kind of GPU. `shared_kib`: what a multiprocessor has of shared memory at most. `terabytes_a_second`: of its
    memory. 0: not known here."""

    capability: str
    multiprocessors: int = 0
    l2_mib: int = 0
    shared_kib: int = 0
    terabytes_a_second: float = 0.0

    def describe(self) -> str:
        """What a program is written for, in few words."""
        facts = [f"sm_{self.capability.replace('.', '')}"]
        if self.multiprocessors:
            facts.append(f"{self.multiprocessors} SMs, {self.shared_kib} KiB shared memory each")
            facts.append(f"{self.l2_mib} MiB L2, {self.terabytes_a_second:g} TB/s")
        return ", ".join(facts)


GPUS = {
    "P100": Gpu("6.0", 56, 4, 64, 0.73),
    "V100": Gpu("7.0", 80, 6, 96, 0.9),
    "T4": Gpu("7.5", 40, 4, 64, 0.32),
    "A100": Gpu("8.0", 108, 40, 164, 2.04),
    "A800": Gpu("8.0", 108, 40, 164, 2.04),
    "A30": Gpu("8.0", 56, 24, 164, 0.93),
    "A10": Gpu("8.6", 72, 6, 100, 0.6),
    "A10G": Gpu("8.6", 80, 6, 100, 0.6),
    "A40": Gpu("8.6", 84, 6, 100, 0.7),
    "RTX-3090": Gpu("8.6", 82, 6, 100, 0.94),
    "L4": Gpu("8.9", 58, 48, 100, 0.3),
    "L40": Gpu("8.9", 142, 96, 100, 0.86),
    "L40S": Gpu("8.9", 142, 96, 100, 0.86),
    "RTX-4090": Gpu("8.9", 128, 72, 100, 1.01),
    "H100": Gpu("9.0", 132, 50, 228, 3.35),
    "H800": Gpu("9.0", 132, 50, 228, 3.35),
    "H200": Gpu("9.0", 132, 50, 228, 4.8),
    "H20": Gpu("9.0", 78, 60, 228, 4.0),
    "GH200": Gpu("9.0"),
    "B200": Gpu("10.0"),
    "GB200": Gpu("10.0"),
    "B300": Gpu("10.3"),
    "GB300": Gpu("10.3"),
    "RTX-5090": Gpu("12.0"),
}
