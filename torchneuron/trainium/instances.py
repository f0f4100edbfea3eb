"""The EC2 instances and UltraServers that can be emulated; `TORCHNEURON_INSTANCE` names one
(default: trn2.3xlarge).

Source unless a row's comment says otherwise: AWS Neuron documentation (aws-neuron-sdk of 21 Aug 2026), pages
about-neuron/arch/neuron-hardware/{trn1,inf2,trn2,trn3}-arch.rst.
"""

from dataclasses import dataclass

from .chips import CHIPS, Chip


@dataclass(frozen=True)
class Instance:
    """One instance, or an UltraServer of several hosts that are alike. A program on a host sees that host's chips."""

    name: str
    chip: Chip
    chips: int  # of one host
    hosts: int = 1
    vcpus: int | None = None  # of one host; None: not published
    host_memory_gib: int | None = None  # of one host; None: not published
    efa_gbps: int | None = None  # of one host; None: none, or not published

    def devices(self, lnc: int | None = None) -> int:
        """How many `neuron` devices one host has, with `lnc` physical cores in each (default: the chip's own)."""
        return self.chips * self.chip.logical_cores(lnc)


INSTANCES: dict[str, Instance] = {
    instance.name: instance
    for instance in (
        Instance("trn1.2xlarge", CHIPS["trn1"], 1, vcpus=8, host_memory_gib=32, efa_gbps=25),  # "up to"
        Instance("trn1.32xlarge", CHIPS["trn1"], 16, vcpus=128, host_memory_gib=512, efa_gbps=800),
        Instance("trn1n.32xlarge", CHIPS["trn1"], 16, vcpus=128, host_memory_gib=512, efa_gbps=1600),
        Instance("inf2.xlarge", CHIPS["inf2"], 1, vcpus=4, host_memory_gib=16),
        Instance("inf2.8xlarge", CHIPS["inf2"], 1, vcpus=32, host_memory_gib=128),
        Instance("inf2.24xlarge", CHIPS["inf2"], 6, vcpus=96, host_memory_gib=384),
        Instance("inf2.48xlarge", CHIPS["inf2"], 12, vcpus=192, host_memory_gib=768),
        # Not on the architecture pages; READMEs of aws-neuron/neuronx-distributed-inference give 124 to 128 GiB.
        Instance("trn2.3xlarge", CHIPS["trn2"], 1, host_memory_gib=128),
        # Named once, without a specification (vllm-neuron's tutorial for Qwen3 embeddings, as fitting TP8). Four chips
        # are inferred from the size's name: 3xlarge has 1 chip and 48xlarge has 16.
        Instance("trn2.12xlarge", CHIPS["trn2"], 4),
        Instance("trn2.48xlarge", CHIPS["trn2"], 16, vcpus=192, host_memory_gib=2048, efa_gbps=3200),
        Instance("trn2u.48xlarge", CHIPS["trn2"], 16, vcpus=192, host_memory_gib=2048, efa_gbps=3200),
        Instance("trn2-ultraserver", CHIPS["trn2"], 16, hosts=4, vcpus=192, host_memory_gib=2048, efa_gbps=3200),
        Instance("trn3-gen1-ultraserver", CHIPS["trn3"], 16, hosts=4, vcpus=192, host_memory_gib=2048, efa_gbps=3200),
        Instance("trn3-gen2-ultraserver", CHIPS["trn3"], 4, hosts=36, vcpus=64, host_memory_gib=768, efa_gbps=800),
    )
}
