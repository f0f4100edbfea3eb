"""Facts about Trainium hardware: the chips and the instances that carry them, each with its published source."""

from .chips import CHIPS, Chip
from .instances import INSTANCES, Instance

__all__ = ["CHIPS", "INSTANCES", "Chip", "Instance"]
