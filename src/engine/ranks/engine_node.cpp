#include "tessera/engine/ranks/engine_node.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tessera/base/hash.h"
#include "tessera/base/log.h"
#include "tessera/comm/nccl_library.h"
#include "tessera/engine/plan/rank_places.h"
#include "tessera/engine/ranks/engine_rank.h"
#include "tessera/model/gguf/gguf_config.h"
#include "tessera/model/weights/checkpoint.h"
#include "tessera/model/weights/model_path.h"
#include "tessera/runner/ranks/rank_node.h"

namespace tessera {
namespace {

// The time after which a silent node counts as lost. A busy machine may be silent for several seconds. The time is
// shorter than rank_limit(), so that the error names the silent node.
constexpr std::chrono::milliseconds kMostSilence(15'000);

// The device type of CUDA devices. Their names begin with it.
constexpr std::string_view kCuda = "cuda";

// Hashes config.json. For a GGUF file, instead hashes the config that is made from the metadata of the file and of its
// projector. Unless the weights are random numbers, also hashes the names, types and shapes of the tensors.
Result<std::string> model_hash(const std::string& path, LoadFormat format, const GgufOptions& gguf_options = {}) {
  Hasher hasher;
  if (const std::optional<std::string> gguf = TRY(find_gguf(path))) {
    hasher.add(TRY(gguf_config(TRY(GgufModel::open(*gguf, gguf_options)))).dump());
  } else {
    std::ifstream file(config_file(path), std::ios::binary);
    if (!file) return not_found(fmt::format("{}: no config.json can be read there", path));
    hasher.add(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (format == LoadFormat::kDummy) return hasher.finish().hex();
  const Checkpoint checkpoint = TRY(Checkpoint::open(path, gguf_options));
  for (const std::string_view name : checkpoint.names()) {
    const StoredTensor* const tensor = checkpoint.find(name);
    hasher.add(name);
    hasher.add(tensor->dtype);
    for (const std::int64_t dim : tensor->shape) hasher.add(dim);
  }
  return hasher.finish().hex();
}

template <class T>
std::string list_text(const std::vector<T>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

// Returns "NAME VERSION (hash …), …" for the plugins, in the order of loading, which decides whose operators take
// precedence.
std::string plugins_text(const Registry& registry) {
  std::vector<std::string> texts;
  for (const LoadedPlugin& plugin : registry.plugins)
    texts.push_back(fmt::format("{} {} (hash {})", plugin.name, plugin.version, plugin.content.hex()));
  return fmt::format("{}", fmt::join(texts, ", "));
}

// Returns the options that must be equal on all nodes because each node plans with them. Leaves out options that rank 0
// sends, and options that may differ between machines.
std::vector<NamedValue> shared_options(const EngineOptions& o) {
  const GraphOptions& g = o.graphs;
  const auto number = [](auto value) { return fmt::format("{}", value); };
  const auto word = [](auto value) { return fmt::format("{}", static_cast<int>(value)); };
  return {{"enable_dp_attention", number(o.dp_attention)},
          {"tp_size", number(ranks_of_layers(o))},
          {"pp_size", number(o.pp_size)},
          {"ep_size", number(o.ep_size)},
          {"dtype", o.dtype},
          {"kv_cache_dtype", o.kv_cache_dtype},
          {"quantization", o.quantization},
          {"lm_head_quantization", o.lm_head_quantization},
          {"load_format", word(o.load_format)},
          {"context_length", number(o.context_length)},
          {"chunked_prefill_size", number(o.chunked_prefill_size)},
          {"max_running_requests", number(o.max_running_requests)},
          {"max_total_tokens", number(o.max_total_tokens)},
          {"page_size", number(o.page_size)},
          {"is_embedding", number(o.is_embedding)},
          {"enable_deterministic_inference", number(o.deterministic)},
          {"enable_two_batch_overlap", number(o.two_batch_overlap)},
          {"two_batch_least_tokens", number(o.two_batch_least_tokens)},
          {"random_seed", number(o.random_seed)},
          {"speculative_algorithm", word(o.drafts.source)},
          {"speculative_num_draft_tokens", number(o.drafts.most_tokens)},
          {"speculative_num_steps", number(o.drafts.layer_steps)},
          {"speculative_draft_model_quantization", o.drafts.quantization},
          {"speculative_draft_vocab_size", number(o.drafts.vocab_size)},
          {"memory_plan", word(o.memory_plan)},
          {"image_cache_bytes", number(o.image_cache_bytes)},
          {"cuda_graph_mode", word(g.mode)},
          {"disable_cuda_graph", number(g.disable_cuda_graph)},
          {"disable_piecewise_cuda_graph", number(g.disable_piecewise_cuda_graph)},
          {"enforce_piecewise_cuda_graph", number(g.enforce_piecewise_cuda_graph)},
          {"disable_cuda_graph_padding", number(g.disable_cuda_graph_padding)},
          {"cuda_graph_schedule", word(g.schedule)},
          {"piecewise_cuda_graph_max_tokens", number(g.piecewise_max_tokens)},
          {"piecewise_cuda_graph_tokens", list_text(g.piecewise_tokens)},
          {"piecewise_cuda_graph_compiler", g.compiler},
          {"cuda_graph_max_bs", number(g.decode_max_batch)},
          {"cuda_graph_bs", list_text(g.decode_batches)},
          {"cuda_graph_split_ops", list_text(g.split_ops)},
          {"cuda_graph_disable_passes", list_text(g.disabled_passes)},
          {"cuda_graph_capture", g.capture ? word(*g.capture) : "auto"},
          {"cuda_graph_memory_budget", number(g.memory_budget)},
          {"enable_torch_compile", number(g.torch_compile)},
          {"torch_compile_max_bs", number(g.torch_compile_max_batch)},
          {"enable_torch_compile_debug_mode", number(g.debug)},
          {"enable_vit_cuda_graph", number(g.vit_cuda_graph)}};
}

}  // namespace

std::chrono::milliseconds rank_limit(const EngineOptions& options) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::duration<double>(options.rank_timeout_s));
}

Result<NodeHello> node_hello(const EngineOptions& options, const DeviceProperties& device) {
  std::string model = TRY(model_hash(options.model_path, options.load_format, gguf_options(options)));
  NodeHello hello{.nodes = options.nnodes,
                  .node = options.node_rank,
                  .version = std::string(kBackendInterface),
                  .model = std::move(model),
                  .options = shared_options(options)};
  if (!device.on_host && device.type != kCuda)
    return unimplemented(fmt::format("nnodes: {} nodes on device {} are not supported; accepted are cpu and cuda",
                                     options.nnodes, options.device));
  if (options.drafts.from_folder()) {
    std::string draft =
        TRY(model_hash(options.drafts.model_path, options.load_format).with_context("speculative_draft_model_path"));
    const bool is_model = options.drafts.source == DraftSource::kModel;
    hello.options.push_back({is_model ? "the draft model" : "the draft layer", std::move(draft)});
  }
  // All nodes must have the same plugins, because plugins decide which graphs and kernels a node makes.
  hello.options.push_back({"plugins", plugins_text(*options.registry)});
  // All ranks must compute the same bits. A processor with another instruction set or number of threads would compute
  // different bits.
  hello.options.push_back({"the processor of a rank", device.name});
  if (device.on_host) return hello;
  const std::shared_ptr<const NcclLibrary> nccl = TRY(NcclLibrary::open().with_context("nnodes"));
  hello.options.push_back({"NCCL's version", nccl->version_text()});
  // Another version of a library may choose other algorithms.
  const Backend& backend = *TRY(options.registry->devices.backend(device.type));
  hello.options.push_back({"the libraries of a rank", backend.versions ? backend.versions() : std::string()});
  return hello;
}

Result<std::shared_ptr<NodeGroup>> join_nodes(const EngineOptions& options, const DeviceProperties& device) {
  if (options.nnodes == 1) return std::shared_ptr<NodeGroup>();
  const std::chrono::milliseconds limit = rank_limit(options);
  const NodeGroupOptions how{.address = TRY(parse_node_address(options.dist_init_addr)),
                             .join_limit = limit,
                             .silence = std::min(kMostSilence, limit / 2),
                             .ranks = all_ranks(options)};
  return NodeGroup::join(TRY(node_hello(options, device)), how).with_context("dist_init_addr");
}

Status follow_engine(const EngineOptions& options, const std::function<Status(std::shared_ptr<NodeGroup>)>& joined) {
  TRY(check_ranks(options));
  const int first = options.node_rank * ranks_here(options);
  const DeviceProperties device = TRY(open_device(options, first))->properties();
  const std::shared_ptr<NodeGroup> nodes = TRY(join_nodes(options, device));
  TRY(joined(nodes));
  return follow_node_0({.nodes = nodes,
                        .layout = layout_of(options),
                        .limit = rank_limit(options),
                        .body = following(rank_hosts(options))});
}

}  // namespace tessera
