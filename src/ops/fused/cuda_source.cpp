#include "tessera/ops/fused/cuda_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "tessera/base/ceil_div.h"
#include "tessera/ops/fused/cuda_prelude.h"

namespace tessera {
namespace {

// Returns the exact text of a float as a C++ literal.
std::string literal(double number) { return fmt::format("{:a}f", static_cast<float>(number)); }

// Writes the code of one task, which is a device function. Element i of a slice is element i + `shift` of the slice's
// input. A value that is needed at several shifts is computed once for each shift. Each of these instances of the value
// has its own variables.
class TaskWriter {
 public:
  TaskWriter(const RowKernel& kernel, const CudaSchedule& schedule, std::size_t task, int& scratch)
      : kernel_(kernel),
        task_(schedule.tasks[task]),
        s_(schedule.schedules[task]),
        threads_(schedule.threads),
        scratch_(scratch) {}

  std::string write(std::size_t number) {
    for (const int store : task_.stores) visit(kernel_.stores[static_cast<std::size_t>(store)].value, 0);
    std::string text = fmt::format(
        "\n__device__ inline void task{}(const Arguments& a, int block, float (*scratch)[32]) {{\n", number);
    text += fmt::format("  constexpr int kPack = {}, kHeld = {}, kLanes = {}, kItems = {};\n", s_.pack, s_.held,
                        s_.lanes, s_.items);
    text += "  const int unit = (block * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) / kLanes;\n";
    text += fmt::format("  const i64 row = unit / {};\n", s_.row_units);
    text += fmt::format("  const int first = unit % {} * kItems;\n", s_.row_units);
    text += "  const int lane = static_cast<int>(threadIdx.x) % kLanes;\n";
    text += "  bool mine[kHeld];\n  int at[kHeld];  // the item's first element\n";
    text +=
        loop(fmt::format("    const int item = lane + h * kLanes;\n"
                         "    mine[h] = row < a.rows && item < kItems && first + item < {};\n"
                         "    at[h] = {};\n",
                         s_.row_items, position("first + item")));
    text += declarations_;
    if (!weights_.empty()) text += loop(guarded(weights_));
    text += "  wait_for_previous();\n" + slots();
    text += loop(guarded(loads_));
    for (std::size_t phase = 0; phase < phases_.size(); ++phase) {
      if (phase > 0) text += reductions_[phase - 1];
      text += loop(guarded(phases_[phase]));
    }
    text += stores();
    return text + "}\n";
  }

 private:
  using Instance = std::pair<int, std::int64_t>;  // the index of a value, and its shift

  const RowValue& value(int id) const { return kernel_.values[static_cast<std::size_t>(id)]; }

  // Returns the C++ expression for the position of an item's first element in its row.
  std::string position(std::string_view item) const {
    if (s_.sites == 1) return fmt::format("({}) * kPack", item);
    const std::int64_t packs = task_.head_dim / 2 / s_.pack;
    return fmt::format("({0}) / {1} * {2} + ({0}) % {1} * kPack", item, packs, task_.head_dim);
  }
  // Returns the C++ expression for the index of an element in its row. With `site` 0 the element is `shift` elements
  // after the first element of item h (cuda_schedule.h). With `site` 1 it is that element's partner in a rotation, half
  // a head further on.
  std::string element(std::int64_t site, std::int64_t shift) const {
    const std::int64_t plus = shift + site * task_.head_dim / 2;
    return plus == 0 ? "at[h]" : fmt::format("at[h] + {}", plus);
  }
  static std::string loop(const std::string& body) {
    return "#pragma unroll\n  for (int h = 0; h < kHeld; ++h) {\n" + body + "  }\n";
  }
  static std::string guarded(const std::string& body) { return "    if (!mine[h]) continue;\n" + body; }

  // Writes the code that computes an instance, unless this code was written before. Returns the name of the instance's
  // variable and the phase that computes it. A reduction separates each phase from the next.
  std::pair<std::string, std::size_t> visit(int id, std::int64_t shift) {
    const RowValue& v = value(id);
    if (v.op == RowOp::kSlice) return visit(v.inputs[0], shift + v.offset);
    const auto known = written_.find({id, shift});
    if (known != written_.end()) return known->second;
    const std::string name = fmt::format("v{}{}", id, shift == 0 ? "" : fmt::format("_{}", shift));
    const std::size_t phase = v.inputs.empty() ? load(v, name, shift) : compute(v, name, shift);
    return written_[{id, shift}] = {name, phase};
  }

  std::string& at_phase(std::size_t phase) {
    while (phases_.size() <= phase) phases_.emplace_back();
    return phases_[phase];
  }
  void declare(const std::string& name) {
    declarations_ += fmt::format("  float {}[kHeld][{}];\n", name, s_.sites * s_.pack);
  }

