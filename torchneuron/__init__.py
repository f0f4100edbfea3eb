"""AWS Trainium as a PyTorch device named `neuron`, emulated on the host's CPU.

`import torch` loads this package through its entry point in the group `torch.backends`; a program needs no import of
its own. Where the device cannot be provided, `import torch` still works and the first use of `neuron` says why.
"""

import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

# The release whose C++ interface the extension is compiled against. Nothing else loads it.
BUILT_FOR_TORCH = "2.13"

_loaded = False


def _autoload() -> None:
    """Provide `neuron` to PyTorch. Called by `import torch`, or by `import torchneuron`, whichever came first."""
    global _loaded
    if _loaded:
        return
    _loaded = True
    if _aws_package_provides_neuron():
        return
    try:
        _register()
    except Exception as error:
        from . import _unavailable

        _unavailable.register(error)


def _register() -> None:
    import torch

    release = torch.__version__.split("+")[0]
    if release.split(".")[:2] != BUILT_FOR_TORCH.split("."):
        message = (
            f"torchneuron is built for PyTorch {BUILT_FOR_TORCH}, but this is PyTorch {release}: "
            f"pip install 'torch=={BUILT_FOR_TORCH}.*', or get a torchneuron for {release} and rebuild it with "
            "pip install --no-build-isolation ."
        )
        print(message, file=sys.stderr)
        raise ImportError(message)

    owner = torch._C._get_privateuse1_backend_name()
    if owner not in ("privateuseone", "neuron"):
        raise RuntimeError(
            f"PyTorch holds one out-of-tree device per process, and '{owner}' has taken its place. Uninstall the "
            f"package that provides '{owner}', or start with TORCH_DEVICE_BACKEND_AUTOLOAD=0 and import torchneuron "
            "instead of it"
        )

    # Before the extension: it registers kernels for the device, whose name then stands in their errors.
    torch.utils.rename_privateuse1_backend("neuron")
    from . import neuron
    from .neuron import dlpack, fake_tensors, sharing

    torch._register_device_module("neuron", neuron)
    for name in neuron.SUBMODULES:
        sys.modules[f"torch.neuron.{name}"] = getattr(neuron, name)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    dlpack.register()
    fake_tensors.register()
    sharing.register()
    _offer_torch_neuronx()


def _aws_package_provides_neuron() -> bool:
    """Whether AWS's own package is installed and registers the device itself. Two providers cannot share it."""
    if not _is_importable("torch_neuronx"):
        return False
    from importlib.metadata import entry_points

    return any(entry.value.startswith("torch_neuronx") for entry in entry_points(group="torch.backends"))


def _offer_torch_neuronx() -> None:
    """Make `torch_neuronx` findable, where AWS's package is absent.

    Transformers and Accelerate use `neuron` only if `importlib.util.find_spec("torch_neuronx")` is not None, and run on
    the CPU without a word otherwise.
    """
    if _is_importable("torch_neuronx"):
        return
    module = ModuleType("torch_neuronx", "Stands for AWS's package: torchneuron provides the device `neuron`.")
    module.__spec__ = ModuleSpec("torch_neuronx", loader=None, origin="torchneuron")
    sys.modules["torch_neuronx"] = module


def _is_importable(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # imported, but by hand and without a spec
        return True


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version

        return version("torchneuron")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


# Where this package is imported first, this runs the entry point above, which finds the package half imported but
# `_autoload` in place.
importlib.import_module("torch")

_autoload()
