// Times attention's kernels on a GPU and prints the times side by side:
//
//   attention_bench [DEVICE [CACHE [MODEL]]]
//
// DEVICE is "cuda" by default. CACHE is the type of keys and values, for example f8e4m3, and is bf16 by default. With
// MODEL, only models whose names contain MODEL are timed.
//
// The program prints a line for each case. For each kernel the line has three times in microseconds: the device's time
// for one layer ("-" if the kernel does not support the shape), the host's time for one plan, and the host's time for
// binding the first layer. Each case launches 2 to 28 layers in sequence. As far as possible, these layers together
// have about 256 MiB of keys and values, which do not fit in the L2 cache. Decode launches are recorded as one graph.
// Extend launches are not recorded, because an engine runs them between the recorded pieces of a forward. The time of a
// layer is the shortest of several runs, divided by the number of layers.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/ops/attention/attention.h"
#include "tessera/ops/device_registry.h"

namespace tessera {
namespace {

constexpr std::int64_t kPageSize = 16;
constexpr int kReplays = 10;
constexpr ir::DType kDType = ir::DType::kBFloat16;

struct Model {
  const char* name;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t head_dim;
  std::int64_t window = 0;
  bool sinks = false;
  ir::DType cache = kDType;

  // Returns the number of operands: q, keys, values and out, and the sinks and scales if the model has them.
  std::size_t operands() const { return 4U + (sinks ? 1U : 0U) + (has_cache_scales(cache) ? 2U : 0U); }
};

struct Case {
  BatchKind kind;
  std::int64_t requests;
  std::int32_t query_len;
  std::int32_t cached;
  // Number of single-row requests in an extend case. They come before the `requests` requests of query_len rows.
  std::int64_t decodes = 0;
  std::int32_t decode_kv_len = 0;

  std::int32_t kv_len() const { return query_len + cached; }
  std::int64_t rows() const { return decodes + requests * query_len; }
  std::int64_t all_requests() const { return decodes + requests; }
  std::string name() const {
    if (kind == BatchKind::kDecode) return fmt::format("decode {} at {}", requests, kv_len());
    const std::string prompts = fmt::format("extend {} x {} after {}", requests, query_len, cached);
    return decodes == 0 ? prompts : fmt::format("{}, {} at {}", prompts, decodes, decode_kv_len);
  }
};

using Clock = std::chrono::steady_clock;
double microseconds(Clock::duration d) { return std::chrono::duration<double, std::micro>(d).count(); }

ForwardBatch make_batch(const Case& c, std::int64_t pages) {
  ForwardBatch batch;
  CacheGroupBatch& group = batch.groups.emplace_back();
  std::vector<std::vector<PageId>> tables;
  std::int64_t page = 0;
  for (std::int64_t b = 0; b < c.all_requests(); ++b) {
    const bool decodes = b < c.decodes;
    batch.query_lens.push_back(decodes ? 1 : c.query_len);
    batch.kv_lens.push_back(decodes ? c.decode_kv_len : c.kv_len());
    std::vector<PageId>& table = tables.emplace_back();
    // Consecutive pages of a request lie 7919 pages apart, modulo the number of pages, so they are usually not adjacent
    // in memory. 7919 is a prime that does not divide the number of pages, so no page is used twice.
    for (std::int64_t filled = 0; filled < batch.kv_lens.back(); filled += kPageSize)
      table.emplace_back(static_cast<std::int32_t>(page++ * 7919 % pages));
  }
  group.own(std::move(tables));
  return batch;
}

ir::Node make_node(const Model& model) {
  ir::Node node;
  node.op = std::string(kAttention.name);
  for (std::size_t i = 0; i < model.operands(); ++i) {
    node.operands.emplace_back(static_cast<std::int32_t>(i));
    node.mutates.push_back(i == 3);
  }
  node.attributes = {{"group", std::int64_t{0}}, {"scale", 1 / std::sqrt(static_cast<double>(model.head_dim))}};
  if (model.window > 0) node.attributes.emplace_back("window", model.window);
  return node;
}

TensorView view(const Allocation& memory, ir::DType dtype, std::vector<std::int64_t> dims) {
  TensorView v{.data = memory.data(), .dtype = dtype, .rank = static_cast<std::int32_t>(dims.size()), .dims = {}};
  std::copy(dims.begin(), dims.end(), v.dims.begin());
  return v;
}

struct Figures {
  double device_us = 0;  // device time of one layer
  double plan_us = 0;    // host time of one call of OpPlan::plan()
  double bind_us = 0;    // host time of binding the first layer
};

// Measures one case on one kernel.
class Measurement {
 public:
  static Result<Figures> run(Device& device, const KernelTable& kernels, const Model& model, const Case& c,
                             const std::string& kernel) {
    Measurement m(device, kernels, model, c);
    TRY(m.prepare(kernel));
    return m.time();
  }

