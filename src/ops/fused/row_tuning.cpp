#include "tessera/ops/fused/row_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <span>
#include <utility>

#include "tessera/base/log.h"

namespace tessera {
namespace {

constexpr int kTries = 3;  // launches of each schedule in the first comparison
constexpr double kSlow = 2;
constexpr int kRounds = 5;
constexpr double kRoundMs = 0.5;
constexpr int kMostLaunches = 100;             // maximum number of launches of a schedule in a round
constexpr double kMostMs = 10;                 // longest launch that is measured, in milliseconds
constexpr double kSmallestGain = 0.02;         // a smaller gain is noise
constexpr double kGreatestGain = 3;            // a greater gain means that another process used the same cores
constexpr std::int64_t kMostBytes = 64 << 20;  // bytes of all tensors together

// A problem's tensors in newly allocated memory. int32 tensors, which are row numbers, hold 0, 1, 2, …; other values
// are random and finite.
class Tensors {
 public:
  static Result<Tensors> create(const RowInstance& instance, Device& device) {
    Tensors tensors;
    std::int64_t bytes = 0;
    for (const std::vector<TensorView>* views : {&instance.operands, &instance.results})
      for (const TensorView& view : *views) bytes += view.bytes();
    if (bytes > std::min(kMostBytes, device.available_bytes() / 2))
      return resource_exhausted(
          fmt::format("it needs {} bytes of {} that are available", bytes, device.available_bytes()));
    tensors.operands_ = TRY(tensors.placed(instance.operands, device));
    tensors.results_ = TRY(tensors.placed(instance.results, device));
    return tensors;
  }
  // Fills the tensors with the same values each time, because a kernel may have written its operands.
  Status fill(Device& device, Stream& stream) const {
    std::minstd_rand random(1);
    std::size_t at = 0;
    for (const std::vector<TensorView>* views : {&operands_, &results_})
      for (const TensorView& view : *views) TRY(fill(view, memory_[at++].second, random, device, stream));
    return stream.synchronize();
  }
  std::span<const TensorView> operands() const { return operands_; }
  std::span<const TensorView> results() const { return results_; }

  // Returns everything that a launch may have written.
  Result<std::vector<std::byte>> contents(Stream& stream) const {
    std::size_t bytes = 0;
    for (const auto& [memory, size] : memory_) bytes += size;
    std::vector<std::byte> all(bytes);
    std::size_t at = 0;
    for (const auto& [memory, size] : memory_) {
      TRY(stream.download(all.data() + at, memory->data(), size));
      at += size;
    }
    TRY(stream.synchronize());
    return all;
  }

 private:
  Result<std::vector<TensorView>> placed(std::vector<TensorView> views, Device& device) {
    for (TensorView& view : views) {
      const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(view.bytes(), 1));
      memory_.emplace_back(TRY(device.allocate(bytes, "tensors to measure")), bytes);
      view.data = memory_.back().first->data();
    }
    return views;
  }
  // Fills an int32 tensor with 0, 1, 2, …, and any other tensor with bytes that are small finite floats, whether they
  // are read as 16-bit or as 32-bit floats.
  static Status fill(const TensorView& view, std::size_t bytes, std::minstd_rand& random, Device& device,
                     Stream& stream) {
    const std::unique_ptr<HostAllocation> host = TRY(device.allocate_host(bytes, "values to measure"));
    if (view.dtype == ir::DType::kInt32) {
      const std::span numbers(reinterpret_cast<std::int32_t*>(host->data()), bytes / sizeof(std::int32_t));
      std::iota(numbers.begin(), numbers.end(), 0);
    } else {
      const std::span halves(reinterpret_cast<std::uint16_t*>(host->data()), bytes / sizeof(std::uint16_t));
      for (std::uint16_t& half : halves) half = static_cast<std::uint16_t>(0x3c00 | (random() & 0x83ff));
    }
    TRY(stream.upload(view.data, host->data(), bytes));
    return stream.synchronize();
  }

