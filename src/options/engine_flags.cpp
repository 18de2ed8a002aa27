#include "tessera/options/engine_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "tessera/engine/plan/rank_places.h"
#include "tessera/net/socket.h"
#include "tessera/options/adapter_flags.h"
#include "tessera/options/draft_flags.h"
#include "tessera/piecewise/ladder.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 6> kDtypes = {"auto", "float32", "float", "bfloat16", "float16", "half"};
constexpr std::array<std::string_view, 9> kKvCacheDtypes = {"auto", "float32",  "bfloat16", "float16", "half",
                                                            "fp8",  "fp8_e4m3", "int8",     "q8_0"};
// The values of --cuda-graph-capture. The names after "auto" are in CaptureMode's order.
constexpr std::array<std::string_view, 4> kCaptures = {"auto", "eager", "lazy", "core"};

Status take_dtype(const std::string& flag, const std::string& text, EngineOptions& engine) {
  engine.dtype = kDtypes[TRY(parse_choice(flag, text, kDtypes))];
  return ok_status();
}

// Reads the data type of the KV cache. "fp8" means "fp8_e4m3", and llama.cpp's "q8_0" means "int8". A type that
// kKvCacheDtypes lacks is refused as unsupported.
Status take_kv_cache_dtype(const std::string& flag, const std::string& text, EngineOptions& engine) {
  if (std::ranges::find(kKvCacheDtypes, text) == kKvCacheDtypes.end())
    return unimplemented(
        fmt::format("{}: \"{}\" is not supported; accepted is {}", flag, text, fmt::join(kKvCacheDtypes, ", ")));
  engine.kv_cache_dtype = text == "fp8" ? "fp8_e4m3" : text == "q8_0" ? "int8" : text;
  return ok_status();
}

// Returns a function that takes a registered compiler's name. SGLang's name "inductor" selects Tessera's fused
// compiler.
CommandFlags::Take compiler_name(const CompilerRegistry& known, std::string& name) {
  return [&known, &name](const std::string& flag, const std::string& text) {
    name = text == "inductor" ? kFusedCompiler : text;
    return known.check(name).with_context(flag);
  };
}

// Returns a function that takes only `accepted` and refuses other values as unsupported.
CommandFlags::Take only(const std::string& accepted) {
  return [accepted](const std::string& flag, const std::string& text) {
    if (text == accepted) return ok_status();
    return unimplemented(fmt::format("{}: \"{}\" is not supported yet; accepted is {}", flag, text, accepted));
  };
}

