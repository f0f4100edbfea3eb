#include "ops/unstructured.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/tanh.h>
#include <torch/library.h>

namespace torchneuron {

namespace {

// PyTorch runs every LSTM and GRU step of this device through the fused cells, of which CPU has none: there, a step is
// a row of operators. Here it is one launch. The workspace is the gates after their activation functions.

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Five = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

// (batch, count * hidden) as `count` tensors of (batch, hidden).
template <size_t kCount>
std::array<at::Tensor, kCount> split(const at::Tensor& gates) {
  const int64_t hidden = gates.size(1) / static_cast<int64_t>(kCount);
  std::array<at::Tensor, kCount> parts;
  for (size_t i = 0; i < kCount; ++i) {
    parts[i] = gates.narrow(1, static_cast<int64_t>(i) * hidden, hidden);
  }
  return parts;
}

void check_gates(
    const char* op, int64_t count, const at::Tensor& input_gates, const at::Tensor& hidden_gates,
    const at::Tensor& state, const at::Tensor& input_bias, const at::Tensor& hidden_bias) {
  check_one_device(op, input_gates, hidden_gates, state, input_bias, hidden_bias);
  TORCH_CHECK(
      input_gates.dim() == 2 && input_gates.sizes() == hidden_gates.sizes() && state.dim() == 2 &&
          state.size(0) == input_gates.size(0) && state.size(1) * count == input_gates.size(1),
      op, ": gates of sizes ", input_gates.sizes(), " and ", hidden_gates.sizes(), " do not fit a state of sizes ",
      state.sizes());
  TORCH_CHECK(
      input_bias.defined() == hidden_bias.defined() &&
          (!input_bias.defined() || (input_bias.dim() == 1 && input_bias.size(0) == input_gates.size(1) &&
                                     hidden_bias.sizes() == input_bias.sizes())),
      op, ": both biases must have ", input_gates.size(1), " elements, or neither be given");
  TORCH_CHECK(
      at::isFloatingType(input_gates.scalar_type()) && input_gates.scalar_type() == hidden_gates.scalar_type() &&
          input_gates.scalar_type() == state.scalar_type(),
      op, ": gates and state must have one floating dtype, but have ", input_gates.scalar_type(), ", ",
      hidden_gates.scalar_type(), " and ", state.scalar_type());
}

// Gates: input, forget, cell, output.
Three lstm_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  check_gates(
      "_thnn_fused_lstm_cell", 4, input_gates, hidden_gates, cx, value_or_undefined(input_bias),
      value_or_undefined(hidden_bias));
  at::Tensor hy = new_tensor(cx, cx.sizes(), cx.scalar_type());
  at::Tensor cy = new_tensor(cx, cx.sizes(), cx.scalar_type());
  at::Tensor workspace = new_tensor(cx, input_gates.sizes(), cx.scalar_type());
  static OpRecord& op = op_record("aten::_thnn_fused_lstm_cell");
  launch(
      op,
      [](const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& cx,
         const at::Tensor& input_bias, const at::Tensor& hidden_bias, at::Tensor hy, at::Tensor cy, at::Tensor gates) {
        at::add_out(gates, input_gates, hidden_gates);
        if (input_bias.defined()) {
          gates.add_(input_bias).add_(hidden_bias);
        }
        auto [in, forget, cell, out] = split<4>(gates);
        gates.narrow(1, 0, 2 * in.size(1)).sigmoid_();
        cell.tanh_();
        out.sigmoid_();
        at::mul_out(cy, forget, cx);
        cy.addcmul_(in, cell);
        at::tanh_out(hy, cy);
        hy.mul_(out);
      },
      input_gates, hidden_gates, cx, value_or_undefined(input_bias), value_or_undefined(hidden_bias), hy, cy,
      workspace);
  return {hy, cy, workspace};
}

Three lstm_cell_backward(
    const std::optional<at::Tensor>& grad_hy, const std::optional<at::Tensor>& grad_cy, const at::Tensor& cx,
    const at::Tensor& cy, const at::Tensor& workspace, bool has_bias) {
  const at::Tensor& dhy = value_or_undefined(grad_hy);
  const at::Tensor& dcy = value_or_undefined(grad_cy);
  if (!dhy.defined() && !dcy.defined()) {
    return {};
  }
  check_one_device("_thnn_fused_lstm_cell_backward_impl", dhy, dcy, cx, cy, workspace);
  at::Tensor grad_gates = new_tensor(workspace, workspace.sizes(), workspace.scalar_type());
  at::Tensor grad_cx = new_tensor(cx, cx.sizes(), cx.scalar_type());
  at::Tensor grad_bias;
  if (has_bias) {
    grad_bias = new_tensor(workspace, {workspace.size(1)}, workspace.scalar_type());
  }
  static OpRecord& op = op_record("aten::_thnn_fused_lstm_cell_backward_impl");
  launch(
      op,
      [](const at::Tensor& dhy, const at::Tensor& dcy, const at::Tensor& cx, const at::Tensor& cy,
         const at::Tensor& gates, const at::Tensor& grad_gates, at::Tensor dc, at::Tensor grad_bias) {
        const auto [in, forget, cell, out] = split<4>(gates);
        auto [d_in, d_forget, d_cell, d_out] = split<4>(grad_gates);
        const at::Tensor tanh_cy = cy.tanh();
        if (dhy.defined()) {
          at::mul_out(d_out, dhy, tanh_cy).mul_(out).mul_(1 - out);
          at::mul_out(dc, dhy, out).mul_(1 - tanh_cy * tanh_cy);
          if (dcy.defined()) {
            dc.add_(dcy);
          }
        } else {
          d_out.zero_();
          dc.copy_(dcy);
        }
        at::mul_out(d_in, dc, cell).mul_(in).mul_(1 - in);
        at::mul_out(d_forget, dc, cx).mul_(forget).mul_(1 - forget);
        at::mul_out(d_cell, dc, in).mul_(1 - cell * cell);
        dc.mul_(forget);
        if (grad_bias.defined()) {
          at::sum_out(grad_bias, grad_gates, {0});
        }
      },
      dhy, dcy, cx, cy, workspace, grad_gates, grad_cx, grad_bias);
  return {grad_gates, grad_cx, grad_bias};
}

// Gates: reset, update, new. The workspace has two parts more: the old state, and what the reset gate multiplies.
std::tuple<at::Tensor, at::Tensor> gru_cell(
    const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
    const std::optional<at::Tensor>& input_bias, const std::optional<at::Tensor>& hidden_bias) {
  check_gates(
      "_thnn_fused_gru_cell", 3, input_gates, hidden_gates, hx, value_or_undefined(input_bias),
      value_or_undefined(hidden_bias));
  at::Tensor hy = new_tensor(hx, hx.sizes(), hx.scalar_type());
  at::Tensor workspace = new_tensor(hx, {hx.size(0), 5 * hx.size(1)}, hx.scalar_type());
  static OpRecord& op = op_record("aten::_thnn_fused_gru_cell");
  launch(
      op,
      [](const at::Tensor& input_gates, const at::Tensor& hidden_gates, const at::Tensor& hx,
         const at::Tensor& input_bias, const at::Tensor& hidden_bias, at::Tensor hy, const at::Tensor& workspace) {
        const int64_t hidden = hx.size(1);
        auto [reset, update, fresh, old_state, reset_operand] = split<5>(workspace);
        const auto new_gate = [hidden](const at::Tensor& gates) { return gates.narrow(1, 2 * hidden, hidden); };
        const auto first_gates = [hidden](const at::Tensor& t, int64_t dim) { return t.narrow(dim, 0, 2 * hidden); };
        at::Tensor reset_and_update = first_gates(workspace, 1);
        at::add_out(reset_and_update, first_gates(input_gates, 1), first_gates(hidden_gates, 1));
        reset_operand.copy_(new_gate(hidden_gates));
        fresh.copy_(new_gate(input_gates));
        if (input_bias.defined()) {
          reset_and_update.add_(first_gates(input_bias, 0)).add_(first_gates(hidden_bias, 0));
          reset_operand.add_(hidden_bias.narrow(0, 2 * hidden, hidden));
          fresh.add_(input_bias.narrow(0, 2 * hidden, hidden));
        }
        reset_and_update.sigmoid_();
        fresh.addcmul_(reset, reset_operand).tanh_();
        old_state.copy_(hx);
        at::sub_out(hy, hx, fresh).mul_(update).add_(fresh);
      },
      input_gates, hidden_gates, hx, value_or_undefined(input_bias), value_or_undefined(hidden_bias), hy, workspace);
  return {hy, workspace};
}

Five gru_cell_backward(const at::Tensor& grad_hy, const at::Tensor& workspace, bool has_bias) {
  check_one_device("_thnn_fused_gru_cell_backward", grad_hy, workspace);
  const int64_t batch = workspace.size(0);
  const int64_t hidden = workspace.size(1) / 5;
  const at::ScalarType dtype = workspace.scalar_type();
  at::Tensor grad_input_gates = new_tensor(workspace, {batch, 3 * hidden}, dtype);
  at::Tensor grad_hidden_gates = new_tensor(workspace, {batch, 3 * hidden}, dtype);
  at::Tensor grad_hx = new_tensor(workspace, {batch, hidden}, dtype);
  at::Tensor grad_input_bias, grad_hidden_bias;
  if (has_bias) {
    grad_input_bias = new_tensor(workspace, {3 * hidden}, dtype);
    grad_hidden_bias = new_tensor(workspace, {3 * hidden}, dtype);
  }
  static OpRecord& op = op_record("aten::_thnn_fused_gru_cell_backward");
  launch(
      op,
      [](const at::Tensor& dhy, const at::Tensor& workspace, const at::Tensor& grad_input_gates,
         const at::Tensor& grad_hidden_gates, at::Tensor grad_hx, at::Tensor grad_input_bias,
         at::Tensor grad_hidden_bias) {
        const auto [reset, update, fresh, old_state, reset_operand] = split<5>(workspace);
        auto [d_reset, d_update, d_fresh] = split<3>(grad_input_gates);
        auto [d_hidden_reset, d_hidden_update, d_reset_operand] = split<3>(grad_hidden_gates);
        at::mul_out(d_update, dhy, old_state - fresh).mul_(update).mul_(1 - update);
        at::mul_out(d_fresh, dhy, 1 - update).mul_(1 - fresh * fresh);
        at::mul_out(d_reset_operand, d_fresh, reset);
        at::mul_out(d_reset, d_reset_operand, reset_operand).mul_(1 - reset);
        d_hidden_reset.copy_(d_reset);
        d_hidden_update.copy_(d_update);
        at::mul_out(grad_hx, dhy, update);
        if (grad_input_bias.defined()) {
          at::sum_out(grad_input_bias, grad_input_gates, {0});
          at::sum_out(grad_hidden_bias, grad_hidden_gates, {0});
        }
      },
      grad_hy, workspace, grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias);
  return {grad_input_gates, grad_hidden_gates, grad_hx, grad_input_bias, grad_hidden_bias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", &lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", &lstm_cell_backward);
  m.impl("_thnn_fused_gru_cell", &gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", &gru_cell_backward);
}

}  // namespace

}  // namespace torchneuron