  // Writes the code that loads a value. An item of the value is one pack of elements. If the task rotates, an item is
  // two packs: the elements, and their partners in the rotation. The kernel issues all its loads before it uses a
  // loaded value.
  std::size_t load(const RowValue& v, const std::string& name, std::int64_t shift) {
    const std::string type(ir::dtype_name(v.dtype));
    std::string& text = v.op == RowOp::kWeight ? weights_ : loads_;
    declare(name);
    for (std::int64_t site = 0; site < s_.sites; ++site) {
      const std::string raw = fmt::format("{}_{}", name + "raw", site);
      declarations_ += fmt::format("  Pack<{}, kPack> {}[kHeld];\n", type, raw);
      const std::string from = v.op == RowOp::kLoad ? fmt::format("row * {} + {}", v.width, element(site, shift))
                                                    : fmt::format("({}) % {}", element(site, shift), v.width);
      text += fmt::format("    {}[h] = load<{}, kPack>(a.operands[{}], {});\n", raw, type, v.operand, from);
      at_phase(0) +=
          fmt::format("#pragma unroll\n    for (int j = 0; j < kPack; ++j) {}[h][{} + j] = to_float({}[h].at[j]);\n",
                      name, site * s_.pack, raw);
    }
    return 0;
  }

  std::size_t compute(const RowValue& v, const std::string& name, std::int64_t shift) {
    if (v.op == RowOp::kRotary) return rotate(v, name, shift);
    const auto [x, x_phase] = visit(v.inputs[0], shift);
    std::size_t phase = x_phase;
    std::string b;
    if (v.inputs.size() > 1) {
      const auto [operand, b_phase] = visit(v.inputs[1], shift);
      b = operand;
      phase = std::max(phase, b_phase);
    }
    declare(name);
    if (v.op == RowOp::kRmsNorm) {
      at_phase(x_phase) +=
          fmt::format("#pragma unroll\n    for (int j = 0; j < {0}; ++j) {1}sum += {2}[h][j] * {2}[h][j];\n",
                      s_.sites * s_.pack, name, x);
      reduce(v, name, x_phase);
      phase = std::max(phase, x_phase + 1);
    }
    at_phase(phase) += fmt::format("#pragma unroll\n    for (int j = 0; j < {}; ++j) {}[h][j] = rounded<{}>({});\n",
                                   s_.sites * s_.pack, name, ir::dtype_name(v.dtype), formula(v, name, x, b));
    return phase;
  }

  static std::string formula(const RowValue& v, const std::string& name, const std::string& x, const std::string& b) {
    switch (v.op) {
      case RowOp::kAdd: return fmt::format("{}[h][j] + {}[h][j]", x, b);
      case RowOp::kMul: return fmt::format("{}[h][j] * {}[h][j]", x, b);
      case RowOp::kScale: return fmt::format("{}[h][j] * {}", x, literal(v.number));
      case RowOp::kSilu: return fmt::format("silu({}[h][j])", x);
      case RowOp::kGeluTanh: return fmt::format("gelu_tanh({}[h][j])", x);
      case RowOp::kGeluErf: return fmt::format("gelu_erf({}[h][j])", x);
      case RowOp::kSoftcap: return fmt::format("{0} * tanhf({1}[h][j] / {0})", literal(v.number), x);
      case RowOp::kRmsNorm:
        if (v.form == NormForm::kUnitOffset) return fmt::format("{}[h][j] * {}scale * (1.0f + {}[h][j])", x, name, b);
        if (v.form == NormForm::kRoundOnce) return fmt::format("{}[h][j] * {}scale * {}[h][j]", x, name, b);
        return fmt::format("rounded<{}>({}[h][j] * {}scale) * {}[h][j]", ir::dtype_name(v.dtype), x, name, b);
      default: return fmt::format("{}[h][j]", x);
    }
  }

  // Writes the code between two phases. The code adds up x² over a unit and computes 1/√(mean(x²) + eps).
  void reduce(const RowValue& v, const std::string& name, std::size_t phase) {
    declarations_ += fmt::format("  float {}sum = 0;\n", name);
    while (reductions_.size() <= phase) reductions_.emplace_back();
    const std::string sum = s_.lanes > 32 ? fmt::format("block_sum<{}>({}sum, scratch[{}])", threads_, name, scratch_++)
                                          : fmt::format("lane_sum<kLanes>({}sum)", name);
    reductions_[phase] += fmt::format("  const float {}scale = 1.0f / sqrtf({} / {}.0f + {});\n", name, sum,
                                      value(v.inputs[1]).width, literal(v.number));
  }

  std::size_t rotate(const RowValue& v, const std::string& name, std::int64_t shift) {
    const auto [x, phase] = visit(v.inputs[0], shift);
    const RowValue& table = value(v.inputs[1]);
    declare(name);
    for (const auto& [part, offset] : {std::pair{"cosines", std::int64_t{0}}, std::pair{"sines", v.head_dim / 2}}) {
      declarations_ += fmt::format("  Pack<f32, kPack> {}{}[kHeld];\n", name, part);
      loads_ += fmt::format("    {}{}[h] = load<f32, kPack>(a.operands[{}], row * {} + at[h] % {} + {});\n", name, part,
                            table.operand, table.width, v.head_dim, offset);
    }
    at_phase(phase) += fmt::format(
        "#pragma unroll\n"
        "    for (int j = 0; j < kPack; ++j) {{\n"
        "      const float low = {1}[h][j], high = {1}[h][kPack + j];\n"
        "      const float cosine = {0}cosines[h].at[j], sine = {0}sines[h].at[j];\n"
        "      {0}[h][j] = rounded<{2}>(low * cosine - high * sine);\n"
        "      {0}[h][kPack + j] = rounded<{2}>(high * cosine + low * sine);\n"
        "    }}\n",
        name, x, ir::dtype_name(v.dtype));
    return phase;
  }

