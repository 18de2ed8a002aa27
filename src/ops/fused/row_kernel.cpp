#include "tessera/ops/fused/row_kernel.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace tessera {
namespace {

bool is_source(RowOp op) { return op == RowOp::kLoad || op == RowOp::kRepeat || op == RowOp::kWeight; }

std::string_view form_text(NormForm form) {
  switch (form) {
    case NormForm::kRoundFirst: return "";
    case NormForm::kRoundOnce: return ", round_once";
    case NormForm::kUnitOffset: return ", unit_offset";
  }
  return "";
}

std::string attributes(const RowValue& value) {
  switch (value.op) {
    case RowOp::kSlice: return fmt::format(" {{offset = {}}}", value.offset);
    case RowOp::kScale: return fmt::format(" {{factor = {}}}", value.number);
    case RowOp::kSoftcap: return fmt::format(" {{cap = {}}}", value.number);
    case RowOp::kRmsNorm: return fmt::format(" {{eps = {}{}}}", value.number, form_text(value.form));
    case RowOp::kRotary: return fmt::format(" {{head_dim = {}}}", value.head_dim);
    default: return "";
  }
}

class TaskFinder {
 public:
  explicit TaskFinder(const RowKernel& kernel) : kernel_(kernel), group_(kernel.values.size()) {
    std::iota(group_.begin(), group_.end(), 0);
  }

  Result<std::vector<RowTask>> run() {
    if (kernel_.num_operands > kMaxRowOperands)
      return unimplemented(fmt::format("{} operands; at most {} are possible", kernel_.num_operands, kMaxRowOperands));
    if (kernel_.values.size() > kMaxRowValues)
      return unimplemented(fmt::format("{} values; at most {} are possible", kernel_.values.size(), kMaxRowValues));
    for (std::size_t i = 0; i < kernel_.values.size(); ++i) join(static_cast<int>(i));
    for (std::size_t i = 0; i < kernel_.values.size(); ++i) TRY(check_slice(kernel_.values[i]));
    std::vector<RowTask> tasks;
    std::vector<int> roots;
    for (std::size_t s = 0; s < kernel_.stores.size(); ++s) {
      const int root = find(kernel_.stores[s].value);
      auto known = std::find(roots.begin(), roots.end(), root);
      if (known == roots.end()) {
        tasks.push_back(TRY(make_task(root)));
        known = roots.insert(roots.end(), root);
      }
      tasks[static_cast<std::size_t>(known - roots.begin())].stores.push_back(static_cast<int>(s));
    }
    for (RowTask& task : tasks) collect(task);
    return tasks;
  }

 private:
  const RowValue& value(int id) const { return kernel_.values[static_cast<std::size_t>(id)]; }

  int find(int id) const {
    while (group_[static_cast<std::size_t>(id)] != id) id = group_[static_cast<std::size_t>(id)];
    return id;
  }

  // Merges the task of value `id` with the task of each input that is read at the same positions at which `id` is
  // written. A rotation reads its table at other positions. Repeated operands and weights are skipped, because they
  // belong to no task. A slice is not merged with its input, so it begins a task, as a load does.
  void join(int id) {
    if (is_source(value(id).op) || value(id).op == RowOp::kSlice) return;
    for (const int input : value(id).inputs)
      if (value(input).op != RowOp::kRepeat && value(input).op != RowOp::kWeight && keeps_positions(id, input))
        group_[static_cast<std::size_t>(find(input))] = find(id);
  }
  // Returns whether `input` is read at the same positions at which value `id` is written. A rotation reads its table at
  // other positions.
  bool keeps_positions(int id, int input) const {
    return value(id).op != RowOp::kRotary || value(id).inputs[0] == input;
  }

  Status check_slice(const RowValue& slice) const {
    if (slice.op != RowOp::kSlice) return ok_status();
    if (is_computed_elsewhere(slice.inputs[0])) return ok_status();
    return unimplemented("a part of a value that was reduced or rotated in the same kernel");
  }
  // Returns whether another task can compute `id` again, which needs that no reduction or rotation lies between the
  // loads and `id`.
  bool is_computed_elsewhere(int id) const {
    const RowValue& v = value(id);
    if (v.op == RowOp::kRmsNorm || v.op == RowOp::kRotary) return false;
    return std::all_of(v.inputs.begin(), v.inputs.end(), [&](int input) { return is_computed_elsewhere(input); });
  }

