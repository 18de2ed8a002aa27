#include "tessera/runner/observe/linear_inputs.h"

#include <fmt/format.h>

#include <algorithm>

#include "tessera/base/cpu_clones.h"
#include "tessera/runner/host_floats.h"
#include "tessera/runner/model_runner.h"

namespace tessera {
namespace {

using namespace experts_operands;  // NOLINT(google-build-using-namespace): only for this file

TESSERA_CPU_CLONES void add_squares(const float* x, std::int64_t count, double* sums) {
  for (std::int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(x[i]) * static_cast<double>(x[i]);
}

// Adds the square of each value to the sum of its column, and the number of rows to the row count. `matrix` is the
// index of the matrix to which the sums and the count belong.
void add_rows(std::span<const float> rows, std::int64_t cols, std::size_t matrix, ObservedInput& to) {
  double* const sums = to.sums.data() + matrix * static_cast<std::size_t>(cols);
  const std::int64_t count = std::ssize(rows) / cols;
  for (std::int64_t row = 0; row < count; ++row) add_squares(rows.data() + row * cols, cols, sums);
  to.counts[matrix] += static_cast<double>(count);
}

}  // namespace

LinearInputs::LinearInputs(ModelRunner& runner) : parts_(runner.parts()), experts_(parts_) {}

Status LinearInputs::before(const ObservedCall& call) {
  const std::string& op = call.node().op;
  if (op == "linear" || op == "quantised_linear") return add_linear(call);
  if (op == "moe_experts") return add_experts(call);
  return ok_status();
}

std::vector<ObservedInput> LinearInputs::inputs() const {
  std::vector<ObservedInput> inputs;
  for (const auto& [name, input] : inputs_) inputs.push_back(input);
  return inputs;
}

Result<ObservedRows> LinearInputs::read_rows(const ObservedCall& call, std::size_t operand) {
  const TensorView view = TRY(call.operand(operand));
  const std::int64_t rows = view.rows() - call.padding;
  if (rows < 0)
    return internal_error(fmt::format("operand {} of {} has {} rows in a forward with {} rows of padding", operand,
                                      call.node().op, view.rows(), call.padding));
  host_.resize(static_cast<std::size_t>(view.bytes() / std::max<std::int64_t>(view.rows(), 1) * rows));
  TRY(parts_.stream().download(host_.data(), view.data, host_.size()));
  TRY(parts_.stream().synchronize());
  return ObservedRows{.bytes = host_, .dtype = view.dtype, .rows = rows, .cols = view.cols()};
}

Status LinearInputs::add_linear(const ObservedCall& call) {
  const ObservedRows x = TRY(read_rows(call, 0));
  numbers_.resize(static_cast<std::size_t>(x.rows * x.cols));
  TRY(widen_floats(x.bytes.data(), x.dtype, numbers_));
  add_rows(numbers_, x.cols, 0, sums_of(call.operand_name(1), ObservedWeight::kLinear, 1, x.cols));
  return ok_status();
}

Status LinearInputs::add_experts(const ObservedCall& call) {
  const std::string& gate_up_name = call.operand_name(kGateUp);
  const std::string& down_name = call.operand_name(kDown);
  if (call.node().attribute_or("mxfp4", false)) {
    if (std::ranges::find(left_out_, gate_up_name) == left_out_.end())
      left_out_.insert(left_out_.end(), {gate_up_name, down_name});
    return ok_status();
  }
  const ObservedRows ids = TRY(read_rows(call, kIds));
  const ExpertSizes sizes = TRY(ExpertInputs::sizes(call));
  const ExpertRows chosen = TRY(ExpertRows::of(ids, sizes.experts));
  const ObservedRows x = TRY(read_rows(call, kX));
  ObservedInput& gate_up = sums_of(gate_up_name, ObservedWeight::kExpertsGateUp, sizes.experts, x.cols);
  ObservedInput& down = sums_of(down_name, ObservedWeight::kExpertsDown, sizes.experts, sizes.intermediate);
  std::vector<std::byte> rows;
  for (std::size_t expert = 0; expert < chosen.rows_of.size(); ++expert) {
    if (chosen.rows_of[expert].empty()) continue;
    gather_rows(x, chosen.rows_of[expert], rows);
    const ObservedRows of_expert{
        .bytes = rows, .dtype = x.dtype, .rows = std::ssize(chosen.rows_of[expert]), .cols = x.cols};
    numbers_.resize(static_cast<std::size_t>(of_expert.rows * x.cols));
    TRY(widen_floats(rows.data(), x.dtype, numbers_));
    add_rows(numbers_, x.cols, expert, gate_up);
    add_rows(TRY(experts_.down_inputs(call, static_cast<std::int64_t>(expert), of_expert)), sizes.intermediate, expert,
             down);
  }
  return ok_status();
}

ObservedInput& LinearInputs::sums_of(const std::string& weight, ObservedWeight kind, std::int64_t matrices,
                                     std::int64_t cols) {
  ObservedInput& input = inputs_[weight];
  if (input.counts.empty())
    input = {.weight = weight,
             .kind = kind,
             .sums = std::vector<double>(static_cast<std::size_t>(matrices * cols)),
             .counts = std::vector<double>(static_cast<std::size_t>(matrices))};
  return input;
}

}  // namespace tessera