void add_model_flags(CommandFlags& add, EngineOptions& engine, CommonFlags& common) {
  add.group("Model");
  // Adds --plugin first. Values are taken in the order in which the flags are added, so the flags below can name a
  // plugin's additions.
  add.values("--plugin", "FILE", "library with operators, compilers, devices … of its own; repeatable",
             [&common](const std::string& flag, const std::string& text) {
               if (!common.load_plugin) return unimplemented(fmt::format("{}: this program loads no plugins", flag));
               return common.load_plugin(text).with_context(flag);
             });
  add.text(common.serves ? "--model-path,--model,MODEL" : "--model-path,--model", "DIR|ID",
           "model folder, GGUF file, or a model of the hub (org/name, org/name:Q4_K_M) in its local cache",
           engine.model_path);
  add.text("--gguf-file", "FILE|TYPE", "one of several GGUF files of the folder, or of the model of the hub",
           common.model.gguf_file);
  add.values("--override-kv", "KEY=TYPE:VALUE",
             "replaces a value of a GGUF file's metadata; TYPE is int, float, bool or str; repeatable",
             [&engine](const std::string& flag, const std::string& text) {
               engine.metadata_overrides.push_back(TRY(GgufOverride::parse(text).with_context(flag)));
               return ok_status();
             });
  add.text("--mmproj", "FILE", "projector of a GGUF model, for images: a path, or a file beside the model",
           common.model.mmproj);
  add.flag("--no-mmproj", "leave the projector beside a GGUF model alone: no images", common.model.no_mmproj);
  add.text("--revision", "REV", "branch, tag or commit of a model of the hub (main)", common.model.revision);
  add.flag("--download", "fetch a model of the hub that the cache lacks", common.model.download);
  add.text("--tokenizer-path,--tokenizer", "PATH", "tokenizer folder or tokenizer.json, if elsewhere",
           engine.tokenizer_path);
  add.choice("--load-format", "dummy: random weights, config.json is enough", {"auto", "safetensors", "dummy", "gguf"},
             engine.load_format);
  add.value("--lm-head-quantization", "fp8|int8|int4|nvfp4",
            "quantises the head at the start, which --quantization and most checkpoints leave as it is; logits change",
            [&engine](const std::string& flag, const std::string& text) {
              engine.lm_head_quantization = TRY(parse_start_format(flag, text));
              return ok_status();
            });
  add.flag("--is-embedding", "serve embeddings, as models with a Pooling in modules.json do anyway",
           engine.is_embedding);
  add.value(
      "--dtype", "auto|float32|bfloat16|float16", "of weights and activations",
      [&engine](const std::string& flag, const std::string& text) { return take_dtype(flag, text, engine); },
      engine.dtype);
  add.value(
      "--device", "cpu|cuda|cuda:N", "where it runs (cpu)",
      [&engine](const std::string& flag, const std::string& text) -> Status {
        TRY(engine.registry->devices.check_name(text).with_context(flag));
        engine.device = text;
        return ok_status();
      },
      engine.device);
  add.value(
      "--tp-size,--tp,--tensor-parallel-size", "N",
      "ranks that share every layer, each on a device or a share of the CPU (1)",
      [&engine](const std::string& flag, const std::string& text) -> Status {
        engine.tp_size = static_cast<int>(TRY(parse_integer(flag, text, {1, kMaxRanks})));
        return ok_status();
      },
      engine.tp_size);
  add.value(
      "--ep-size,--ep,--expert-parallel-size", "N",
      "parts of a mixture's experts, which divide the ranks: --tp-size has whole experts on each, 1 slices of all (1)",
      [&engine, &common](const std::string& flag, const std::string& text) -> Status {
        engine.ep_size = static_cast<int>(TRY(parse_integer(flag, text, {1, kMaxRanks})));
        common.foreign.ep_size = engine.ep_size;
        return ok_status();
      },
      engine.ep_size);
  add.value(
      "--pp-size,--pp,--pipeline-parallel-size", "N",
      "stages of neighbouring layers, one behind the other, each on --tp-size ranks (1)",
      [&engine](const std::string& flag, const std::string& text) -> Status {
        engine.pp_size = static_cast<int>(TRY(parse_integer(flag, text, {1, kMaxRanks})));
        return ok_status();
      },
      engine.pp_size);
  add.group("");
  add.flag("--trust-remote-code", "accepted: nothing remote is ever run", common.trust_remote_code);
  if (!common.serves) add.value("--dp-size,--data-parallel-size,--dp", "1", "", only("1"), 1);
}

