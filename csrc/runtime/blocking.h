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

// What a thread that waits for long calls now and then: runs, on Python's main thread, the handlers of signals that
// came meanwhile, and throws what one of them raises.
void run_signal_handlers();

}  // namespace torchneuron
