#include "ops/plain.h"
#include "ops/unstructured.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/mkldnn_rnn_layer.h>
#include <ATen/ops/mkldnn_rnn_layer_backward_native.h>
#include <ATen/ops/mkldnn_rnn_layer_native.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <map>
#include <mutex>

namespace torchneuron {

namespace {

// An LSTM in float32 runs on CPU as one oneDNN kernel for each layer and direction, but on other devices as one fused
// cell for each step. Here it takes CPU's way, where nobody can tell; all others take the cells of recurrent.cpp.

constexpr int64_t kLstm = 2;  // of mkldnn_rnn_layer's modes

using Three = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
using Four = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
using Seven = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;

bool is_plain_float(const at::Tensor& tensor) { return is_plain(tensor) && tensor.scalar_type() == at::kFloat; }

bool has_sizes(const at::Tensor& tensor, at::IntArrayRef sizes, const at::Tensor& input) {
  return is_plain_float(tensor) && tensor.device() == input.device() && tensor.sizes() == sizes;
}

bool runs_by_layers(
    const at::Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases, int64_t layers,
    bool bidirectional, bool batch_first) {
  const int64_t directions = bidirectional ? 2 : 1;
  const int64_t count = has_biases ? 4 : 2;
  if (at::autocast::is_autocast_enabled(at::kPrivateUse1) || input.dim() != 3 || !is_plain_float(input) ||
      input.numel() == 0 || hx.size() != 2 || layers < 1 ||
      static_cast<int64_t>(params.size()) != count * layers * directions || params[1].dim() != 2) {
    return false;
  }
  const int64_t hidden = params[1].size(1);
  const std::array state{layers * directions, input.size(batch_first ? 0 : 1), hidden};
  if (hidden == 0 || !has_sizes(hx[0], state, input) || !has_sizes(hx[1], state, input)) {
    return false;
  }
  for (int64_t i = 0; i < layers * directions; ++i) {
    const int64_t features = i < directions ? input.size(2) : directions * hidden;
    const auto weights = params.slice(i * count, count);
    if (!has_sizes(weights[0], {4 * hidden, features}, input) || !has_sizes(weights[1], {4 * hidden, hidden}, input) ||
        (has_biases && (!has_sizes(weights[2], {4 * hidden}, input) || !has_sizes(weights[3], {4 * hidden}, input)))) {
      return false;
    }
  }
  return true;
}

Three lstm(
    const at::Tensor& input, at::TensorList hx, at::TensorList params, bool has_biases, int64_t layers, double dropout,
    bool train, bool bidirectional, bool batch_first) {
  TORCH_CHECK(
      hx.size() != 2 || !hx[0].defined() || !hx[1].defined() || hx[0].sym_size(0) == hx[1].sym_size(0),
      "lstm: hx must be two states of one for each layer and direction, but they have the sizes ", hx[0].sym_sizes(),
      " and ", hx[1].sym_sizes());
  if (!runs_by_layers(input, hx, params, has_biases, layers, bidirectional, batch_first)) {
    return at::native::lstm(input, hx, params, has_biases, layers, dropout, train, bidirectional, batch_first);
  }
  const int64_t directions = bidirectional ? 2 : 1;
  const int64_t hidden = params[1].size(1);
  const auto initial_h = hx[0].unbind(0), initial_c = hx[1].unbind(0);
  const at::Tensor no_bias = has_biases ? at::Tensor() : at::zeros({4 * hidden}, input.options());
  std::vector<at::Tensor> last_h, last_c;
  at::Tensor x = (batch_first ? input.transpose(0, 1) : input).contiguous();
  for (int64_t layer = 0; layer < layers; ++layer) {
    std::vector<at::Tensor> outputs;
    for (int64_t direction = 0; direction < directions; ++direction) {
      const int64_t i = layer * directions + direction;
      const auto weights = params.slice(i * (has_biases ? 4 : 2), has_biases ? 4 : 2);
      auto [output, h, c, workspace] = at::mkldnn_rnn_layer(
          x, weights[0].contiguous(), weights[1].contiguous(), has_biases ? weights[2].contiguous() : no_bias,
          has_biases ? weights[3].contiguous() : no_bias, initial_h[i].contiguous(), initial_c[i].contiguous(),
          /*reverse=*/direction == 1, /*batch_sizes=*/{}, kLstm, hidden, layers, has_biases, bidirectional, batch_first,
          train);
      outputs.push_back(std::move(output));
      last_h.push_back(std::move(h));
      last_c.push_back(std::move(c));
    }
    x = directions == 1 ? outputs[0] : at::cat(outputs, /*dim=*/-1);
    if (dropout != 0 && train && layer + 1 < layers) {
      x = at::dropout(x, dropout, /*train=*/true);
    }
  }
  return {batch_first ? x.transpose(0, 1) : x, at::stack(last_h, 0), at::stack(last_c, 0)};
}

struct LayerArguments {
  bool reverse;
  int64_t mode;
  int64_t hidden_size;
  int64_t num_layers;
  bool has_biases;
  bool bidirectional;
  bool batch_first;
  bool train;
  bool with_gradients;  // whether oneDNN keeps a workspace
};

Four run_layer(
    const at::Tensor& input, const at::Tensor& weight_ih, const at::Tensor& weight_hh, const at::Tensor& bias_ih,
    const at::Tensor& bias_hh, const at::Tensor& h, const at::Tensor& c, const LayerArguments& a) {
  const c10::AutoGradMode mode(a.with_gradients);
  return at::native::mkldnn_rnn_layer(
      input, weight_ih, weight_hh, bias_ih, bias_hh, h, c, a.reverse, /*batch_sizes=*/{}, a.mode, a.hidden_size,
      a.num_layers, a.has_biases, a.bidirectional, a.batch_first, a.train);
}

// What oneDNN keeps for the backward pass. Only oneDNN knows how much it is, so CPU is asked once for each geometry.
int64_t workspace_bytes(
    const at::Tensor& input, const at::Tensor& weight_ih, const at::Tensor& weight_hh, const at::Tensor& bias_ih,
    const at::Tensor& bias_hh, const at::Tensor& h, const at::Tensor& c, const LayerArguments& a) {
  if (!a.with_gradients) {
    return 0;
  }
  static std::mutex mutex;
  static std::map<std::array<int64_t, 4>, int64_t> known;
  const std::array key{input.size(0), input.size(1), input.size(2), a.hidden_size};
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(key, 0);
  if (is_new) {
    entry->second = std::get<3>(ask_cpu(
                                    [&](const auto&... tensors) { return run_layer(tensors..., a); }, input, weight_ih,
                                    weight_hh, bias_ih, bias_hh, h, c))
                        .numel();
  }
  return entry->second;
}

Four layer(
    const at::Tensor& input, const at::Tensor& weight_ih, const at::Tensor& weight_hh, const at::Tensor& bias_ih,
    const at::Tensor& bias_hh, const at::Tensor& h, const at::Tensor& c, bool reverse, at::IntArrayRef batch_sizes,
    int64_t mode, int64_t hidden_size, int64_t num_layers, bool has_biases, bool bidirectional, bool batch_first,
    bool train) {
  TORCH_CHECK(
      mode == kLstm && batch_sizes.empty() && input.dim() == 3 && input.scalar_type() == at::kFloat,
      "mkldnn_rnn_layer on neuron takes an LSTM in float32 without batch_sizes, as aten::lstm calls it");
  check_one_device("mkldnn_rnn_layer", input, weight_ih, weight_hh, bias_ih, bias_hh, h, c);
  const LayerArguments a{reverse,     mode,       hidden_size,
                         num_layers,  has_biases, bidirectional,
                         batch_first, train,      at::GradMode::is_enabled()};
  const int64_t workspace_size = workspace_bytes(input, weight_ih, weight_hh, bias_ih, bias_hh, h, c, a);
  at::Tensor output = new_tensor(input, {input.size(0), input.size(1), hidden_size}, at::kFloat);
  at::Tensor hy = new_tensor(input, h.sizes(), at::kFloat);
  at::Tensor cy = new_tensor(input, c.sizes(), at::kFloat);
  at::Tensor workspace = new_tensor(input, {workspace_size}, at::kByte);
  static OpRecord& op = op_record("aten::mkldnn_rnn_layer");
  launch(
      op,
      [a](const at::Tensor& output, const at::Tensor& hy, const at::Tensor& cy, const at::Tensor& workspace,
          const auto&... inputs) {
        std::optional<Four> results;
        {
          const OutputPlacement placement({output, hy, cy, workspace});
          results.emplace(run_layer(inputs..., a));
        }
        detail::deliver(std::array{output, hy, cy, workspace}, *results);
      },
      output, hy, cy, workspace, input, weight_ih, weight_hh, bias_ih, bias_hh, h, c);
  return {output, hy, cy, workspace};
}

Seven layer_backward(
    const at::Tensor& input, const at::Tensor& weight_ih, const at::Tensor& weight_hh, const at::Tensor& bias_ih,
    const at::Tensor& bias_hh, const at::Tensor& h, const at::Tensor& c, const at::Tensor& output, const at::Tensor& hy,
    const at::Tensor& cy, const std::optional<at::Tensor>& grad_output, const std::optional<at::Tensor>& grad_hy,
    const std::optional<at::Tensor>& grad_cy, bool reverse, int64_t mode, int64_t hidden_size, int64_t num_layers,
    bool has_biases, bool train, bool bidirectional, at::IntArrayRef, bool batch_first, const at::Tensor& workspace) {
  const auto is_given = [](const std::optional<at::Tensor>& grad) { return value_or_undefined(grad).defined(); };
  if (!is_given(grad_output) && !is_given(grad_hy) && !is_given(grad_cy)) {
    return {};
  }
  const LayerArguments a{
      reverse, mode, hidden_size, num_layers, has_biases, bidirectional, batch_first, train, /*with_gradients=*/true};
  const auto like = [&](const at::Tensor& tensor) { return new_tensor(tensor, tensor.sizes(), at::kFloat); };
  const Seven grads{like(input), like(weight_ih), like(weight_hh), like(bias_ih), like(bias_hh), like(h), like(c)};
  static OpRecord& op = op_record("aten::mkldnn_rnn_layer_backward");
  std::apply(
      [&](const auto&... planned) {
        launch(
            op,
            [a](const at::Tensor& d_input, const at::Tensor& d_weight_ih, const at::Tensor& d_weight_hh,
                const at::Tensor& d_bias_ih, const at::Tensor& d_bias_hh, const at::Tensor& d_h, const at::Tensor& d_c,
                const at::Tensor& input, const at::Tensor& weight_ih, const at::Tensor& weight_hh,
                const at::Tensor& bias_ih, const at::Tensor& bias_hh, const at::Tensor& h, const at::Tensor& c,
                const at::Tensor& output, const at::Tensor& hy, const at::Tensor& cy,
                const std::optional<at::Tensor>& grad_output, const std::optional<at::Tensor>& grad_hy,
                const std::optional<at::Tensor>& grad_cy, const at::Tensor& workspace) {
              const std::array planned{d_input, d_weight_ih, d_weight_hh, d_bias_ih, d_bias_hh, d_h, d_c};
              std::optional<Seven> results;
              {
                const OutputPlacement placement({d_input, d_weight_ih, d_weight_hh, d_bias_ih, d_bias_hh, d_h, d_c});
                results.emplace(
                    at::native::mkldnn_rnn_layer_backward(
                        input, weight_ih, weight_hh, bias_ih, bias_hh, h, c, output, hy, cy, grad_output, grad_hy,
                        grad_cy, a.reverse, a.mode, a.hidden_size, a.num_layers, a.has_biases, a.train, a.bidirectional,
                        /*batch_sizes=*/{}, a.batch_first, workspace));
              }
              detail::deliver(planned, *results);
            },
            planned..., input, weight_ih, weight_hh, bias_ih, bias_hh, h, c, output, hy, cy, grad_output, grad_hy,
            grad_cy, workspace);
      },
      grads);
  return grads;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("lstm.input", &lstm);
  m.impl("mkldnn_rnn_layer", &layer);
  m.impl("mkldnn_rnn_layer_backward", &layer_backward);
}
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("lstm.input", &lstm); }

}  // namespace

}  // namespace torchneuron
