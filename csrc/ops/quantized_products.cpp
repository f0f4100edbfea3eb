#include "engine/tensor_engine.h"
#include "ops/fallback.h"
#include "ops/unstructured.h"
#include "runtime/topology.h"

#include <ATen/ops/_int_mm_native.h>
#include <ATen/ops/_scaled_mm_native.h>
#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max.h>
#include <torch/library.h>

#include <algorithm>

namespace torchneuron {

namespace {

// Products of int8 and of float8 matrices as Trainium's tensor engine computes them: exact products, float32 sums.

// From this many products of two int8 a sum may pass 2^24, beyond which float32 does not hold every integer.
constexpr int64_t kExactProducts = (1 << 24) / (128 * 128);

void int_product(const at::Tensor& a, const at::Tensor& b, at::Tensor out) {
  at::native::_int_mm_out_cpu(a, b, out);
  if (a.size(1) > kExactProducts) {
    out.copy_(out.to(at::kFloat));
  }
}

bool is_int8_product(const at::Tensor& a, const at::Tensor& b) {
  return a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && a.scalar_type() == at::kChar &&
         b.scalar_type() == at::kChar;
}

at::Tensor int_mm(const at::Tensor& self, const at::Tensor& mat2) {
  if (!is_int8_product(self, mat2)) {
    ask_cpu(&at::native::_int_mm_cpu, self, mat2);
  }
  static OpRecord& op = op_record("aten::_int_mm");
  at::Tensor out = new_tensor(self, {self.size(0), mat2.size(1)}, at::kInt);
  launch(op, &int_product, self, mat2, out);
  return out;
}

at::Tensor& int_mm_out(const at::Tensor& self, const at::Tensor& mat2, at::Tensor& out) {
  const bool fits = is_int8_product(self, mat2) && out.scalar_type() == at::kInt && out.dim() == 2 &&
                    out.size(0) == self.size(0) && out.size(1) == mat2.size(1);
  if (!fits) {
    ask_cpu(
        [](const at::Tensor& a, const at::Tensor& b, at::Tensor out) { at::native::_int_mm_out_cpu(a, b, out); }, self,
        mat2, out);
  }
  static OpRecord& op = op_record("aten::_int_mm.out");
  launch(op, &int_product, self, mat2, out);
  return out;
}

// Before trn3, float8_e4m3 has infinities and ends at ±240 where PyTorch's float8_e4m3fn has finite values up to ±448
// (AWS Neuron documentation, "Data types"). The values here are PyTorch's.
void warn_of_values_beyond_240(const at::Tensor& operand) {
  constexpr uint8_t kMagnitude = 0x7f, kGreatest = 0x77;  // 240 as its bits
  if (at::bitwise_and(operand.view(at::kByte), kMagnitude).max().item<uint8_t>() > kGreatest) {
    TORCH_WARN_ONCE(
        "a matrix of float8_e4m3fn holds values beyond 240 or NaN; on ", topology().instance.chip,
        " the greatest float8_e4m3 is 240, and what lies above becomes infinite or NaN. Scale by 240/448, or emulate "
        "an instance with trn3");
  }
}

void scaled_product(
    const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a, const at::Tensor& scale_b,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& scale_result, at::Tensor out) {
  if (topology().instance.chip != "trn3") {
    for (const at::Tensor& operand : {a, b}) {
      if (operand.scalar_type() == at::kFloat8_e4m3fn && operand.numel() > 0) {
        warn_of_values_beyond_240(operand);
      }
    }
  }
  at::Tensor sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
  tensor_engine::mm_outf(a.to(at::kFloat), b.to(at::kFloat), sums);
  sums.mul_(scale_a).mul_(scale_b);
  if (bias.has_value()) {
    sums.add_(bias->reshape(-1).to(at::kFloat));
  }
  if (scale_result.has_value() && at::isFloat8Type(out.scalar_type())) {
    sums.div_(*scale_result);
  }
  out.copy_(sums);
}

bool is_result_dtype(at::ScalarType dtype) {
  return dtype == at::kFloat || dtype == at::kBFloat16 || dtype == at::kHalf || dtype == at::kFloat8_e4m3fn ||
         dtype == at::kFloat8_e5m2;
}

bool is_bias(const at::Tensor& bias, int64_t columns) {
  return bias.numel() == columns && is_result_dtype(bias.scalar_type());
}

bool is_one_float(const at::Tensor& scale) { return scale.scalar_type() == at::kFloat && scale.numel() == 1; }

bool are_scales_of_rows_and_columns(
    const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a, const at::Tensor& scale_b) {
  return scale_a.scalar_type() == at::kFloat && scale_b.scalar_type() == at::kFloat && scale_a.dim() == 2 &&
         scale_b.dim() == 2 && scale_a.size(0) == a.size(0) && scale_a.size(1) == 1 && scale_b.size(0) == 1 &&
         scale_b.size(1) == b.size(1) && scale_a.is_contiguous() && scale_b.is_contiguous();
}

bool is_scaled_product(
    const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a, const at::Tensor& scale_b,
    const std::optional<at::Tensor>& bias, at::ScalarType out_dtype) {
  return a.dim() == 2 && b.dim() == 2 && a.size(1) == b.size(0) && at::isFloat8Type(a.scalar_type()) &&
         at::isFloat8Type(b.scalar_type()) && is_result_dtype(out_dtype) &&
         ((is_one_float(scale_a) && is_one_float(scale_b)) || are_scales_of_rows_and_columns(a, b, scale_a, scale_b)) &&
         (!bias.has_value() || is_bias(*bias, b.size(1)));
}

void launch_scaled_product(
    OpRecord& op, const at::Tensor& a, const at::Tensor& b, const at::Tensor& scale_a, const at::Tensor& scale_b,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& scale_result, const at::Tensor& out) {
  check_one_device("_scaled_mm", a, b, scale_a, scale_b, value_or_undefined(bias), value_or_undefined(scale_result));
  // A scale of rows and one of columns broadcast as they are; single ones must not add dimensions.
  const auto scalar = [](const at::Tensor& scale) { return scale.numel() == 1 ? scale.reshape({}) : scale; };
  launch(op, &scaled_product, a, b, scalar(scale_a), scalar(scale_b), bias, scale_result, out);
}

at::Tensor scaled_mm(
    const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a, const at::Tensor& scale_b,
    const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& scale_result,
    std::optional<at::ScalarType> out_dtype, bool use_fast_accum) {
  const at::ScalarType dtype = out_dtype.value_or(self.scalar_type());
  const bool fits = is_scaled_product(self, mat2, scale_a, scale_b, bias, dtype) &&
                    (!scale_result.has_value() || is_one_float(*scale_result));
  if (!fits) {
    ask_cpu(
        [&](const at::Tensor& self, const at::Tensor& mat2, const at::Tensor& scale_a, const at::Tensor& scale_b,
            const std::optional<at::Tensor>& bias, const std::optional<at::Tensor>& scale_result) {
          return at::native::_scaled_mm_cpu(
              self, mat2, scale_a, scale_b, bias, scale_result, out_dtype, use_fast_accum);
        },
        self, mat2, scale_a, scale_b, bias, scale_result);
  }
  static OpRecord& op = op_record("aten::_scaled_mm");
  at::Tensor out = new_tensor(self, {self.size(0), mat2.size(1)}, dtype);
  launch_scaled_product(op, self, mat2, scale_a, scale_b, bias, scale_result, out);
  return out;
}

// One scale for each matrix or for each row and column, in torch.nn.functional.scaled_mm's numbers of its recipes.
bool is_one_scale_each(const torch::jit::Stack& stack, size_t first) {
  constexpr size_t kScaleA = 2, kRecipeA = 3, kSwizzleA = 4, kScaleB = 5, kRecipeB = 6, kSwizzleB = 7;
  constexpr int64_t kTensorWise = 0, kRowWise = 1;
  const auto numbers = [&](size_t i) { return stack[first + i].toIntVector(); };
  const auto is_plain_layout = [](const std::vector<int64_t>& swizzle) {
    return std::all_of(swizzle.begin(), swizzle.end(), [](int64_t kind) { return kind == 0; });
  };
  return stack[first + kScaleA].toTensorList().size() == 1 && stack[first + kScaleB].toTensorList().size() == 1 &&
         numbers(kRecipeA) == numbers(kRecipeB) &&
         (numbers(kRecipeA) == std::vector{kTensorWise} || numbers(kRecipeA) == std::vector{kRowWise}) &&
         is_plain_layout(numbers(kSwizzleA)) && is_plain_layout(numbers(kSwizzleB));
}

void scaled_mm_v2(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr size_t kArguments = 12;
  const size_t first = stack->size() - kArguments;
  const auto argument = [&](size_t i) -> const c10::IValue& { return (*stack)[first + i]; };
  if (is_one_scale_each(*stack, first)) {
    const at::Tensor self = argument(0).toTensor(), mat2 = argument(1).toTensor();
    const at::Tensor scale_a = argument(2).toTensorList().get(0), scale_b = argument(5).toTensorList().get(0);
    const auto bias = argument(8).toOptional<at::Tensor>();
    const auto dtype = argument(9).toOptional<at::ScalarType>().value_or(self.scalar_type());
    const bool by_rows = argument(3).toIntVector()[0] == 1;
    if (is_scaled_product(self, mat2, scale_a, scale_b, bias, dtype) &&
        (by_rows ? are_scales_of_rows_and_columns(self, mat2, scale_a, scale_b) : is_one_float(scale_a))) {
      static OpRecord& record = op_record("aten::_scaled_mm_v2");
      at::Tensor out = new_tensor(self, {self.size(0), mat2.size(1)}, dtype);
      launch_scaled_product(record, self, mat2, scale_a, scale_b, bias, std::nullopt, out);
      torch::jit::drop(*stack, kArguments);
      torch::jit::push(*stack, std::move(out));
      return;
    }
  }
  run_cpu_kernel<c10::DispatchKey::CPU>(op, keys, stack);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_int_mm", &int_mm);
  m.impl("_int_mm.out", &int_mm_out);
  m.impl("_scaled_mm", &scaled_mm);
  m.impl("_scaled_mm_v2", torch::CppFunction::makeFromBoxedFunction<&scaled_mm_v2>());
}

}  // namespace

}  // namespace torchneuron
