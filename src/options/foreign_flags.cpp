#include "tessera/options/foreign_flags.h"

#include <fmt/format.h>

#include <array>

#include "tessera/engine/plan/rank_places.h"
#include "tessera/options/values.h"

namespace tessera {
namespace {

constexpr std::array<std::string_view, 7> kPolicies = {"fcfs", "priority",    "lpm",       "random",
                                                       "lof",  "routing-key", "dfs-weight"};
constexpr std::array<std::string_view, 3> kExchanges = {"none", "deepep", "mooncake"};
constexpr std::array<std::string_view, 7> kGrammars = {"xgrammar", "outlines", "llguidance",        "none",
                                                       "auto",     "guidance", "lm-format-enforcer"};
constexpr std::array<std::string_view, 7> kTasks = {"auto",     "generate", "embed", "embedding",
                                                    "classify", "score",    "reward"};

// Returns a function that takes one of `choices` and stores it in `to`.
CommandFlags::Take choice_of(std::span<const std::string_view> choices, std::string& to) {
  return [choices, &to](const std::string& flag, const std::string& text) {
    to = choices[TRY(parse_choice(flag, text, choices))];
    return ok_status();
  };
}

// The values of --quantization, as SGLang and vLLM name them: formats of stored checkpoints, and formats to which a
// checkpoint may be quantised. "none" and "auto" have no effect.
constexpr std::array<std::string_view, 19> kFormats = {
    "none",     "fp8",          "int8",         "int4",     "nvfp4",       "fbgemm_fp8", "compressed-tensors",
    "modelopt", "modelopt_fp8", "modelopt_fp4", "gptq",     "gptq_marlin", "awq",        "awq_marlin",
    "mxfp4",    "quark",        "w8a8_int8",    "w8a8_fp8", "auto"};

// Returns whether a flag that turns off chunked prefill was given, in either spelling.
bool asks_for_whole_prompts(const ForeignFlags& foreign) {
  return foreign.no_chunked_prefill || !foreign.chunked_prefill;
}

bool asks_for_embeddings(const ForeignFlags& foreign) { return foreign.task == "embed" || foreign.task == "embedding"; }

// Returns a function that takes a number above 0.
CommandFlags::Take positive(std::optional<double>& to) {
  return [&to](const std::string& flag, const std::string& text) {
    to = TRY(parse_number(flag, text));
    if (*to > 0) return ok_status();
    return invalid_argument(fmt::format("{}: {} is not accepted; a number above 0 is", flag, text));
  };
}

bool has_exchange(const ForeignFlags& foreign) {
  return !foreign.moe_a2a_backend.empty() && foreign.moe_a2a_backend != "none";
}

// Returns the first given flag that asks for expert parallelism (each rank holds whole experts). Returns "" if no such
// flag was given.
std::string whole_experts_flag(const ForeignFlags& foreign) {
  if (foreign.expert_parallel) return "--enable-expert-parallel";
  if (foreign.ep_moe) return "--enable-ep-moe";
  if (foreign.deepep_moe) return "--enable-deepep-moe";
  return has_exchange(foreign) ? "--moe-a2a-backend " + foreign.moe_a2a_backend : "";
}

}  // namespace

void add_foreign_flags(CommandFlags& add, ForeignFlags& foreign) {
  add.group("Launch commands of SGLang and vLLM");
  add.value("--schedule-policy,--scheduling-policy", "fcfs|priority|lpm|random|lof|dfs-weight|routing-key",
            "fcfs, priority: requests run by priority, then in order of arrival; other values only warn",
            choice_of(kPolicies, foreign.schedule_policy));
  add.value("--grammar-backend,--guided-decoding-backend", "xgrammar|outlines|llguidance|none",
            "xgrammar constrains outputs; other values only warn", choice_of(kGrammars, foreign.grammar_backend));
  add.text("--attention-backend", "NAME", "warns: kernels are chosen by device and shape", foreign.attention_backend);
  add.value("--schedule-conservativeness", "X", "warns: requests are admitted as the KV cache has room",
            positive(foreign.conservativeness));
  add.value("--watchdog-timeout", "X", "warns: there is no watchdog; /health_generate tells a server that hangs",
            positive(foreign.watchdog_s));
  add.value("--gpu-memory-utilization", "X",
            "taken as --mem-fraction-static, 0.1 to 0.95; warns: activations and graphs come on top",
            [&foreign](const std::string& flag, const std::string& text) {
              foreign.memory_utilization = TRY(parse_number(flag, text));
              if (*foreign.memory_utilization >= 0.1 && *foreign.memory_utilization <= 0.95) return ok_status();
              return invalid_argument(fmt::format("{}: {} is not accepted; 0.1 to 0.95 is", flag, text));
            });
  add.flag("--disable-overlap-schedule", "a step is scheduled only when the one before it is done",
           foreign.disable_overlap);
  add.flag("--enable-expert-parallel", "--ep-size with --tp-size's number", foreign.expert_parallel);
  add.flag("--enable-ep-moe", "the same", foreign.ep_moe);
  add.flag("--enable-deepep-moe", "the same", foreign.deepep_moe);
  add.value("--moe-a2a-backend", "none|deepep|mooncake",
            "any value except none sets --ep-size to --tp-size's number; warns: there is no all-to-all",
            choice_of(kExchanges, foreign.moe_a2a_backend));
  add.flag("--enable-prefix-caching", "on by default; =false means --disable-radix-cache", foreign.prefix_caching);
  add.flag("--enable-chunked-prefill", "on by default; =false means --chunked-prefill-size -1",
           foreign.chunked_prefill);
  add.flag("--no-enable-chunked-prefill", "--chunked-prefill-size -1", foreign.no_chunked_prefill);
  add.value("--task", "auto|generate|embed|classify|score|reward",
            "embed means --is-embedding; otherwise the model's files decide", choice_of(kTasks, foreign.task));
  add.value("--quantization", "none|fp8|int8|int4|nvfp4|gptq|awq|compressed-tensors|modelopt|…",
            "fp8, int8, int4 and nvfp4 quantise a checkpoint that is not quantised; another format than a quantised "
            "checkpoint's is refused",
            choice_of(kFormats, foreign.quantization));
  add_ineffective_flags(add, foreign.ineffective);
}

Status finish_foreign_flags(const ForeignFlags& foreign, EngineOptions& engine) {
  if (foreign.memory_utilization) {
    if (engine.mem_fraction_static != 0)
      return invalid_argument("--gpu-memory-utilization is an alias of --mem-fraction-static; give only one of them");
    engine.mem_fraction_static = *foreign.memory_utilization;
  }
  if (const std::string flag = whole_experts_flag(foreign); !flag.empty()) {
    if (foreign.ep_size && *foreign.ep_size != engine.tp_size)
      return invalid_argument(fmt::format("--ep-size {} contradicts {}, which sets --ep-size to --tp-size ({})",
                                          *foreign.ep_size, flag, engine.tp_size));
    engine.ep_size = engine.tp_size;
  }
  if (foreign.quantization != "none" && foreign.quantization != "auto") engine.quantization = foreign.quantization;
  if (foreign.disable_overlap) engine.overlap_schedule = false;
  if (!foreign.prefix_caching) engine.disable_radix_cache = true;
  if (asks_for_whole_prompts(foreign) && engine.chunked_prefill_size == 0) engine.chunked_prefill_size = kWholePrompts;
  if (foreign.task == "generate" && engine.is_embedding)
    return invalid_argument("--task generate and --is-embedding ask for opposites; accepted: one of them");
  if (asks_for_embeddings(foreign)) engine.is_embedding = true;
  return ok_status();
}

void warn_about_foreign_flags(const ForeignFlags& foreign, const EngineOptions& engine,
                              std::vector<std::string>& warnings) {
  if (!foreign.attention_backend.empty())
    warnings.push_back(
        fmt::format("--attention-backend {} has no effect: attention kernels are chosen by device and "
                    "shape",
                    foreign.attention_backend));
  const std::string& policy = foreign.schedule_policy;
  if (!policy.empty() && policy != "fcfs" && policy != "priority")
    warnings.push_back(
        fmt::format("--schedule-policy {} has no effect: requests are taken by priority, then in order "
                    "of arrival (fcfs)",
                    policy));
  const std::string& grammar = foreign.grammar_backend;
  if (!grammar.empty() && grammar != "xgrammar" && grammar != "auto")
    warnings.push_back(
        fmt::format("--grammar-backend {} has no effect: xgrammar constrains outputs where a request asks", grammar));
  const std::string whole_experts = whole_experts_flag(foreign);
  const int expert_ranks = ranks_of_layers(engine);
  if (!whole_experts.empty() && expert_ranks == 1)
    warnings.push_back(
        fmt::format("{} has no effect with --tp-size 1: the one rank has all experts whole", whole_experts));
  if (has_exchange(foreign) && expert_ranks > 1)
    warnings.push_back(
        fmt::format("--moe-a2a-backend {} sets --ep-size to --tp-size's number, without an all-to-all: every rank {}",
                    foreign.moe_a2a_backend,
                    engine.dp_attention ? "gets the rows of all, and the sums of its own"
                                        : "has all tokens, so that an all-reduce joins the experts"));
  if (foreign.conservativeness)
    warnings.emplace_back(
        "--schedule-conservativeness has no effect: requests are admitted as the KV cache has room, and the last one "
        "waits where that runs out");
  if (foreign.watchdog_s)
    warnings.emplace_back(
        "--watchdog-timeout has no effect: there is no watchdog; /health_generate tells a server that hangs");
  if (asks_for_whole_prompts(foreign) && engine.chunked_prefill_size != kWholePrompts)
    warnings.push_back(
        fmt::format("{} has no effect beside --chunked-prefill-size {}: a longer prompt takes several forwards",
                    foreign.no_chunked_prefill ? "--no-enable-chunked-prefill" : "--enable-chunked-prefill=false",
                    engine.chunked_prefill_size));
  if (foreign.task == "classify" || foreign.task == "score" || foreign.task == "reward")
    warnings.push_back(fmt::format(
        "--task {} has no effect: the model's config.json decides whether it is a classifier", foreign.task));
  warn_about_ineffective_flags(foreign.ineffective, warnings);
  if (foreign.memory_utilization)
    warnings.push_back(
        fmt::format("--gpu-memory-utilization is taken as --mem-fraction-static {}: the share of weights "
                    "and KV cache; activations and graphs come on top",
                    *foreign.memory_utilization));
}

}  // namespace tessera