 private:
  Measurement(Device& device, const KernelTable& kernels, const Model& model, const Case& c)
      : device_(device), kernels_(kernels), model_(model), case_(c) {}

  Result<DeviceAddress> allocate(std::int64_t elements, ir::DType dtype) {
    memory_.push_back(TRY(device_.allocate(static_cast<std::size_t>(elements) * ir::dtype_size(dtype), "bench")));
    // The byte 0x3c, repeated, is a small number in every type.
    TRY(stream_->fill(memory_.back()->data(), 0x3c, memory_.back()->size()));
    return memory_.back()->data();
  }

  Status prepare(const std::string& kernel) {
    stream_ = TRY(device_.create_stream("bench"));
    const std::int64_t pages_each = (std::max(case_.kv_len(), case_.decode_kv_len) + kPageSize - 1) / kPageSize;
    pages_ = case_.all_requests() * pages_each + 1;
    if (pages_ % 7919 == 0) ++pages_;
    context_.limits = {.max_requests = std::max<std::int64_t>(case_.all_requests(), 128),
                       .max_tokens = std::max<std::int64_t>(case_.rows(), 8192),
                       .max_pages_per_request = std::max<std::int64_t>(pages_each, 128),
                       .page_size = kPageSize,
                       .attention_kernel = kernel};
    context_.batch_kind = case_.kind;
    node_ = make_node(model_);
    const ir::Type q{kDType, {ir::Symbol::kTokens, model_.heads * model_.head_dim}};
    const ir::Type cache{model_.cache, {ir::Symbol::kPages, kPageSize, model_.kv_heads, model_.head_dim}};
    std::vector<PlannedNode> nodes{{.node = &node_, .operands = {q, cache, cache, q}}};
    nodes[0].operands.resize(model_.operands(), {ir::DType::kFloat32, {1}});
    if (model_.sinks) nodes[0].operands[4] = {ir::DType::kFloat32, {model_.heads}};
    kernel_ = TRY(kernels_.get("attention"));
    plan_ = TRY(kernel_->planner->make(
        device_, {.nodes = nodes, .kernel = kernel_->name, .num_pages = pages_, .limits = context_.limits}, step_));
    TRY(step_.allocate(device_, *stream_));
    context_.plans = {{.op = "attention", .plan = plan_.get()}};
    if (plan_->kernels(case_.kind) != std::vector<std::string_view>{kernel})
      return unimplemented(kernel + " is not the kernel that the planner chooses for this shape");
    return bind_layers();
  }

  Status bind_layers() {
    constexpr std::int64_t kBeyondCache = std::int64_t{256} << 20;  // in bytes; several times the size of the L2 cache
    const std::int64_t cache_elements = pages_ * kPageSize * model_.kv_heads * model_.head_dim;
    const auto cache_bytes = cache_elements * static_cast<std::int64_t>(ir::dtype_size(model_.cache));
    const std::int64_t layers = std::clamp<std::int64_t>(kBeyondCache / (2 * cache_bytes), 2, 28);
    const std::int64_t width = model_.heads * model_.head_dim;
    TRY(allocate(case_.rows() * width, kDType));
    TRY(allocate(case_.rows() * width, kDType));
    TRY(allocate(model_.heads, ir::DType::kFloat32));
    for (std::int64_t layer = 0; layer < layers; ++layer) {
      TRY(allocate(cache_elements, model_.cache));
      TRY(allocate(cache_elements, model_.cache));
      const std::vector<std::int64_t> cache{pages_, kPageSize, model_.kv_heads, model_.head_dim};
      std::vector<TensorView> operands{
          view(*memory_[0], kDType, {case_.rows(), width}), view(*memory_[memory_.size() - 2], model_.cache, cache),
          view(*memory_.back(), model_.cache, cache), view(*memory_[1], kDType, {case_.rows(), width})};
      operands.resize(model_.operands(), view(*memory_[2], ir::DType::kFloat32, {1}));
      if (model_.sinks) operands[4] = view(*memory_[2], ir::DType::kFloat32, {model_.heads});
      BindArgs args{node_, operands, {}, {}, device_, context_};
      if (layer == 0) workspace_ = TRY(device_.allocate(TRY(kernel_->workspace_bytes(args)), "bench"));
      args.workspace = workspace_->data();
      const Clock::time_point before = Clock::now();
      layers_.push_back(TRY(kernel_->bind(args)));
      if (layer == 0) bind_us_ = microseconds(Clock::now() - before);
    }
    return ok_status();
  }

