#include "tessera/compile/halves.h"

#include <algorithm>
#include <array>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "tessera/base/hash.h"

namespace tessera {
namespace {

bool is_rows_of_tokens(const ir::Type& type) {
  if (type.shape.empty()) return false;
  ir::Bucket one;
  one[ir::Symbol::kTokens] = 1;
  const Result<std::int64_t> rows = type.shape[0].evaluate(one);
  // All other dimensions must be constant. If one of them depended on the number of tokens, the rows of a half's tensor
  // would be shorter than the rows of the whole tensor.
  const bool same_rows =
      std::all_of(type.shape.begin() + 1, type.shape.end(), [](const ir::Dim& d) { return d.constant().has_value(); });
  return same_rows && rows.ok() && *rows > 0 && type.shape[0] == ir::Dim(ir::Symbol::kTokens) * *rows;
}

bool is_exchange(const Instruction& instruction) { return instruction.rows == ir::RowUse::kExchange; }

bool works_by_rows(const Program& program, const Instruction& instruction) {
  const ir::Node& call = instruction.call;
  if (instruction.rows == ir::RowUse::kMixed) return false;
  // An exchange that needs scratch cannot run on the side stream, because the main stream's kernels use the scratch.
  if (is_exchange(instruction) && instruction.kernel.workspace_bytes) return false;
  const auto is_served = [&](ir::ValueId id) {
    const ProgramValue& value = program.value(id);
    return value.kind == ir::ValueKind::kWeight ||
           (value.kind != ir::ValueKind::kState && is_rows_of_tokens(value.type));
  };
  return std::ranges::all_of(call.operands, is_served) && std::ranges::all_of(call.results, is_served);
}

// One step of a run in halves. It consists of the kernels of one half up to the half's next exchange, and this
// exchange.
struct Stage {
  std::vector<std::pair<std::string, std::unique_ptr<BoundOp>>> kernels;  // each kernel has a name for errors
  std::string exchange_text;
  std::unique_ptr<BoundOp> exchange;  // null in the last stage
};

class HalvedOp final : public BoundOp {
 public:
  HalvedOp(std::vector<Stage> stages, std::uint64_t choice) : stages_(std::move(stages)), choice_(choice) {}

  // Enqueues the stages. The halves alternate, so consecutive stages belong to different halves. The kernels of a stage
  // run on the stream while the exchange of the previous stage runs on the side stream.
  Status enqueue(Stream& stream) const override {
    Stream& side = *TRY(stream.side());
    bool exchanges = false;
    const Status enqueued = [&]() -> Status {
      for (const Stage& stage : stages_) {
        for (const auto& [text, kernel] : stage.kernels)
          TRY(enqueue_checked(*kernel, stream, stream).with_context(text));
        if (std::exchange(exchanges, false)) TRY(stream.join_side());
        if (stage.exchange == nullptr) continue;
        TRY(stream.fork_side());
        exchanges = true;
        TRY(enqueue_checked(*stage.exchange, side, stream).with_context(stage.exchange_text));
      }
      return ok_status();
    }();
    // The side stream is joined even after an error, so that waiting for the stream also waits for its side stream.
    const Status joined = exchanges ? stream.join_side() : ok_status();
    return enqueued.ok() ? joined : enqueued;
  }

 private:
  std::uint64_t choice() const override { return choice_; }