  Result<RowTask> make_task(int root) const {
    RowTask task;
    for (std::size_t i = 0; i < kernel_.values.size(); ++i) {
      const RowValue& v = kernel_.values[i];
      if (find(static_cast<int>(i)) != root || v.op == RowOp::kRepeat || v.op == RowOp::kWeight) continue;
      if (task.width == 0) task.width = v.width;
      if (v.width != task.width)
        return internal_error(fmt::format("values of {} and {} elements in one task", task.width, v.width));
      if (v.op == RowOp::kRmsNorm) {
        const std::int64_t run = value(v.inputs[1]).width;
        if (task.segment != 0 && task.segment != run)
          return unimplemented(fmt::format("reductions over {} and {} elements in one kernel", task.segment, run));
        task.segment = run;
      }
      if (v.op == RowOp::kRotary) {
        if (task.head_dim != 0 && task.head_dim != v.head_dim)
          return unimplemented(fmt::format("rotations of {} and {} elements in one kernel", task.head_dim, v.head_dim));
        task.head_dim = v.head_dim;
      }
    }
    if (task.segment != 0 && task.head_dim != 0 && task.segment % task.head_dim != 0)
      return unimplemented(
          fmt::format("reductions over {} elements and rotations of {} in one kernel", task.segment, task.head_dim));
    return task;
  }

  // Collects the values from which the task's stores are computed.
  void collect(RowTask& task) const {
    std::vector<bool> needed(kernel_.values.size(), false);
    for (const int s : task.stores)
      needed[static_cast<std::size_t>(kernel_.stores[static_cast<std::size_t>(s)].value)] = true;
    for (std::size_t i = needed.size(); i-- > 0;)
      if (needed[i])
        for (const int input : kernel_.values[i].inputs) needed[static_cast<std::size_t>(input)] = true;
    for (std::size_t i = 0; i < needed.size(); ++i)
      if (needed[i]) task.values.push_back(static_cast<int>(i));
  }

  const RowKernel& kernel_;
  std::vector<int> group_;  // [values]: the parent of each value in a union-find forest
};

}  // namespace

std::string_view row_op_name(RowOp op) {
  switch (op) {
    case RowOp::kLoad: return "load";
    case RowOp::kRepeat: return "repeat";
    case RowOp::kWeight: return "weight";
    case RowOp::kSlice: return "slice";
    case RowOp::kAdd: return "add";
    case RowOp::kMul: return "mul";
    case RowOp::kScale: return "scale";
    case RowOp::kCast: return "cast";
    case RowOp::kSilu: return "silu";
    case RowOp::kGeluTanh: return "gelu_tanh";
    case RowOp::kGeluErf: return "gelu_erf";
    case RowOp::kSoftcap: return "softcap";
    case RowOp::kRmsNorm: return "rms_norm";
    case RowOp::kRotary: return "rotary";
  }
  return "?";
}

std::string to_text(const RowKernel& kernel) {
  std::string text = fmt::format("rows {}\n", kernel.rows.to_string());
  for (std::size_t i = 0; i < kernel.values.size(); ++i) {
    const RowValue& value = kernel.values[i];
    text += fmt::format("%{}: {}[{}] = {}", i, ir::dtype_name(value.dtype), value.width, row_op_name(value.op));
    if (is_source(value.op)) {
      text += fmt::format(" operand {}\n", value.operand);
      continue;
    }
    std::string inputs;
    for (const int input : value.inputs) inputs += fmt::format("{}%{}", inputs.empty() ? "" : ", ", input);
    text += fmt::format("({}){}\n", inputs, attributes(value));
  }
  for (const RowStore& store : kernel.stores) {
    const std::string_view dtype = ir::dtype_name(store.dtype);
    if (store.slots < 0)
      text += fmt::format("store %{} in operand {}: {}\n", store.value, store.operand, dtype);
    else
      text += fmt::format("store %{} at %{} in operand {}: {}\n", store.value, store.slots, store.operand, dtype);
  }
  return text;
}

Result<std::vector<RowTask>> row_tasks(const RowKernel& kernel) { return TaskFinder(kernel).run(); }

}  // namespace tessera
