#include "tessera/server/fields/prompts.h"

#include <fmt/format.h>

#include <algorithm>

namespace tessera {
namespace {

// The limits for one HTTP request: how many engine requests it may make, and how many token ids these may have in
// total. 16 Mi ids of 4 bytes each take 64 MiB.
constexpr std::int64_t kMaxRequestsAtOnce = 1024;
constexpr std::int64_t kMaxTokensAtOnce = 16 << 20;
constexpr std::string_view kAccepted = "a string, a list of token ids, or a list of either, not empty";

}  // namespace

ApiResult<Prompts> read_prompts(const ApiFields& fields, std::string_view key, const ServedModel& model,
                                bool add_special_tokens) {
  const std::string param = fields.param(key);
  const auto ids_of = [&](const Json& json) -> ApiResult<std::vector<TokenId>> {
    std::vector<TokenId> ids;
    ids.reserve(json.as_array().size());
    for (const Json& id : json.as_array()) {
      if (!id.is_int() || id.as_int() < 0 || id.as_int() >= model.vocab_size) {
        return invalid_field(param, fmt::format("request: field \"{}\" has the id {}; accepted: integers in [0, {}]",
                                                param, shown_value(&id), model.vocab_size - 1));
      }
      ids.emplace_back(static_cast<std::int32_t>(id.as_int()));
    }
    return ids;
  };

  const Json* value = fields.find(key);
  Prompts prompts;
  if (value != nullptr && value->is_string()) {
    prompts.ids.push_back(TRY(model.encode(value->as_string(), add_special_tokens, param)));
    return prompts;
  }
  if (value == nullptr || !value->is_array() || value->as_array().empty()) return fields.wrong(key, kAccepted);
  const Json& first = value->as_array().front();
  if (first.is_number()) {
    prompts.ids.push_back(TRY(ids_of(*value)));
    return prompts;
  }
  prompts.batch = true;
  // Checks the number of prompts before they are tokenised.
  if (std::ssize(value->as_array()) > kMaxRequestsAtOnce) {
    return invalid_field(param, fmt::format("request: field \"{}\" has {} prompts; accepted: up to {}", param,
                                            value->as_array().size(), kMaxRequestsAtOnce));
  }
  for (const Json& prompt : value->as_array()) {
    if (prompt.is_string()) {
      prompts.ids.push_back(TRY(model.encode(prompt.as_string(), add_special_tokens, param)));
    } else if (prompt.is_array()) {
      prompts.ids.push_back(TRY(ids_of(prompt)));
    } else {
      return fields.wrong(key, kAccepted);
    }
  }
  return prompts;
}

void Truncation::apply(std::vector<TokenId>& prompt) const {
  if (!most || std::ssize(prompt) <= *most) return;
  const auto cut = static_cast<std::ptrdiff_t>(std::ssize(prompt) - *most);
  if (keeps_first) {
    prompt.erase(prompt.end() - cut, prompt.end());
  } else {
    prompt.erase(prompt.begin(), prompt.begin() + cut);
  }
}

ApiResult<Truncation> read_truncation(const ApiFields& fields, const ServedModel& model,
                                      std::optional<std::int64_t> asked) {
  Truncation out;
  const std::optional<std::string> side = TRY(fields.string("truncation_side"));
  if (side && *side != "left" && *side != "right") return fields.wrong("truncation_side", R"("left" or "right")");
  out.keeps_first = side == "right";
  out.most = TRY(fields.integer("truncate_prompt_tokens", -1, model.context_length));
  if (out.most == 0) return fields.wrong("truncate_prompt_tokens", fmt::format("-1 or 1 to {}", model.context_length));
  if (out.most == -1)
    out.most = std::max<std::int64_t>(model.context_length - std::max<std::int64_t>(asked.value_or(1), 0), 1);
  return out;
}

ApiStatus FanOut::add(int n, std::int64_t ids, const std::string& param) {
  requests_ += n;
  ids_ += ids * n;
  if (requests_ <= kMaxRequestsAtOnce && ids_ <= kMaxTokensAtOnce) return api_ok();
  return invalid_field(param,
                       fmt::format("at least {} texts are requested at once, for which at least {} token ids are "
                                   "kept (prompts, and ids in parameters); accepted: up to {} texts and {} "
                                   "token ids",
                                   requests_, ids_, kMaxRequestsAtOnce, kMaxTokensAtOnce));
}

}  // namespace tessera
