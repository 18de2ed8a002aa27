#include "tessera/ops/linear/linear_tuning.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "tessera/base/float16.h"
#include "tessera/base/json.h"
#include "tessera/base/log.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/cuda/cuda_op.h"
#include "tessera/ops/linear/cublaslt_matmul.h"
#include "tessera/ops/linear/linear_cuda.h"

namespace tessera {
namespace {

using namespace cublaslt;

constexpr int kMostRounds = 4;
constexpr double kRoundMs = 0.5;
constexpr double kMostMs = 80;     // longest time of all rounds together, in milliseconds
constexpr int kMostLaunches = 50;  // maximum number of launches of an algorithm in a round
constexpr int kMostAlgorithms = 16;
constexpr double kSmallestGain = 0.01;  // a smaller gain is noise
constexpr std::size_t kPatternBytes = std::size_t{1} << 20;
// The launches use several weight matrices in turn. All of these matrices together have this many bytes. The L2 cache
// holds less, so each launch reads its weights from memory.
constexpr std::size_t kColdBytes = std::size_t{128} << 20;
constexpr std::size_t kLeftBytes = std::size_t{256} << 20;  // device memory that stays free for other allocations

std::size_t bytes_of(const LinearShape& s, std::int64_t rows, std::int64_t columns) {
  return static_cast<std::size_t>(rows * columns) * ir::dtype_size(s.dtype);
}

// The operands of a measured linear. Their values are random: with equal values, for example zeros, the GPU draws less
// power and runs at a higher clock, so the measured times would be too short.
class Operands {
 public:
  static Result<Operands> create(const LinearShape& s, Device& device, Stream& stream) {
    Operands o;
    o.w_bytes_ = bytes_of(s, s.n, s.k);
    o.num_w_ = std::max<std::size_t>(1, kColdBytes / o.w_bytes_);
    const std::size_t x = bytes_of(s, s.m, s.k);
    const std::size_t y = bytes_of(s, s.m, s.n);
    const std::size_t all = o.num_w_ * o.w_bytes_ + x + y + kCublasLtWorkspaceBytes + kLeftBytes;
    if (device.available_bytes() < static_cast<std::int64_t>(all))
      return resource_exhausted(fmt::format("it needs {} bytes, {} are available", all, device.available_bytes()));
    o.w_ = TRY(device.allocate(o.num_w_ * o.w_bytes_, "weights to measure"));
    o.x_ = TRY(device.allocate(x, "input to measure"));
    o.y_ = TRY(device.allocate(y, "output to measure"));
    o.workspace_ = TRY(device.allocate(kCublasLtWorkspaceBytes, "workspace to measure"));
    TRY(fill(*o.w_, o.num_w_ * o.w_bytes_, s.dtype, device, stream));
    TRY(fill(*o.x_, x, s.dtype, device, stream));
    return o;
  }

  LinearProblem problem(const LinearShape& s, std::size_t launch) const {
    return {.x = x_->data().raw(),
            .w = w_->data().raw() + launch % num_w_ * w_bytes_,
            .bias = s.bias ? w_->data().raw() : nullptr,
            .residual = nullptr,
            .y = y_->data().raw(),
            .m = s.m,
            .n = s.n,
            .k = s.k,
            .dtype = s.dtype,
            .workspace = workspace_->data().raw(),
            .workers = 1};
  }

 private:
  static Status fill(Allocation& to, std::size_t bytes, ir::DType dtype, Device& device, Stream& stream) {
    std::size_t done = std::min(bytes, kPatternBytes);
    const std::unique_ptr<HostAllocation> pattern = TRY(device.allocate_host(done, "values to measure"));
    const std::span values(reinterpret_cast<std::uint16_t*>(pattern->data()), done / sizeof(std::uint16_t));
    std::mt19937 random(1);
    std::uniform_real_distribution<float> uniform(-1, 1);
    for (std::uint16_t& value : values) {
      const float x = uniform(random);
      value = dtype == ir::DType::kBFloat16 ? from_float<BFloat16>(x).bits : from_float<Float16>(x).bits;
    }
    TRY(stream.upload(to.data(), pattern->data(), done));
    for (; done < bytes; done *= 2) TRY(stream.copy(to.data() + done, to.data(), std::min(done, bytes - done)));
    return stream.synchronize();
  }

  std::size_t w_bytes_ = 0;
  std::size_t num_w_ = 0;
  std::unique_ptr<Allocation> w_, x_, y_, workspace_;
};

// Times algorithms. time() returns an algorithm's milliseconds per launch, or nothing if the library refuses the
// algorithm.
class Stopwatch {
 public:
  static Result<Stopwatch> create(Device& device, Stream& stream) {
    return Stopwatch(stream, TRY(device.create_event(EventKind::kTime)), TRY(device.create_event(EventKind::kTime)));
  }