void add_node_flags(CommandFlags& add, EngineOptions& engine) {
  add.group("Several machines");
  add.value(
      "--nnodes", "N", "processes that share the ranks, one on each machine; of --pp-size each has whole stages (1)",
      [&engine](const std::string& flag, const std::string& text) -> Status {
        engine.nnodes = static_cast<int>(TRY(parse_integer(flag, text, {1, kMaxRanks})));
        return ok_status();
      },
      engine.nnodes);
  add.value(
      "--node-rank", "N", "which of them this is; 0 takes the requests, the others follow it (0)",
      [&engine](const std::string& flag, const std::string& text) -> Status {
        engine.node_rank = static_cast<int>(TRY(parse_integer(flag, text, {0, kMaxRanks - 1})));
        return ok_status();
      },
      engine.node_rank);
  add.value("--dist-init-addr,--nccl-init-addr", "HOST:PORT", "where node 0 listens for the others; the same on all",
            [&engine](const std::string& flag, const std::string& text) {
              TRY(parse_node_address(text).with_context(flag));
              engine.dist_init_addr = text;
              return ok_status();
            });
  add.value(
      "--dist-timeout", "X", "seconds that ranks and nodes wait for one another (300)",
      [&engine](const std::string& flag, const std::string& text) {
        engine.rank_timeout_s = TRY(parse_number(flag, text));
        if (engine.rank_timeout_s >= 1 && engine.rank_timeout_s <= 86400) return ok_status();
        return invalid_argument(fmt::format("{}: {} is not accepted; 1 to 86400 is", flag, text));
      },
      engine.rank_timeout_s);
}

void add_memory_flags(CommandFlags& add, EngineOptions& engine, const CommonFlags& common) {
  add.group("Memory and batches");
  add.count("--context-length,--max-model-len", "tokens of one request, like 32768, 32k or 32K (the model's)", {},
            engine.context_length);
  add.count("--chunked-prefill-size,--max-num-batched-tokens",
            "most tokens of a forward (2048 on the CPU, 8192 on a GPU of 80 GB, else 4096); -1: as the context",
            {1, kMaxLadderSize}, engine.chunked_prefill_size, kWholePrompts);
  add.integer("--max-running-requests,--max-num-seqs",
              "most requests that run at once (512 on a GPU of 80 GB or more, else 256; fewer where fewer states fit)",
              {1, 65535}, engine.max_running_requests);
  add.integer("--max-total-tokens", "of the KV cache (what memory allows)", {}, engine.max_total_tokens);
  add.integer("--page-size,--block-size", "tokens of a KV cache page (16)", {1, 1024}, engine.page_size);
  add.value("--mem-fraction-static", "X", "share of memory for weights and KV cache, 0.1 to 0.95",
            [&engine](const std::string& flag, const std::string& text) {
              engine.mem_fraction_static = TRY(parse_number(flag, text));
              if (engine.mem_fraction_static >= 0.1 && engine.mem_fraction_static <= 0.95) return ok_status();
              return invalid_argument(fmt::format("{}: {} is not accepted; 0.1 to 0.95 is", flag, text));
            });
  add.value(
      "--kv-cache-dtype", "auto|float32|bfloat16|float16|fp8_e4m3|int8", "of the KV cache (as activations)",
      [&engine](const std::string& flag, const std::string& text) { return take_kv_cache_dtype(flag, text, engine); },
      engine.kv_cache_dtype);
  add.value("--image-cache-bytes", "BYTES",
            "of images' embeddings on the device, in use and kept, like 512M (what the largest image takes)",
            [&engine](const std::string& flag, const std::string& text) {
              engine.image_cache_bytes = TRY(parse_bytes(flag, text));
              return ok_status();
            });
  add.flag("--disable-radix-cache,--no-enable-prefix-caching", "no prompt is taken from the prefix cache",
           engine.disable_radix_cache);
  add.flag("--enable-deterministic-inference", "the same bits whatever else is in the batch; slower",
           engine.deterministic);
  add_draft_flags(add, engine);
  add_adapter_flags(add, engine);
  add.flag("--enable-two-batch-overlap",
           "several ranks exchange one half of a large prefill while they compute the other", engine.two_batch_overlap);
  add.choice("--memory-plan", "isolated: each value in guarded memory of its own", {"planned", "isolated"},
             engine.memory_plan);
  add.value(common.serves ? "--random-seed,--seed" : "--random-seed", "N", "of everything drawn at random",
            [&engine](const std::string& flag, const std::string& text) {
              engine.random_seed = static_cast<std::uint64_t>(TRY(parse_integer(flag, text, {0})));
              return ok_status();
            });
}

