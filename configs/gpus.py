"""What is known of GPUs by Ray's names of accelerators: for prompts, and for builders on machines without them.

Rows with more than the capability are those whose figures were looked up: NVIDIA's data sheets of A100 (SXM, 80 GB),
H100 (SXM), H200, L40 and L40S, and table 3 of doi:10.1016/j.ultsonch.2023.106546 for shared memory and caches.
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
    "P100": Gpu("6.0"),
    "V100": Gpu("7.0"),
    "T4": Gpu("7.5"),
    "A100": Gpu("8.0", 108, 40, 164, 2.04),
    "A800": Gpu("8.0"),
    "A30": Gpu("8.0"),
    "A10": Gpu("8.6"),
    "A10G": Gpu("8.6"),
    "A40": Gpu("8.6"),
    "RTX-3090": Gpu("8.6"),
    "L4": Gpu("8.9"),
    "L40": Gpu("8.9", 142, 96, 100, 0.86),
    "L40S": Gpu("8.9", 142, 96, 100, 0.86),
    "RTX-4090": Gpu("8.9"),
    "H100": Gpu("9.0", 132, 50, 228, 3.35),
    "H800": Gpu("9.0"),
    "H200": Gpu("9.0", 132, 50, 228, 4.8),
    "H20": Gpu("9.0"),
    "GH200": Gpu("9.0"),
    "B200": Gpu("10.0"),
    "GB200": Gpu("10.0"),
    "B300": Gpu("10.3"),
    "GB300": Gpu("10.3"),
    "RTX-5090": Gpu("12.0"),
}
