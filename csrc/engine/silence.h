#pragma once

#include <c10/util/Exception.h>

namespace torchneuron {

// While alive, this thread's warnings are dropped. For bodies whose kernel warns of what the host has warned of
// already.
class Silence {
 private:
  class Handler final : public c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  Handler handler_;
  c10::WarningUtils::WarningHandlerGuard guard_{&handler_};
};

}  // namespace torchneuron