  Status plan(const ForwardBatch& batch) {
    TRY(plan_->plan(batch, case_.kind, case_.kind == BatchKind::kDecode ? case_.requests : 0, *stream_));
    return step_.upload(*stream_);
  }

  Status enqueue_layers() {
    for (const std::unique_ptr<BoundOp>& layer : layers_) TRY(layer->enqueue(*stream_));
    return ok_status();
  }
  Status launch() { return graph_ == nullptr ? enqueue_layers() : graph_->launch(*stream_); }

  Result<Figures> time() {
    const ForwardBatch batch = make_batch(case_, pages_);
    TRY(plan(batch));
    if (case_.kind == BatchKind::kDecode) {
      TRY(stream_->begin_recording("attention"));
      TRY(enqueue_layers());
      graph_ = TRY(stream_->end_recording());
    }
    TRY(launch());
    TRY(stream_->synchronize());
    Figures best{1e30, 1e30, bind_us_};
    for (int i = 0; i < kReplays; ++i) {
      const Clock::time_point before = Clock::now();
      TRY(plan(batch));
      const Clock::time_point planned = Clock::now();
      TRY(stream_->synchronize());
      const Clock::time_point begin = Clock::now();
      TRY(launch());
      TRY(stream_->synchronize());
      best.device_us =
          std::min(best.device_us, microseconds(Clock::now() - begin) / static_cast<double>(layers_.size()));
      best.plan_us = std::min(best.plan_us, microseconds(planned - before));
    }
    return best;
  }

