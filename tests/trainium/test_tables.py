"""The tables of chips and instances against totals that AWS publishes elsewhere than the figures they hold."""

from __future__ import annotations

import pytest

from torchneuron.trainium import CHIPS, INSTANCES


# Whole chips: TFLOPS of bf16 and fp32 (the headline of trn2 and trn3 is 6 % above eight times one core's rate).
@pytest.mark.parametrize(
    ("chip", "bf16", "fp32", "within"),
    [("trn1", 190, 47.5, 0.04), ("inf2", 190, 47.5, 0.04), ("trn2", 667, 181, 0.15), ("trn3", 671, 183, 0.15)],
)
def test_peak_rates(chip: str, bf16: float, fp32: float, within: float) -> None:
    core = CHIPS[chip].core
    assert CHIPS[chip].cores * core.bf16_flops / 1e12 == pytest.approx(bf16, rel=within)
    assert CHIPS[chip].cores * core.fp32_flops / 1e12 == pytest.approx(fp32, rel=within)
    assert core.fp8_flops >= core.bf16_flops == 4 * core.fp32_flops


# Whole instances or UltraServers: GiB of HBM and devices with the default grouping of cores.
@pytest.mark.parametrize(
    ("instance", "hbm_gib", "devices"),
    [
        ("trn1.2xlarge", 32, 2),
        ("trn1.32xlarge", 512, 32),
        ("trn1n.32xlarge", 512, 32),
        ("inf2.xlarge", 32, 2),
        ("inf2.8xlarge", 32, 2),
        ("inf2.24xlarge", 192, 12),
        ("inf2.48xlarge", 384, 24),
        ("trn2.3xlarge", 96, 4),
        ("trn2.12xlarge", 384, 16),
        ("trn2.48xlarge", 1536, 64),
        ("trn2u.48xlarge", 1536, 64),
        ("trn2-ultraserver", 6144, 256),
        ("trn3-gen1-ultraserver", 9216, 256),
        ("trn3-gen2-ultraserver", 20736, 576),
    ],
)
def test_instances(instance: str, hbm_gib: int, devices: int) -> None:
    row = INSTANCES[instance]
    assert row.hosts * row.chips * row.chip.hbm_bytes == hbm_gib << 30
    assert row.hosts * row.devices() == devices


def test_every_instance_is_tested() -> None:
    (mark,) = (mark for mark in test_instances.pytestmark if mark.name == "parametrize")
    assert {row[0] for row in mark.args[1]} == set(INSTANCES)


def test_two_groupings() -> None:
    assert INSTANCES["trn2.3xlarge"].devices(lnc=1) == 8 == INSTANCES["trn2.3xlarge"].devices(lnc=2) * 2
    assert all(name == chip.name and chip.cores % chip.default_lnc == 0 for name, chip in CHIPS.items())
