#pragma once

namespace torchneuron {

// Held while a thread waits for a stream, an event or memory: gives up the GIL if the thread holds it.
class BlockingRegion {
 public:
  BlockingRegion();
  ~BlockingRegion();
  BlockingRegion(const BlockingRegion&) = delete;
  BlockingRegion& operator=(const BlockingRegion&) = delete;

 private:
  void* python_thread_state_ = nullptr;
};

}  // namespace torchneuron
