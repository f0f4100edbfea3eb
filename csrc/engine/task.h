#pragma once

#include "engine/op_record.h"

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <type_traits>
#include <utility>

namespace torchneuron {

// What a launch queues: a body that may run more than once (graph replay), kept in place when it is small.
class Task {
 public:
  Task() = default;
  Task(Task&& other) noexcept { *this = std::move(other); }
  Task& operator=(Task&& other) noexcept {
    reset();
    if (other.functions_ != nullptr) {
      other.functions_->relocate(storage_, other.storage_);
      functions_ = std::exchange(other.functions_, nullptr);
    }
    op = other.op;
    held_bytes = other.held_bytes;
    num_threads = other.num_threads;
    python_stack = std::move(other.python_stack);
    return *this;
  }
  ~Task() { reset(); }

  template <typename Body>
  void emplace(OpRecord* record, size_t held, Body&& body) {
    using Stored = std::decay_t<Body>;
    if constexpr (fits<Stored>) {
      new (storage_) Stored(std::forward<Body>(body));
    } else {
      *reinterpret_cast<Stored**>(storage_) = new Stored(std::forward<Body>(body));
    }
    functions_ = &functions_of<Stored>;
    op = record;
    held_bytes = held;
  }

  void run() { functions_->run(storage_); }

  void reset() noexcept {
    if (functions_ != nullptr) {
      std::exchange(functions_, nullptr)->destroy(storage_);
    }
    python_stack.reset();
  }

  OpRecord* op = nullptr;
  size_t held_bytes = 0;
  int num_threads = 0;
  std::shared_ptr<std::string> python_stack;

 private:
  static constexpr size_t kInlineBytes = 640;

  struct Functions {
    void (*run)(void*);
    void (*relocate)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };

  template <typename Stored>
  static constexpr bool fits = sizeof(Stored) <= kInlineBytes && alignof(Stored) <= 16;

  template <typename Stored>
  static Stored& stored(void* storage) {
    if constexpr (fits<Stored>) {
      return *std::launder(reinterpret_cast<Stored*>(storage));
    } else {
      return **reinterpret_cast<Stored**>(storage);
    }
  }

  template <typename Stored>
  static constexpr Functions functions_of = {
      [](void* storage) { stored<Stored>(storage)(); },
      [](void* to, void* from) noexcept {
        if constexpr (fits<Stored>) {
          new (to) Stored(std::move(stored<Stored>(from)));
          stored<Stored>(from).~Stored();
        } else {
          *reinterpret_cast<Stored**>(to) = *reinterpret_cast<Stored**>(from);
        }
      },
      [](void* storage) noexcept {
        if constexpr (fits<Stored>) {
          stored<Stored>(storage).~Stored();
        } else {
          delete &stored<Stored>(storage);
        }
      }};

  alignas(16) std::byte storage_[kInlineBytes];
  const Functions* functions_ = nullptr;
};

}  // namespace torchneuron