  Result<std::optional<double>> time(cublasLtHandle_t handle, const Choice& choice, const LinearShape& shape,
                                     const Operands& operands, int launches) {
    TRY(stream_.record(*begin_));
    for (int i = 0; i < launches; ++i) {
      const LinearProblem p = operands.problem(shape, launched_++);
      const float one = 1;
      const float none = 0;
      const cublasStatus_t status = cublasLtMatmul(
          handle, choice.matmul.get(), &one, p.w, choice.w.get(), p.x, choice.x.get(), &none, p.y, choice.y.get(), p.y,
          choice.y.get(), &choice.algorithm, p.workspace, kCublasLtWorkspaceBytes, as_cuda(stream_).handle());
      if (status != CUBLAS_STATUS_SUCCESS) {
        static_cast<void>(cudaGetLastError());  // clears the error, which the next launch would report as its own
        return std::optional<double>();
      }
    }
    TRY(stream_.record(*end_));
    TRY(stream_.synchronize());
    return std::optional(TRY(end_->milliseconds_since(*begin_)) / launches);
  }

 private:
  Stopwatch(Stream& stream, std::unique_ptr<Event> begin, std::unique_ptr<Event> end)
      : stream_(stream), begin_(std::move(begin)), end_(std::move(end)) {}

  Stream& stream_;
  std::unique_ptr<Event> begin_;
  std::unique_ptr<Event> end_;
  std::size_t launched_ = 0;
};

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

// Returns the fastest algorithm if it saves more than the fraction kSmallestGain of the time that `at_hand` takes.
// Otherwise returns `at_hand`.
Result<OpaqueAlgorithm> fastest(const LinearShape& shape, const OpaqueAlgorithm& at_hand, Device& device) {
  const std::unique_ptr<Stream> stream = TRY(device.create_stream("measured linears"));
  const Operands operands = TRY(Operands::create(shape, device, *stream));
  const LinearProblem problem = operands.problem(shape, 0);
  cublasLtHandle_t handle = TRY(library_handle(problem, device));
  Choice choice;
  TRY(describe(problem, choice.matmul, choice.w, choice.x, choice.y));
  if (problem.bias != nullptr) TRY(set_bias(problem, choice.matmul));
  std::array<cublasLtMatmulHeuristicResult_t, kMostAlgorithms> offered{};
  int found = 0;
  TRY(ask(handle, problem, Rows::kThese, choice, offered, found));

  std::vector<OpaqueAlgorithm> algorithms{at_hand};
  for (const cublasLtMatmulHeuristicResult_t& result : std::span(offered).first(static_cast<std::size_t>(found))) {
    const auto algorithm = std::bit_cast<OpaqueAlgorithm>(result.algo);
    if (algorithm != at_hand) algorithms.push_back(algorithm);
  }
  Stopwatch stopwatch = TRY(Stopwatch::create(device, *stream));
  const auto time = [&](std::size_t i, int launches) {
    choice.algorithm = std::bit_cast<cublasLtMatmulAlgo_t>(algorithms[i]);
    return stopwatch.time(handle, choice, shape, operands, launches);
  };
  // The first launch of an algorithm loads its code. The second one shows how many rounds fit in kMostMs.
  std::vector<std::size_t> served;
  double round_ms = 0;
  double first_ms = 0;
  for (std::size_t i = 0; i < algorithms.size() && round_ms < kMostMs / 2; ++i) {
    if (!TRY(time(i, 1))) continue;
    const std::optional<double> ms = TRY(time(i, 1));
    if (!ms) continue;
    if (i == 0) first_ms = *ms;
    served.push_back(i);
    round_ms += *ms;
  }
  if (first_ms == 0) return unimplemented("the library no longer accepts the algorithm that is in use");
  const int launches = std::clamp(static_cast<int>(kRoundMs / first_ms), 1, kMostLaunches);
  const int rounds = std::min(kMostRounds, static_cast<int>(kMostMs / (round_ms * launches)));
  if (rounds == 0) return resource_exhausted("it takes too long to be measured");
  std::vector<std::vector<double>> times(served.size());
  for (int round = 0; round < rounds; ++round) {
    for (std::size_t at = 0; at < served.size(); ++at) {
      const std::optional<double> ms = TRY(time(served[at], launches));
      times[at].push_back(ms.value_or(std::numeric_limits<double>::infinity()));
    }
  }
  std::vector<double> medians(served.size());
  std::ranges::transform(times, medians.begin(), median);
  const auto best = static_cast<std::size_t>(std::ranges::min_element(medians) - medians.begin());
  return medians[best] < (1 - kSmallestGain) * medians[0] ? algorithms[served[best]] : at_hand;
}

}  // namespace

Status learn_cublaslt_algorithms(const Json& algorithms) { return known_algorithms().learn(algorithms); }

Result<bool> measure_cublaslt_algorithms(Device& device) {
  TRY(static_cast<CudaDevice&>(device).make_current());
  LinearAlgorithms& known = known_algorithms();
  while (const auto next = known.take_unmeasured()) {
    const auto& [shape, at_hand] = *next;
    const Result<OpaqueAlgorithm> algorithm = fastest(shape, at_hand, device);
    if (algorithm.ok()) {
      known.improve(shape, *algorithm);
      return true;
    }
    if (algorithm.status().code() == StatusCode::kDeviceLost) return algorithm.status();
    log_debug("cache", "linear [{}, {}] x [{}, {}] keeps its algorithm: {}", shape.m, shape.k, shape.n, shape.k,
              algorithm.status().message());
  }
  return false;
}

}  // namespace tessera