void add_graph_flags(CommandFlags& add, GraphOptions& graphs, CommonFlags& common) {
  constexpr IntegerRange kSize{1, kMaxLadderSize};
  add.group("Graphs");
  add.value(
      "--cuda-graph-mode", "MODE", "off, piecewise, full, full_and_piecewise (default)",
      [&graphs](const std::string& flag, const std::string& text) {
        graphs.mode = TRY(parse_graph_mode(text).with_context(flag));
        return ok_status();
      },
      graph_mode_name(graphs.mode));
  add.flag("--disable-cuda-graph,--enforce-eager", "no graphs at all", graphs.disable_cuda_graph);
  add.flag("--disable-piecewise-cuda-graph", "prefill runs eagerly", graphs.disable_piecewise_cuda_graph);
  add.flag("--enforce-piecewise-cuda-graph", "skip the rules that turn them off (testing)",
           graphs.enforce_piecewise_cuda_graph);
  add.integer("--piecewise-cuda-graph-max-tokens", "largest prefill graph (the chunk size)", kSize,
              graphs.piecewise_max_tokens);
  add.sizes("--piecewise-cuda-graph-tokens", "sizes of prefill graphs: [64,128], 64,128 or 64 128",
            graphs.piecewise_tokens);
  add.value("--piecewise-cuda-graph-compiler", "eager|fused", "how pieces are compiled (eager); inductor: fused",
            compiler_name(common.registry->compilers, graphs.compiler), "eager");
  add.choice("--cuda-graph-schedule", "how prefill sizes are spaced; auto: the default, changed by measured cost",
             {"default", "legacy", "auto"}, graphs.schedule);
  add.value(
      "--cuda-graph-capture", "auto|eager|lazy|core",
      "all sizes at the start, each on first use, or a few first and the others when idle (auto: core on a GPU)",
      [&graphs](const std::string& flag, const std::string& text) {
        const std::size_t choice = TRY(parse_choice(flag, text, kCaptures));
        graphs.capture.reset();
        if (choice > 0) graphs.capture = static_cast<CaptureMode>(choice - 1);
        return ok_status();
      },
      kCaptures[graphs.capture ? 1 + static_cast<std::size_t>(*graphs.capture) : 0]);
  add.value("--cuda-graph-memory-budget", "BYTES", "that graphs may take, like 512M: sizes of least use are left out",
            [&graphs](const std::string& flag, const std::string& text) {
              graphs.memory_budget = TRY(parse_bytes(flag, text));
              return ok_status();
            });
  add.integer("--cuda-graph-max-bs", "largest decode graph (256)", kSize, graphs.decode_max_batch);
  add.sizes("--cuda-graph-bs", "sizes of decode graphs", graphs.decode_batches);
  add.flag("--disable-cuda-graph-padding", "decode graphs serve exact sizes only", graphs.disable_cuda_graph_padding);
  add.names("--cuda-graph-split-ops", "operators that run between pieces", graphs.split_ops);
  add.names("--cuda-graph-disable-passes", "passes over graphs that are left out", graphs.disabled_passes);
  add.flag("--disable-cost-measurement", "do not time forwards when idle: dispatch pads without looking at costs",
           common.disable_cost_measurement);
  add.flag("--enable-torch-compile", "small decode batches by the fused compiler", graphs.torch_compile);
  add.integer("--torch-compile-max-bs", "the largest batch that --enable-torch-compile compiles (32)", kSize,
              common.torch_compile_max_bs);
  add.flag("--enable-torch-compile-debug-mode", "check every replay: addresses, stale values, NaN; slow", graphs.debug);
  add.flag("--enable-vit-cuda-graph", "a vision tower's graphs by exact size, each captured on first use",
           graphs.vit_cuda_graph);
  add.group("");
  add.flag("--enable-piecewise-cuda-graph", "deprecated", common.enable_piecewise);
  add.flag("--enable-cudagraph-gc", "no effect: there is no garbage collector to leave on during capture",
           common.cudagraph_gc);
}

}  // namespace