  std::string stores() {
    std::string body;
    for (const int id : task_.stores) {
      const RowStore& store = kernel_.stores[static_cast<std::size_t>(id)];
      const std::string name = visit(store.value, 0).first;
      std::string row = "row";
      if (store.slots >= 0) {
        row = fmt::format("slot{}", store.slots);
        body += fmt::format("    if ({0} >= 0 && {0} < a.stored_rows[{1}]) {{\n", row, store.operand);
      } else {
        body += "    {\n";
      }
      for (std::int64_t site = 0; site < s_.sites; ++site)
        body += fmt::format("      store<{}, kPack>(a.operands[{}], {} * {} + {}, {}[h] + {});\n",
                            ir::dtype_name(store.dtype), store.operand, row, task_.width, element(site, 0), name,
                            site * s_.pack);
      body += "    }\n";
    }
    return loop(guarded(body));
  }
  // Returns the code that reads a row's slots (RowStore::slots). The load starts before the row is computed.
  std::string slots() const {
    std::set<int> known;
    std::string text;
    for (const int id : task_.stores) {
      const int slot = kernel_.stores[static_cast<std::size_t>(id)].slots;
      if (slot >= 0 && known.insert(slot).second)
        text += fmt::format("  const i64 slot{} = row < a.rows ? static_cast<const int*>(a.operands[{}])[row] : -1;\n",
                            slot, value(slot).operand);
    }
    return text;
  }

  const RowKernel& kernel_;
  const RowTask& task_;
  const CudaTaskSchedule& s_;
  std::int64_t threads_;
  int& scratch_;  // number of scratch arrays that block sums use so far
  std::map<Instance, std::pair<std::string, std::size_t>> written_;
  std::string declarations_;
  std::string weights_;
  std::string loads_;
  std::vector<std::string> phases_;
  std::vector<std::string> reductions_;  // [phases - 1]: the code between a phase and the next
};

}  // namespace

Result<std::string> cuda_source(const RowKernel& kernel) {
  const CudaSchedule schedule = TRY(cuda_schedule(kernel));
  std::string tasks;
  std::string calls;
  int scratch = 0;
  for (std::size_t t = 0; t < schedule.tasks.size(); ++t) {
    tasks += TaskWriter(kernel, schedule, t, scratch).write(t);
    calls += fmt::format("  {0}if (block < a.end[{1}]) task{1}(a, block - {2}, scratch);\n", t == 0 ? "" : "else ", t,
                         t == 0 ? "0" : fmt::format("a.end[{}]", t - 1));
  }
  std::string text = "/*\n" + to_text(kernel) + "*/";
  text += kCudaPrelude;
  text += fmt::format(
      "\nstruct Arguments {{\n"
      "  i64 rows;\n"
      "  i64 end[{}];  // the block after the task's last\n"
      "  void* operands[{}];\n"
      "  i64 stored_rows[{}];\n"
      "}};\n",
      schedule.tasks.size(), kernel.num_operands, kernel.num_operands);
  text += tasks;
  text += fmt::format(
      "\nextern \"C\" __global__ void __launch_bounds__({}) {}(const Arguments a) {{\n"
      "  __shared__ float scratch[{}][32];\n"
      "  let_next_begin();\n"
      "  const int block = static_cast<int>(blockIdx.x);\n"
      "{}}}\n",
      schedule.most_threads, kCudaEntry, std::max(scratch, 1), calls);
  return text;
}

CudaRowLaunch cuda_launch(const RowKernel& kernel, const CudaSchedule& schedule, std::int64_t rows,
                          std::span<const std::uint64_t> addresses, std::span<const std::int64_t> operand_rows) {
  CudaRowLaunch launch{.threads = schedule.threads, .arguments = {static_cast<std::uint64_t>(rows)}};
  for (const CudaTaskSchedule& s : schedule.schedules) {
    launch.blocks += ceil_div(rows * s.row_units, s.block_units);
    launch.arguments.push_back(static_cast<std::uint64_t>(launch.blocks));
  }
  const std::size_t operands = static_cast<std::size_t>(kernel.num_operands);
  for (std::size_t i = 0; i < operands; ++i) launch.arguments.push_back(addresses[i]);
  for (std::size_t i = 0; i < operands; ++i) launch.arguments.push_back(static_cast<std::uint64_t>(operand_rows[i]));
  return launch;
}

}  // namespace tessera