  std::vector<Stage> stages_;  // stages of the two halves alternate
  std::uint64_t choice_;
};

void add_to(Hasher& hash, const ir::Attribute& attribute) {
  hash.add(attribute.index());
  if (const auto* numbers = std::get_if<std::vector<std::int64_t>>(&attribute)) {
    for (const std::int64_t number : *numbers) hash.add(number);
  } else {
    std::visit(
        [&]<class T>(const T& value) {
          if constexpr (!std::is_same_v<T, std::vector<std::int64_t>>) hash.add(value);
        },
        attribute);
  }
}

// Returns a hash of two things. The first is the list of operators with their attributes, generated code and tensor
// sizes. The second is the number of kernels in each stage, which depends on the joined kernels. Addresses are left
// out, because all ranks must get the same hash.
std::uint64_t choice_of(std::span<const KernelCall> calls, std::span<const Stage> stages) {
  Hasher hash;
  for (const Stage& stage : stages) hash.add(stage.kernels.size());
  for (const KernelCall& call : calls) {
    hash.add(call.instruction->call.op);
    hash.add(call.instruction->listing);
    for (const auto& [name, value] : call.instruction->call.attributes) add_to(hash, value);
    for (const std::vector<TensorView>* views : {&call.views.operands, &call.views.results}) {
      for (const TensorView& view : *views) {
        hash.add(view.dtype);
        hash.add(view.rank);
        for (int d = 0; d < view.rank; ++d) hash.add(view.dim(d));
      }
    }
  }
  return hash.finish().low;
}

Result<Stage> bind_stage(const Program& program, std::span<const KernelCall> calls, const BindTarget& target) {
  const bool exchanges = is_exchange(*calls.back().instruction);
  const std::span<const KernelCall> before = exchanges ? calls.first(calls.size() - 1) : calls;
  Stage stage;
  std::vector<std::unique_ptr<BoundOp>> ops = TRY(bind_calls(program, before, target));
  for (std::size_t i = 0; i < ops.size(); ++i)
    if (ops[i] != nullptr)
      stage.kernels.emplace_back(call_text(program, *before[i].instruction, target.names), std::move(ops[i]));
  if (!exchanges) return stage;
  const KernelCall& last = calls.back();
  stage.exchange_text = call_text(program, *last.instruction, target.names);
  stage.exchange = TRY(last.instruction->kernel.bind(last.args(target)).with_context(stage.exchange_text));
  return stage;
}

}  // namespace

void add_halves(Program& program, std::int64_t least_tokens) {
  const std::vector<Instruction>& all = program.instructions;
  for (std::size_t first = 0; first < all.size();) {
    std::size_t end = first;
    bool exchanges = false;
    for (; end < all.size() && works_by_rows(program, all[end]); ++end) exchanges |= is_exchange(all[end]);
    if (exchanges && end - first > 1)
      program.halves.push_back({.first = first, .end = end, .least_tokens = least_tokens});
    first = end + 1;
  }
}

// Returns the number of tokens in the first half. kTile is the number of rows in a tile of a matrix multiplication. If
// the first half has at least kTile tokens, it is rounded down to a multiple of kTile. The second half's tensors then
// begin at a multiple of 64 rows, so they are aligned to 64 bytes. A first half of fewer than kTile tokens is not
// rounded. The second half's tensors may then be unaligned if the size of their rows is no multiple of 16 bytes.
std::int64_t tokens_of_first_half(std::int64_t tokens) {
  constexpr std::int64_t kTile = 64;
  const std::int64_t half = tokens / 2;
  return half < kTile ? half : half / kTile * kTile;
}

CallViews half_of(const CallViews& whole, std::int64_t tokens, bool second) {
  const std::int64_t first = tokens_of_first_half(tokens);
  CallViews half = whole;
  const auto cut = [&](TensorView& view) {
    if (view.is_weight) return;
    const std::int64_t rows_of_token = view.dims[0] / tokens;
    const std::int64_t row_bytes = view.bytes() / view.dims[0];
    if (second) view.data += first * rows_of_token * row_bytes;
    view.dims[0] = rows_of_token * (second ? tokens - first : first);
  };
  std::ranges::for_each(half.operands, cut);
  std::ranges::for_each(half.results, cut);
  return half;
}

Result<std::unique_ptr<BoundOp>> bind_halves(const Program& program, std::span<const KernelCall> calls,
                                             const BindTarget& target) {
  const std::int64_t tokens = target.bucket[ir::Symbol::kTokens];
  std::array<std::vector<KernelCall>, 2> halves;
  for (const KernelCall& call : calls)
    for (const bool second : {false, true})
      halves[second ? 1 : 0].push_back({call.instruction, half_of(call.views, tokens, second)});
  std::vector<Stage> stages;
  for (std::size_t begin = 0, end = 0; begin < calls.size(); begin = end) {
    while (end < calls.size() && !is_exchange(*calls[end].instruction)) ++end;
    if (end < calls.size()) ++end;
    for (const std::vector<KernelCall>& half : halves)
      stages.push_back(TRY(bind_stage(program, std::span(half).subspan(begin, end - begin), target)));
  }
  const std::uint64_t choice = choice_of(calls, stages);
  return std::make_unique<HalvedOp>(std::move(stages), choice);
}

}  // namespace tessera