  Device& device_;
  const KernelTable& kernels_;
  const Model& model_;
  const Case& case_;
  std::int64_t pages_ = 0;
  double bind_us_ = 0;
  // Members are destroyed in reverse order: graph, operators, plan, memory, stream.
  std::unique_ptr<Stream> stream_;
  std::vector<std::unique_ptr<Allocation>>
      memory_;  // for q, out, the sinks and scales, and then the keys and values of each layer
  std::unique_ptr<Allocation> workspace_;
  ir::Node node_;
  const KernelDef* kernel_ = nullptr;
  StepBuffer step_;
  std::unique_ptr<OpPlan> plan_;
  ForwardContext context_;
  std::vector<std::unique_ptr<BoundOp>> layers_;
  std::unique_ptr<RecordedGraph> graph_;
};

Status print_table(Device& device, const KernelTable& kernels, const Model& model, const std::vector<Case>& cases,
                   const std::vector<std::string>& names) {
  std::string head =
      fmt::format("{:<34}", fmt::format("{} {}/{} d{}", model.name, model.heads, model.kv_heads, model.head_dim));
  for (const std::string& kernel : names) head += fmt::format("{:>10}{:>7}{:>8}", kernel, "plan", "bind");
  std::puts(head.c_str());
  for (const Case& c : cases) {
    std::string line = fmt::format("{:<34}", c.name());
    for (const std::string& kernel : names) {
      const Result<Figures> figures = Measurement::run(device, kernels, model, c, kernel);
      if (figures.ok()) {
        line += fmt::format("{:>10.1f}{:>7.1f}{:>8.0f}", figures->device_us, figures->plan_us, figures->bind_us);
      } else if (figures.status().code() == StatusCode::kUnimplemented) {
        line += fmt::format("{:>10}{:>7}{:>8}", "-", "", "");
      } else {
        return figures.status().with_context(fmt::format("{} on {}", c.name(), kernel));
      }
    }
    std::puts(line.c_str());
    std::fflush(stdout);
  }
  return ok_status();
}

Status run(const std::string& device_name, const std::string& cache_name, const std::string& model_name) {
  const std::optional<ir::DType> cache = ir::parse_dtype(cache_name);
  if (!cache || !is_cache_type(*cache))
    return invalid_argument(fmt::format("a cache of {}; accepted: {}", cache_name, kCacheTypes));
  const DeviceRegistry devices = built_in_devices();
  const std::unique_ptr<Device> device = TRY(devices.open(device_name));
  if (device->properties().type != "cuda") return invalid_argument("attention_bench measures a GPU");
  const KernelTable& kernels = *TRY(devices.kernels("cuda"));
  std::printf("%s, bfloat16, a cache of %s, pages of 16 tokens; microseconds\n", device->properties().name.c_str(),
              cache_name.c_str());
  constexpr BatchKind kExtend = BatchKind::kExtend;
  constexpr BatchKind kDecode = BatchKind::kDecode;
  const std::vector<Case> extend = {{kExtend, 1, 128, 0},
                                    {kExtend, 1, 512, 0},
                                    {kExtend, 1, 2048, 0},
                                    {kExtend, 1, 512, 1536},
                                    {kExtend, 4, 512, 0},
                                    {kExtend, 16, 128, 1024},
                                    {kExtend, 1, 16, 1024},
                                    {kExtend, 1, 64, 1024},
                                    {kExtend, 1, 128, 1024},
                                    {kExtend, 8, 16, 1024},
                                    {kExtend, 1, 256, 0},
                                    {kExtend, 1, 256, 1024},
                                    {kExtend, 2, 128, 256},
                                    {kExtend, 64, 1, 1024},
                                    {kExtend, 1, 8192, 0},
                                    {kExtend, 1, 16, 100'000},
                                    {kExtend, 1, 512, 100'000},
                                    {kExtend, 1, 2048, 100'000},
                                    {kExtend, 2, 1500, 0, 10, 1400},
                                    {kExtend, 4, 1500, 0, 170, 1400}};
  std::vector<Case> decode;
  for (const std::int64_t requests : {1, 2, 4, 8, 16, 32, 64, 128}) decode.push_back({kDecode, requests, 1, 1023});
  for (const std::int64_t requests : {1, 16}) decode.push_back({kDecode, requests, 1, 8191});
  for (Model model :
       {Model{"Qwen3-0.6B", 16, 8, 128}, Model{"Llama-3-8B", 32, 8, 128}, Model{"Qwen3-14B", 40, 8, 128},
        Model{"Qwen2.5-7B", 28, 4, 128}, Model{"Llama-2-7B", 32, 32, 128}, Model{"Gemma-3-1B", 4, 1, 256},
        Model{"Gemma-3-1B, window of 512", 4, 1, 256, 512}, Model{"Gemma-3-12B, window of 1024", 16, 8, 256, 1024},
        Model{"Mistral-7B, window of 4096", 32, 8, 128, 4096}, Model{"GPT-OSS, all keys", 64, 8, 64, 0, true},
        Model{"GPT-OSS, window of 128", 64, 8, 64, 128, true}, Model{"Qwen3.5 small", 8, 2, 256},
        Model{"Qwen3.5-9B", 16, 4, 256}, Model{"Qwen3.5-27B", 24, 4, 256},
        Model{"full layers of Gemma 4", 8, 1, 512}}) {
    if (std::string_view(model.name).find(model_name) == std::string_view::npos) continue;
    model.cache = *cache;
    TRY(print_table(*device, kernels, model, extend, {"fa3", "fa2", "tessera"}));
    TRY(print_table(*device, kernels, model, decode, {"hopper", "fa2", "cudnn", "tessera"}));
  }
  return ok_status();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const tessera::Status status =
      tessera::run(argc > 1 ? argv[1] : "cuda", argc > 2 ? argv[2] : "bf16", argc > 3 ? argv[3] : "");
  if (status.ok()) return 0;
  std::fprintf(stderr, "attention_bench: %s\n", status.to_string().c_str());
  return 1;
}