void add_engine_flags(CommandFlags& add, EngineOptions& engine, CommonFlags& common) {
  engine.registry = common.registry;
  add_model_flags(add, engine, common);
  add_node_flags(add, engine);
  add_memory_flags(add, engine, common);
  add_graph_flags(add, engine.graphs, common);
  add_foreign_flags(add, common.foreign);
  add.group("Other");
  add.config_file("--config", "flags and values from a YAML or JSON file; the command line wins");
  add.flag("--print-config", "print every flag's effective value, as --config takes them, and end",
           common.print_config);
  add_other_flags(add, common);
}

void add_other_flags(CommandFlags& add, CommonFlags& common) {
  add.group("Other");
  add.values("--log-level", "LEVEL", "debug, info, warn, error, off; or topic=level; repeatable",
             [&common](const std::string&, const std::string& text) {
               common.log_levels.push_back(text);
               return ok_status();
             });
  add.help();
}

Status finish_engine_flags(EngineOptions& engine, const CommonFlags& common) {
  if (engine.model_path.empty())
    return invalid_argument(
        "--model-path is missing; accepted: a model folder, a GGUF file, or a model of the hub (org/name)");
  engine.graphs.measure_costs = !common.disable_cost_measurement;
  if (common.torch_compile_max_bs > 0) engine.graphs.torch_compile_max_batch = common.torch_compile_max_bs;
  TRY(finish_foreign_flags(common.foreign, engine));
  return ok_status();
}

std::vector<std::string> warnings_about(const EngineOptions& engine, const CommonFlags& common) {
  std::vector<std::string> warnings;
  if (common.enable_piecewise) {
    const bool disabled = engine.graphs.disable_cuda_graph || engine.graphs.disable_piecewise_cuda_graph;
    warnings.emplace_back(disabled ? "--enable-piecewise-cuda-graph is overruled by the flag that disables it"
                                   : "--enable-piecewise-cuda-graph is deprecated: piecewise graphs are on by default");
  }
  if (engine.graphs.enforce_piecewise_cuda_graph &&
      (engine.graphs.disable_cuda_graph || engine.graphs.disable_piecewise_cuda_graph))
    warnings.emplace_back("--enforce-piecewise-cuda-graph is overruled by the flag that disables them");
  if (common.cudagraph_gc)
    warnings.emplace_back(
        "--enable-cudagraph-gc has no effect: Python's garbage collector, which it leaves on while graphs "
        "are captured, is not part of this program");
  if (common.torch_compile_max_bs > 0 && !engine.graphs.torch_compile)
    warnings.emplace_back("--torch-compile-max-bs has no effect without --enable-torch-compile");
  if (!engine.drafts.any() && engine.drafts.most_tokens != DraftOptions{}.most_tokens)
    warnings.emplace_back("--speculative-num-draft-tokens has no effect without --speculative-algorithm");
  if (!engine.drafts.by_layer() && engine.drafts.layer_steps != DraftOptions{}.layer_steps)
    warnings.emplace_back(
        "--speculative-num-steps has no effect without --speculative-algorithm MTP, EAGLE3 or STANDALONE");
  if (engine.drafts.forced_tokens > 0)
    warnings.emplace_back(engine.drafts.any()
                              ? "--speculative-forced-tokens keeps drafts by a draw: texts are meaningless"
                              : "--speculative-forced-tokens has no effect without --speculative-algorithm");
  warn_about_adapter_flags(engine.adapters, warnings);
  if (engine.two_batch_overlap && engine.tp_size == 1 && !engine.dp_attention)
    warnings.emplace_back("--enable-two-batch-overlap has no effect with --tp-size 1: there is nothing to exchange");
  warn_about_foreign_flags(common.foreign, engine, warnings);
  return warnings;
}

}  // namespace tessera
