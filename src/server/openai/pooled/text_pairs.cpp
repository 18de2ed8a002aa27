#include "tessera/server/openai/pooled/text_pairs.h"

#include <fmt/format.h>

#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include "tessera/server/openai/pooled/sigmoid.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

Json message(std::string_view role, const std::string& text) {
  Json made = Json::object();
  made.set("role", role).set("content", text);
  return made;
}

// Renders a pair with the template from --chat-template. The template gets messages with the roles "query" and
// "document", as in vLLM. It also gets the variables `query` and `document`, as in SGLang.
ApiResult<std::string> render_pair(const ServedModel& model, const std::string& first, const std::string& second,
                                   const std::string& instruction) {
  Json messages = Json::array();
  messages.as_array().push_back(message("query", first));
  messages.as_array().push_back(message("document", second));
  RenderOptions options{.bos_token = model.bos_token, .eos_token = model.eos_token};
  options.extra.set("query", first).set("document", second);
  if (!instruction.empty()) options.extra.set("instruct", instruction).set("instruction", instruction);
  Result<std::string> text = model.chat->render(messages, options);
  if (!text.ok()) return invalid_field("query", text.status().message());
  return *std::move(text);
}

// Puts the texts of a pair in the places of "{query}" and "{document}". Placeholders in the texts stay as they are.
std::string filled(std::string_view form, const std::string& first, const std::string& second) {
  std::string text;
  while (!form.empty()) {
    bool found = false;
    for (const auto& [placeholder, value] : {std::pair<std::string_view, const std::string&>("{query}", first),
                                             std::pair<std::string_view, const std::string&>("{document}", second)}) {
      if (!form.starts_with(placeholder)) continue;
      text += value;
      form.remove_prefix(placeholder.size());
      found = true;
      break;
    }
    if (found) continue;
    text += form.front();
    form.remove_prefix(1);
  }
  return text;
}

// Joins the texts of a pair. Uses the first available one of these ways: by the template from --chat-template; by the
// text in the model's files that has placeholders for a query and a document; by the tokenizer's form for pairs; by
// concatenation.
ApiResult<std::vector<TokenId>> join(const ServedModel& model, const PooledFields& fields, const std::string& first,
                                     const PairSide& seconds, std::size_t pair, const std::string& instruction) {
  const std::string& second = seconds.texts[pair];
  if (model.joins_pairs_by_template) {
    const std::string text = TRY(render_pair(model, first, second, instruction));
    return model.encode(text, fields.add_special_tokens, seconds.param);
  }
  if (!model.pair_form.empty())
    return model.encode(filled(model.pair_form, first, second), fields.add_special_tokens, seconds.param);
  if (model.tokenizer == nullptr || !model.tokenizer->joins_pairs())
    return model.encode(first + second, fields.add_special_tokens, seconds.param);
  TRY(take_on_text(first.size() + second.size()));
  Result<std::vector<TokenId>> ids =
      model.tokenizer->encode_pair(first, second, {.add_special_tokens = fields.add_special_tokens});
  if (!ids.ok()) return invalid_field(seconds.param, ids.status().message());
  return *std::move(ids);
}

ApiStatus check_sides(const PairSide& firsts, const PairSide& seconds) {
  for (const PairSide* side : {&firsts, &seconds}) {
    for (std::size_t i = 0; i < side->texts.size(); ++i) {
      if (side->texts[i].empty())
        return invalid_field(side->param, fmt::format("request: field \"{}\": text {} is empty; accepted: texts of at "
                                                      "least one character",
                                                      side->param, i));
    }
  }
  if (firsts.texts.size() == 1 || firsts.texts.size() == seconds.texts.size()) return api_ok();
  return invalid_field(
      firsts.param,
      fmt::format("request: \"{}\" has {} texts and \"{}\" has {}; accepted: one text, or as many as the other has",
                  firsts.param, firsts.texts.size(), seconds.param, seconds.texts.size()));
}

double cosine(std::span<const float> a, std::span<const float> b) {
  double product = 0;
  double of_a = 0;
  double of_b = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const auto x = static_cast<double>(a[i]);
    const auto y = static_cast<double>(b[i]);
    product += x * y;
    of_a += x * x;
    of_b += y * y;
  }
  return of_a == 0 || of_b == 0 ? 0 : product / std::sqrt(of_a * of_b);
}

}  // namespace

ApiResult<std::string> read_instruction(const ApiFields& fields) {
  const std::optional<std::string> sglang = TRY(fields.string("instruct"));
  const std::optional<std::string> vllm = TRY(fields.string("instruction"));
  if (sglang && vllm && *sglang != *vllm) return fields.contradiction("instruction", "instruct");
  return sglang ? *sglang : vllm.value_or("");
}

ApiResult<PairScores> PairScores::create(const ServedModel& model, const PooledFields& fields, const PairSide& firsts,
                                         const PairSide& seconds, const std::string& instruction) {
  TRY(model.check_scores_pairs());
  TRY(check_sides(firsts, seconds));
  const bool names_instruction =
      model.joins_pairs_by_template && (model.chat->names("instruct") || model.chat->names("instruction"));
  if (!instruction.empty() && !names_instruction) {
    return unsupported_field("instruction",
                             "request: an instruction is given; accepted: none, because no --chat-template uses "
                             "\"instruct\" or \"instruction\"");
  }
  PairScores made;
  made.embeds_ = model.embedding.has_value();
  made.use_sigmoid_ = fields.use_activation.value_or(true) && model.label_scale != LabelScale::kRaw;
  made.num_firsts_ = firsts.texts.size();
  made.num_pairs_ = seconds.texts.size();
  FanOut fan_out;
  const auto add = [&](std::vector<TokenId> ids, const std::string& param) -> ApiStatus {
    Request request = TRY(fields.make_request(std::move(ids), model, param));
    TRY(fan_out.add(1, std::ssize(request.prompt), param));
    if (made.embeds_) {
      request.pooling = model.embedding->pooling;
    } else {
      request.score = true;
      request.score_from = std::ssize(request.prompt) - 1;
    }
    made.requests_.push_back(std::move(request));
    return api_ok();
  };
  if (made.embeds_) {
    for (const PairSide* side : {&firsts, &seconds})
      for (const std::string& text : side->texts)
        TRY(add(TRY(model.encode(text, fields.add_special_tokens, side->param)), side->param));
  } else {
    for (std::size_t i = 0; i < made.num_pairs_; ++i) {
      const std::string& first = firsts.texts[firsts.texts.size() == 1 ? 0 : i];
      TRY(add(TRY(join(model, fields, first, seconds, i, instruction)), seconds.param));
    }
  }
  made.results_.resize(made.requests_.size());
  return made;
}

void PairScores::take(std::size_t index, Completion& end) {
  usage_.add(end);
  results_[index] = std::move(embeds_ ? end.pooled : end.logits);
}

double PairScores::score(std::size_t pair) const {
  if (embeds_) return cosine(results_[num_firsts_ == 1 ? 0 : pair], results_[num_firsts_ + pair]);
  const auto logit = static_cast<double>(results_[pair].front());
  return use_sigmoid_ ? sigmoid(logit) : logit;
}

}  // namespace tessera
