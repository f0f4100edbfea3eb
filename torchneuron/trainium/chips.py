"""The chips that can be emulated, and the NeuronCores on them.

Source of every figure unless a comment says otherwise: AWS Neuron documentation (aws-neuron-sdk of 21 Aug 2026), pages
about-neuron/arch/neuron-hardware/{neuron-core-v2,neuron-core-v3,neuron-core-v4,trainium,inferentia2,trainium2,
trainium3}.rst, and nki/deep-dives/nki-dma-bandwidth-guide.rst for what a DMA engine effectively moves.
"""

from dataclasses import dataclass

KIB = 1 << 10
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True)
class NeuronCore:
    """One physical NeuronCore. Clocks in Hz, rates in floating-point operations per second, sizes in bytes."""

    version: int
    tensor_clock: float
    vector_clock: float
    scalar_clock: float
    gpsimd_clock: float
    bf16_flops: float  # also fp16 and tf32
    fp32_flops: float
    fp8_flops: float
    vector_fp32_flops: float
    scalar_fp32_flops: float
    sbuf_bytes: int
    psum_bytes: int
    dma_engines: int
    dma_bytes_per_second: float  # effective, all engines


@dataclass(frozen=True)
class Chip:
    """One chip. Memory in bytes, bandwidth in bytes per second."""

    name: str
    core: NeuronCore
    cores: int  # physical
    default_lnc: int  # physical NeuronCores that form one logical core
    lnc_selectable: bool
    hbm_bytes: int
    hbm_bytes_per_second: float
    neuronlink_bytes_per_second: float  # sum over all links, as the documentation states it

    def logical_cores(self, lnc: int | None = None) -> int:
        """How many devices one chip is, with `lnc` physical cores in each (default: the chip's own)."""
        return self.cores // (lnc or self.default_lnc)


# The documentation rounds TensorE's bf16 rate to 92 and 79 TFLOPS; these are 128 x 128 multiply-adds per clock.
_NEURON_CORE_V2 = NeuronCore(
    version=2,
    tensor_clock=2.8e9,
    vector_clock=1.12e9,
    scalar_clock=1.4e9,
    gpsimd_clock=1.4e9,
    bf16_flops=128 * 128 * 2 * 2.8e9,
    fp32_flops=128 * 128 * 2 * 2.8e9 / 4,
    fp8_flops=128 * 128 * 2 * 2.8e9,  # cfp8
    vector_fp32_flops=2.3e12,
    scalar_fp32_flops=2.9e12,
    sbuf_bytes=24 * MIB,
    psum_bytes=2 * MIB,
    dma_engines=16,
    dma_bytes_per_second=272e9,
)
_NEURON_CORE_V3 = NeuronCore(
    version=3,
    tensor_clock=2.4e9,
    vector_clock=0.96e9,
    scalar_clock=1.2e9,
    gpsimd_clock=1.2e9,
    bf16_flops=128 * 128 * 2 * 2.4e9,
    fp32_flops=128 * 128 * 2 * 2.4e9 / 4,
    fp8_flops=2 * 128 * 128 * 2 * 2.4e9,  # double row
    vector_fp32_flops=1.0e12,
    scalar_fp32_flops=1.2e12,
    sbuf_bytes=28 * MIB,
    psum_bytes=2 * MIB,
    dma_engines=16,
    dma_bytes_per_second=368e9,
)
_NEURON_CORE_V4 = NeuronCore(
    version=4,
    tensor_clock=2.4e9,
    vector_clock=1.2e9,
    scalar_clock=1.2e9,
    gpsimd_clock=1.2e9,
    bf16_flops=128 * 128 * 2 * 2.4e9,
    fp32_flops=128 * 128 * 2 * 2.4e9 / 4,
    fp8_flops=2 * 128 * 128 * 2 * 2.4e9,  # plain fp8; MXFP8 and MXFP4 run at 4 times the bf16 rate
    vector_fp32_flops=1.2e12,
    scalar_fp32_flops=1.2e12,
    sbuf_bytes=32 * MIB,
    psum_bytes=2 * MIB,
    dma_engines=16,
    dma_bytes_per_second=528e9,
)

CHIPS: dict[str, Chip] = {
    chip.name: chip
    for chip in (
        Chip("trn1", _NEURON_CORE_V2, 2, 1, False, 32 * GIB, 820 * GIB, 384e9),
        Chip("inf2", _NEURON_CORE_V2, 2, 1, False, 32 * GIB, 820 * GIB, 192e9),
        Chip("trn2", _NEURON_CORE_V3, 8, 2, True, 96 * GIB, 2.9e12, 1.28e12),
        Chip("trn3", _NEURON_CORE_V4, 8, 2, True, 144 * GIB, 4.9e12, 2.56e12),
    )
}