  std::vector<std::pair<std::unique_ptr<Allocation>, std::size_t>> memory_;
  std::vector<TensorView> operands_;
  std::vector<TensorView> results_;
};

struct Candidate {
  std::int64_t schedule = 0;
  std::unique_ptr<BoundOp> op;
  bool is_slow = false;  // whether the schedule was too slow in the first comparison and is not timed further
  std::vector<double> ms;
};

// Returns the milliseconds of a launch: the average over `launches` consecutive launches.
Result<double> time(const BoundOp& op, int launches, Event& begin, Event& end, Stream& stream) {
  TRY(stream.record(begin));
  for (int i = 0; i < launches; ++i) TRY(op.enqueue(stream));
  TRY(stream.record(end));
  TRY(stream.synchronize());
  return TRY(end.milliseconds_since(begin)) / launches;
}

Result<MeasuredSchedules> measure(const RowKernelCode& code, const RowInstance& instance, Device& device) {
  const std::unique_ptr<Stream> stream = TRY(device.create_stream("measured kernels"));
  const Tensors tensors = TRY(Tensors::create(instance, device));
  const std::unique_ptr<Event> begin = TRY(device.create_event(EventKind::kTime));
  const std::unique_ptr<Event> end = TRY(device.create_event(EventKind::kTime));
  const ir::Node node;
  const ForwardContext context;
  BindArgs args{
      .node = node, .operands = tensors.operands(), .results = tensors.results(), .device = device, .context = context};
  const std::size_t scratch_bytes = std::max<std::size_t>(TRY(code.workspace_bytes(args)), 1);
  const std::unique_ptr<Allocation> scratch = TRY(device.allocate(scratch_bytes, "scratch to measure"));
  args.workspace = scratch->data();

  std::vector<Candidate> candidates;
  std::vector<std::byte> bits;  // the bytes that the device's default schedule writes
  double first_ms = 0;
  for (const std::int64_t schedule : code.schedules(args)) {
    std::unique_ptr<BoundOp> op = TRY(code.bind(args, schedule));
    Candidate candidate{.schedule = schedule, .op = std::move(op), .ms = {}};
    TRY(tensors.fill(device, *stream));
    TRY(time(*candidate.op, 1, *begin, *end, *stream));  // the first launch loads code
    std::vector<std::byte> made = TRY(tensors.contents(*stream));
    const auto once = [&]() -> Result<double> {
      double least = TRY(time(*candidate.op, 1, *begin, *end, *stream));
      for (int i = 1; i < kTries; ++i) least = std::min(least, TRY(time(*candidate.op, 1, *begin, *end, *stream)));
      return least;
    };
    const double once_ms = TRY(once());
    if (candidates.empty()) {
      bits = std::move(made);
      first_ms = once_ms;
      if (first_ms > kMostMs) return resource_exhausted("it takes too long to be measured");
    } else if (made != bits) {
      log_warn("cache", "schedule {} of {} gives other bits than schedule {}, and is not used", schedule, instance.name,
               candidates.front().schedule);
      continue;
    }
    candidate.is_slow = once_ms > kSlow * first_ms;
    if (candidate.is_slow) candidate.ms = {once_ms};
    candidates.push_back(std::move(candidate));
  }
  const int launches = std::clamp(static_cast<int>(kRoundMs / std::max(first_ms, 1e-4)), 1, kMostLaunches);
  for (int round = 0; round < kRounds; ++round)
    for (Candidate& candidate : candidates)
      if (!candidate.is_slow) candidate.ms.push_back(TRY(time(*candidate.op, launches, *begin, *end, *stream)));

  MeasuredSchedules found{.name = instance.name, .chosen = candidates.front().schedule, .us = {}};
  double best = 0;
  for (const Candidate& candidate : candidates) {
    // Disturbances only add time, so the shortest time counts.
    const double us = std::max(1000 * std::ranges::min(candidate.ms), 1e-3);
    if (found.us.empty()) best = us * (1 - kSmallestGain);
    found.us.emplace_back(candidate.schedule, us);
    if (us >= best) continue;
    best = us;
    found.chosen = candidate.schedule;
  }
  if (found.chosen != found.us.front().first && best * kGreatestGain < found.us.front().second)
    return resource_exhausted(fmt::format(
        "schedules took {:.1f} and {:.1f} µs; they never differ by so much, so the measurement was disturbed", best,
        found.us.front().second));
  return found;
}

}  // namespace

Result<std::unique_ptr<BoundOp>> bind_row_kernel(const std::shared_ptr<const RowKernelCode>& code,
                                                 const std::string& kernel, const std::string& name,
                                                 const BindArgs& args, RowSchedules& known) {
  const std::vector<std::int64_t> schedules = code->schedules(args);
  if (schedules.size() < 2) return code->bind(args, schedules.front());
  const RowProblem problem{.kernel = kernel, .rows = code->rows(args)};
  if (const std::optional<std::int64_t> chosen = known.chosen(problem);
      chosen && std::ranges::find(schedules, *chosen) != schedules.end())
    return code->bind(args, *chosen);
  RowInstance instance{.name = name,
                       .code = code,
                       .operands = {args.operands.begin(), args.operands.end()},
                       .results = {args.results.begin(), args.results.end()},
                       .device = &args.device};
  for (std::vector<TensorView>* views : {&instance.operands, &instance.results})
    for (TensorView& view : *views) view.data = {};
  known.note(problem, std::move(instance));
  return code->bind(args, schedules.front());
}

Result<bool> measure_row_schedules(Device& device, RowSchedules& known) {
  while (const auto next = known.take_unmeasured(device)) {
    const auto& [problem, instance] = *next;
    const std::shared_ptr<const RowKernelCode> code = instance.code.lock();
    if (code == nullptr) continue;
    Result<MeasuredSchedules> measured = measure(*code, instance, device);
    if (measured.ok()) {
      known.improve(problem, *std::move(measured));
      return true;
    }
    if (measured.status().code() == StatusCode::kDeviceLost) return measured.status();
    log_debug("cache", "{} of {} rows keeps its schedule: {}", instance.name, problem.rows,
              measured.status().message());
  }
  return false;
}

}  // namespace tessera
