#include "runtime/shared_memory.h"

#include "engine/launch.h"
#include "runtime/allocator.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

namespace torchneuron {

namespace {

// A mapping of shared memory, and the allocation of the device that it counts as.
struct SharedMapping {
  void* ptr;
  size_t nbytes;
  int descriptor;
  c10::DataPtr accounted;
};

void unmap(void* ptr, size_t nbytes, int descriptor) {
  munmap(ptr, nbytes);
  close(descriptor);
}

// Tasks in the queues may still use the mapping, so it goes in stream order.
void free_mapping(void* context) {
  std::unique_ptr<SharedMapping> mapping(static_cast<SharedMapping*>(context));
  if (!initialized()) {
    return;
  }
  static OpRecord& op = op_record("neuron::unmap_shared_memory");
  Stream& stream = current_stream(mapping->accounted.device().index());
  launch_on(stream, op, &unmap, mapping->ptr, mapping->nbytes, mapping->descriptor);
}

c10::DataPtr map_descriptor(int descriptor, size_t nbytes, c10::DataPtr accounted) {
  void* ptr = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (ptr == MAP_FAILED) {
    close(descriptor);
    TORCH_CHECK(false, "cannot map ", nbytes, " bytes of shared memory: ", strerror(errno));
  }
  const c10::Device device = accounted.device();
  return {ptr, new SharedMapping{ptr, nbytes, descriptor, std::move(accounted)}, &free_mapping, device};
}

}  // namespace

int share_storage(const c10::Storage& storage) {
  TORCH_CHECK_VALUE(
      storage.device_type() == kNeuron, "expected a storage on neuron, but got one on ", storage.device());
  TORCH_CHECK_VALUE(storage.nbytes() > 0, "an empty storage has no memory to share");
  c10::StorageImpl* impl = storage.unsafeGetStorageImpl();
  if (impl->data_ptr().get_deleter() == &free_mapping) {
    return static_cast<SharedMapping*>(impl->data_ptr().get_context())->descriptor;
  }
  synchronize_device(storage.device().index());
  const int descriptor = memfd_create("torchneuron", MFD_CLOEXEC);
  TORCH_CHECK(descriptor >= 0, "cannot create shared memory: ", strerror(errno));
  const size_t nbytes = storage.nbytes();
  if (ftruncate(descriptor, static_cast<off_t>(nbytes)) != 0) {
    close(descriptor);
    TORCH_CHECK(false, "cannot create ", nbytes, " bytes of shared memory: ", strerror(errno));
  }
  c10::DataPtr shared = map_descriptor(descriptor, nbytes, {nullptr, storage.device()});
  std::memcpy(shared.get(), impl->data(), nbytes);
  auto* mapping = static_cast<SharedMapping*>(shared.get_context());
  // The old allocation stays as the one that the limit counts; its pages go back to the host.
  mapping->accounted = impl->set_data_ptr(std::move(shared));
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const auto begin = (reinterpret_cast<size_t>(mapping->accounted.get()) + page - 1) / page * page;
  const auto end = (reinterpret_cast<size_t>(mapping->accounted.get()) + nbytes) / page * page;
  if (begin < end) {
    madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
  }
  impl->set_resizable(false);
  return descriptor;
}

c10::Storage open_shared_storage(int descriptor, size_t nbytes, c10::DeviceIndex device) {
  check_device_index(device);
  c10::DataPtr accounted = device_memory().allocate_on(nbytes, current_stream(device));
  const int own = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
  TORCH_CHECK(own >= 0, "cannot duplicate the descriptor of shared memory: ", strerror(errno));
  return c10::Storage(
      c10::Storage::use_byte_size_t(), nbytes, map_descriptor(own, nbytes, std::move(accounted)), &device_memory(),
      false);
}

}  // namespace torchneuron
