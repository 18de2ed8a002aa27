#include "tessera/options/draft_flags.h"

#include <fmt/format.h>

#include "tessera/base/json.h"
#include "tessera/options/values.h"

namespace tessera {
namespace {

// Takes an algorithm. SGLang and vLLM call drafts from the text NGRAM and ngram.
Status take_algorithm(const std::string& flag, std::string_view text, EngineOptions& engine) {
  for (const std::string_view known : {"SUFFIX", "NGRAM", "suffix", "ngram"}) {
    if (text != known) continue;
    engine.drafts.from_text = true;
    return ok_status();
  }
  return unimplemented(
      fmt::format("{}: \"{}\" is not supported; speculative decoding by SUFFIX, also called NGRAM, is", flag, text));
}

// Takes vLLM's object, like {"method": "ngram", "num_speculative_tokens": 4}.
Status take_config(const std::string& flag, const std::string& text, EngineOptions& engine) {
  const Json config = TRY(Json::parse(text, flag));
  if (!config.is_object()) return invalid_argument(fmt::format("{}: {} is not accepted; an object is", flag, text));
  const Json* const method = config.find("method");
  if (method == nullptr || !method->is_string())
    return invalid_argument(
        fmt::format("{}: \"method\" is missing; speculative decoding by suffix or ngram is supported", flag));
  TRY(take_algorithm(flag + ", \"method\"", method->as_string(), engine));
  for (const auto& [key, value] : config.as_object()) {
    if (key == "method") continue;
    if (key != "num_speculative_tokens")
      return unimplemented(
          fmt::format("{}: \"{}\" is not supported; method and num_speculative_tokens are", flag, key));
    engine.drafts.most_tokens = TRY(parse_integer(flag + ", \"num_speculative_tokens\"", value.dump(), {1}));
  }
  return ok_status();
}

}  // namespace

void add_draft_flags(CommandFlags& add, EngineOptions& engine) {
  add.value("--speculative-algorithm", "SUFFIX|NGRAM",
            "drafts several tokens from a request's own text, and checks them in one forward",
            [&engine](const std::string& flag, const std::string& text) { return take_algorithm(flag, text, engine); });
  add.value("--speculative-num-draft-tokens", "N", "most drafts of a request in a forward, up to 64 (8)",
            [&engine](const std::string& flag, const std::string& text) {
              engine.drafts.most_tokens = TRY(parse_integer(flag, text, {1}));
              return ok_status();
            });
  add.value("--speculative-config", "JSON",
            "both as vLLM says it: {\"method\": \"ngram\", \"num_speculative_tokens\": 8}",
            [&engine](const std::string& flag, const std::string& text) { return take_config(flag, text, engine); });
}

}  // namespace tessera
