#include "engine/tensor_engine.h"

#include "engine/launch.h"
#include "runtime/topology.h"

#include <ATen/Context.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/baddbmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <omp.h>
#include <torch/version.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>
#include <system_error>

namespace at::native {

// Exported by libtorch_cpu; its header is not in the wheel.
TORCH_API void mkldnn_matmul(const Tensor& mat1, const Tensor& mat2, const Tensor& result, float beta, float alpha);

}  // namespace at::native

namespace torchneuron::tensor_engine {

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// oneDNN takes matrices that are dense by rows or by columns; PyTorch's wrapper would copy others first.
bool is_dense(const at::Tensor& t) {
  if (t.is_contiguous()) {
    return true;
  }
  const int64_t rows = t.size(-2);
  const int64_t columns = t.size(-1);
  return t.stride(-2) == 1 && t.stride(-1) == rows && (t.dim() == 2 || t.stride(0) == rows * columns);
}

bool goes_to_onednn(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out) {
  if (a.scalar_type() != at::kFloat || b.scalar_type() != at::kFloat || out.scalar_type() != at::kFloat) {
    return false;
  }
  const double products = static_cast<double>(a.numel()) * static_cast<double>(b.size(-1));
  // Below the least size that is measured, the measurement is not worth its time.
  return products >= 64.0 * 64 * 64 && at::globalContext().userEnabledMkldnn() && is_dense(a) && is_dense(b) &&
         out.is_contiguous() && products >= onednn_threshold();
}

// Into `out`: beta * self + alpha * a @ b.
bool try_onednn(
    const at::Tensor& self, const at::Tensor& a, const at::Tensor& b, const at::Scalar& beta, const at::Scalar& alpha,
    const at::Tensor& out) {
  if (alpha.isComplex() || beta.isComplex() || alpha.toFloat() == 0 || !goes_to_onednn(a, b, out)) {
    return false;
  }
  if (beta.toFloat() != 0 && !self.is_same(out)) {
    out.copy_(self);
  }
  at::native::mkldnn_matmul(a, b, out, beta.toFloat(), alpha.toFloat());
  return true;
}

// Seconds of the fastest of several products of size n by MKL and by oneDNN, in turn.
std::array<double, 2> measure(int64_t n) {
  const at::Tensor a = at::ones({n, n}), b = at::ones({n, n});
  at::Tensor out = at::zeros({n, n});
  std::array<double, 2> fastest{kNever, kNever};
  for (int round = 0; round < 8; ++round) {
    for (const bool onednn : {false, true}) {
      const uint64_t start = detail::now_nanoseconds();
      if (onednn) {
        at::native::mkldnn_matmul(a, b, out, 0, 1);
      } else {
        at::cpu::mm_outf(a, b, out);
      }
      const double seconds = static_cast<double>(detail::now_nanoseconds() - start) * 1e-9;
      fastest[onednn] = std::min(fastest[onednn], seconds);
    }
  }
  return fastest;
}

double measure_threshold() {
  double threshold = kNever;
  try {
    for (const int64_t n : {512, 256, 128, 64}) {
      const auto [mkl, onednn] = measure(n);
      // Not for a gain that the next measurement may not find again.
      if (onednn > 0.85 * mkl) {
        break;
      }
      threshold = static_cast<double>(n * n * n);
    }
  } catch (const c10::Error&) {
    // A host whose instruction set PyTorch does not use oneDNN with.
  }
  return threshold;
}

// Where the result of a measurement is kept, with what it holds for; empty where there is no such place.
std::filesystem::path kept_file() {
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/') {
    return std::filesystem::path(cache) / "torchneuron" / "tensor_engine";
  }
  if (const char* home = std::getenv("HOME"); home != nullptr && *home == '/') {
    return std::filesystem::path(home) / ".cache" / "torchneuron" / "tensor_engine";
  }
  return {};
}

std::string host() {
  std::ifstream info("/proc/cpuinfo");
  std::string line;
  while (std::getline(info, line) && line.rfind("model name", 0) != 0) {
  }
  return line + ", " + std::to_string(omp_get_max_threads()) + " threads, PyTorch " TORCH_VERSION;
}

std::optional<double> kept_threshold(const std::filesystem::path& path, const std::string& host) {
  std::ifstream file(path);
  std::string kept_for;
  double threshold = 0;
  if (std::getline(file, kept_for) && kept_for == host && file >> threshold) {
    return threshold > 0 ? threshold : kNever;
  }
  return std::nullopt;
}

// A file that cannot be written costs the next process a measurement, no more.
void keep_threshold(const std::filesystem::path& path, const std::string& host, double threshold) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  const std::filesystem::path written = path.string() + "." + std::to_string(getpid());
  std::ofstream(written) << host << '\n' << (threshold == kNever ? 0 : threshold) << '\n';
  std::filesystem::rename(written, path, ignored);
}

double find_threshold() {
  if (const std::string& engine = topology().tensor_engine; engine != "measured") {
    return engine == "onednn" ? 0 : kNever;
  }
  const std::filesystem::path path = kept_file();
  const std::string here = host();
  if (const auto kept = kept_threshold(path, here); kept.has_value()) {
    return *kept;
  }
  const double threshold = measure_threshold();
  if (!path.empty()) {
    keep_threshold(path, here, threshold);
  }
  return threshold;
}

}  // namespace

double onednn_threshold() {
  static const double threshold = find_threshold();
  return threshold;
}

at::Tensor& mm_outf(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  return try_onednn(out, self, mat2, 0, 1, out) ? out : at::cpu::mm_outf(self, mat2, out);
}

at::Tensor& bmm_outf(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  return try_onednn(out, self, mat2, 0, 1, out) ? out : at::cpu::bmm_outf(self, mat2, out);
}

at::Tensor& addmm_outf(
    const at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta,
    const at::Scalar& alpha, at::Tensor& out) {
  return try_onednn(self, mat1, mat2, beta, alpha, out) ? out : at::cpu::addmm_outf(self, mat1, mat2, beta, alpha, out);
}

at::Tensor& addmm_(
    at::Tensor& self, const at::Tensor& mat1, const at::Tensor& mat2, const at::Scalar& beta, const at::Scalar& alpha) {
  return try_onednn(self, mat1, mat2, beta, alpha, self) ? self : at::cpu::addmm_(self, mat1, mat2, beta, alpha);
}

at::Tensor& baddbmm_outf(
    const at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
    const at::Scalar& alpha, at::Tensor& out) {
  return try_onednn(self, batch1, batch2, beta, alpha, out)
             ? out
             : at::cpu::baddbmm_outf(self, batch1, batch2, beta, alpha, out);
}

at::Tensor& baddbmm_(
    at::Tensor& self, const at::Tensor& batch1, const at::Tensor& batch2, const at::Scalar& beta,
    const at::Scalar& alpha) {
  return try_onednn(self, batch1, batch2, beta, alpha, self) ? self
                                                             : at::cpu::baddbmm_(self, batch1, batch2, beta, alpha);
}

}  // namespace torchneuron::tensor_engine
