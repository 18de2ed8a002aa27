#include "tessera/server/openai/sampling_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "tessera/server/api_job.h"
#include "tessera/server/fields/retention_fields.h"
#include "tessera/server/work/text_work.h"

namespace tessera {
namespace {

constexpr std::int64_t kMaxInt = std::numeric_limits<std::int32_t>::max();
constexpr double kMaxTimeout = 1e9;

ApiStatus read_choice_of_token(const ApiFields& fields, const ServedModel& model, SamplingParams& out) {
  const GenerationConfig& defaults = model.generation;
  const bool greedy = defaults.do_sample == false;
  out.temperature = greedy ? 0 : defaults.temperature.value_or(1);
  if (const auto v = TRY(fields.number("temperature", 0, 100))) out.temperature = *v;
  out.top_k = std::max<std::int64_t>(defaults.top_k.value_or(0), 0);
  if (const auto v = TRY(fields.integer("top_k", -1, kMaxInt))) out.top_k = std::max<std::int64_t>(*v, 0);
  out.top_p = defaults.top_p.value_or(1);
  if (const auto v = TRY(fields.number("top_p", 0, 1))) out.top_p = *v;
  if (out.top_p <= 0) return fields.wrong("top_p", "a number in (0, 1]");
  out.min_p = defaults.min_p.value_or(0);
  if (const auto v = TRY(fields.number("min_p", 0, 1))) out.min_p = *v;
  out.repetition_penalty = defaults.repetition_penalty.value_or(1);
  if (const auto v = TRY(fields.number("repetition_penalty", 0, 10))) out.repetition_penalty = *v;
  if (out.repetition_penalty <= 0) return fields.wrong("repetition_penalty", "a number in (0, 10]");
  if (const auto v = TRY(fields.number("frequency_penalty", -2, 2))) out.frequency_penalty = *v;
  if (const auto v = TRY(fields.number("presence_penalty", -2, 2))) out.presence_penalty = *v;
  constexpr auto kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr auto kGreatest = std::numeric_limits<std::int64_t>::max();
  out.seed = TRY(fields.integer_of({"seed", "sampling_seed"}, kLeast, kGreatest));
  if (!out.seed) out.seed = model.seeds->draw();  // all choices of the request share it
  return api_ok();
}

ApiStatus read_logit_bias(const ApiFields& fields, std::int64_t vocab_size, SamplingParams& out) {
  const Json* bias = TRY(fields.object("logit_bias"));
  if (bias == nullptr) return api_ok();
  const std::string accepted = fmt::format(
      "at most {} token ids in [0, {}] as strings, each with a number in [-100, 100]", kMaxLogitBias, vocab_size - 1);
  if (bias->as_object().size() > kMaxLogitBias) return fields.wrong("logit_bias", accepted);
  for (const auto& [key, value] : bias->as_object()) {
    std::int32_t id = -1;
    const char* end = key.data() + key.size();
    const std::from_chars_result read = std::from_chars(key.data(), end, id);
    const bool known = read.ec == std::errc() && read.ptr == end && id >= 0 && id < vocab_size;
    if (!known || !value.is_number() || !(value.as_double() >= -100 && value.as_double() <= 100)) {
      return invalid_field(fields.param("logit_bias"),
                           fmt::format("request: field \"{}\" has \"{}\": {}; accepted: {}", fields.param("logit_bias"),
                                       clip_text(key), shown_value(&value), accepted));
    }
    out.logit_bias.emplace_back(TokenId(id), static_cast<float>(value.as_double()));
  }
  return api_ok();
}

std::vector<TokenId> without_repeats(std::vector<TokenId> ids) {
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

// Reads bad words. Each word is banned both without and with a space before it, because these are different tokens in
// most vocabularies.
ApiStatus read_bad_words(const ApiFields& fields, const ServedModel& model, SamplingParams& out) {
  const std::vector<std::string> words = TRY(fields.strings("bad_words"));
  if (words.empty()) return api_ok();
  if (words.size() > kMaxBadWords) return fields.wrong("bad_words", fmt::format("at most {} strings", kMaxBadWords));
  if (model.tokenizer == nullptr)
    return fields.unsupported("bad_words", "none, as the model was loaded without a tokenizer");
  const std::string param = fields.param("bad_words");
  for (const std::string& word : words) {
    const std::size_t begin = word.find_first_not_of(' ');
    if (begin == std::string::npos) return fields.wrong("bad_words", "strings that are not blank");
    for (const char* const before : {"", " "}) {
      std::vector<TokenId> ids = TRY(model.encode(before + word.substr(begin), /*add_special_tokens=*/false, param));
      if (ids.size() > kMaxBadWordTokens) {
        return fields.wrong("bad_words", fmt::format("strings of at most {} tokens", kMaxBadWordTokens));
      }
      const bool known = std::find(out.bad_words.begin(), out.bad_words.end(), ids) != out.bad_words.end();
      if (!ids.empty() && !known) out.bad_words.push_back(std::move(ids));
      if (out.bad_words.size() > kMaxBadWords) {
        return fields.wrong("bad_words", fmt::format("strings that come to at most {} sequences of tokens, each with "
                                                     "and without a space before it",
                                                     kMaxBadWords));
      }
    }
  }
  return api_ok();
}

ApiStatus read_token_limits(const ApiFields& fields, const ServedModel& model, SamplingParams& out) {
  TRY(read_bad_words(fields, model, out));
  out.allowed_tokens = without_repeats(TRY(fields.token_ids("allowed_token_ids", model.vocab_size)));
  if (fields.find("allowed_token_ids") != nullptr && out.allowed_tokens.empty()) {
    return fields.wrong("allowed_token_ids", fmt::format("at least one token id in [0, {}]", model.vocab_size - 1));
  }
  return api_ok();
}

ApiStatus read_stops(const ApiFields& fields, const ServedModel& model, OutputFields& out) {
  out.max_new_tokens = TRY(fields.integer_of({"max_completion_tokens", "max_tokens", "max_new_tokens"}, 0, kMaxInt));
  out.stop.min_new_tokens = TRY(fields.integer_of({"min_tokens", "min_new_tokens"}, 0, kMaxInt)).value_or(0);
  if (out.max_new_tokens && out.stop.min_new_tokens > *out.max_new_tokens) {
    return fields.wrong(fields.find("min_tokens") != nullptr ? "min_tokens" : "min_new_tokens",
                        fmt::format("at most the greatest number of tokens, {}", *out.max_new_tokens));
  }
  out.stop.texts = TRY(fields.strings("stop"));
  if (out.stop.texts.size() > kMaxStopTexts) {
    return fields.wrong("stop", fmt::format("at most {} strings", kMaxStopTexts));
  }
  for (const std::string& text : out.stop.texts) {
    if (text.empty()) return fields.wrong("stop", "strings that are not empty");
  }
  if (!out.stop.texts.empty() && model.tokenizer == nullptr) {
    return fields.unsupported("stop", "stop_token_ids, as the model was loaded without a tokenizer");
  }
  out.stop.ids = without_repeats(TRY(fields.token_ids("stop_token_ids", model.vocab_size)));
  out.stop.ignore_eos = TRY(fields.boolean_or("ignore_eos", false));
  out.stop.keep_matched = TRY(fields.boolean_of({"include_stop_str_in_output", "no_stop_trim"}, false));
  return api_ok();
}

}  // namespace

ApiResult<OutputFields> read_output_fields(const ApiFields& fields, const ServedModel& model) {
  OutputFields out;
  TRY(read_choice_of_token(fields, model, out.sampling));
  TRY(read_logit_bias(fields, model.vocab_size, out.sampling));
  TRY(read_token_limits(fields, model, out.sampling));
  TRY(read_stops(fields, model, out));
  if (const auto v = TRY(fields.integer("n", 1, kMaxChoices))) out.n = static_cast<int>(*v);
  const std::optional<std::int64_t> best_of = TRY(fields.integer("best_of", 1, kMaxChoices));
  if (best_of && *best_of != out.n) return fields.unsupported("best_of", "the value of \"n\"");
  out.grammar = TRY(read_output_grammar(fields, model.allow_unknown_fields));
  out.skip_special_tokens = TRY(fields.boolean_or("skip_special_tokens", true));
  if (const auto v = TRY(fields.integer("priority", -kMaxInt, kMaxInt))) out.priority = *v;
  if (const auto v = TRY(fields.number("timeout_s", 0, kMaxTimeout))) out.timeout_s = *v;
  out.retention = TRY(read_retention(fields));
  out.return_graph_info = TRY(fields.boolean_or("return_graph_info", false));
  return out;
}

ApiError no_tokens_asked(const ApiFields& fields, std::string_view accepted) {
  for (const std::string_view key : {"max_completion_tokens", "max_new_tokens"})
    if (fields.find(key) != nullptr) return fields.wrong(key, accepted);
  return fields.wrong("max_tokens", accepted);
}

ApiStatus check_metadata(const ApiFields& fields) {
  constexpr std::size_t kMostPairs = 16;
  constexpr std::size_t kMostOfKey = 64;  // in characters
  constexpr std::size_t kMostOfValue = 512;
  const Json* metadata = TRY(fields.object("metadata"));
  if (metadata == nullptr) return api_ok();
  // Counts the bytes that begin a character. All further bytes of a character begin with the bits 10.
  const auto characters = [](std::string_view text) {
    return static_cast<std::size_t>(std::ranges::count_if(text, [](char c) { return (c & 0xc0) != 0x80; }));
  };
  const std::string param = fields.param("metadata");
  const Json::Object& pairs = metadata->as_object();
  if (pairs.size() > kMostPairs)
    return invalid_field(param, fmt::format("request: field \"{}\" has {} pairs; accepted: at most {}", param,
                                            pairs.size(), kMostPairs));
  for (const auto& [key, value] : pairs) {
    if (characters(key) > kMostOfKey)
      return invalid_field(param, fmt::format("request: field \"{}\" has the key \"{}\"; accepted: keys of at most {} "
                                              "characters",
                                              param, clip_text(key), kMostOfKey));
    if (!value.is_string() || characters(value.as_string()) > kMostOfValue)
      return ApiFields(*metadata, param + ".")
          .wrong(key, fmt::format("a string of at most {} characters", kMostOfValue));
  }
  return api_ok();
}

ApiStatus check_attached(const ApiFields& fields, std::string_view key) {
  constexpr std::size_t kMostPairs = 64;
  constexpr std::size_t kMostBytes = 16 << 10;
  const Json* attached = TRY(fields.object(key));
  if (attached == nullptr) return api_ok();
  const std::size_t pairs = attached->as_object().size();
  if (pairs <= kMostPairs && attached->dump().size() <= kMostBytes) return api_ok();
  return invalid_field(fields.param(key),
                       fmt::format("request: field \"{}\" has {} pairs; accepted: at most {}, of {} bytes as JSON", key,
                                   pairs, kMostPairs, kMostBytes));
}

ApiResult<std::shared_ptr<const Grammar>> compile_grammar(const std::optional<OutputGrammar>& grammar,
                                                          const OutputFields& output, const ServedModel& model) {
  if (!grammar) return std::shared_ptr<const Grammar>();
  if (!output.sampling.allowed_tokens.empty()) {
    return invalid_field(grammar->param, fmt::format("\"allowed_token_ids\" and \"{}\" both constrain the output; "
                                                     "accepted: one of them",
                                                     grammar->param));
  }
  if (model.grammars == nullptr) {
    return unsupported_field(grammar->param,
                             "this server cannot constrain its output: it has no grammars, or no tokenizer");
  }
  if (std::shared_ptr<const Grammar> kept = model.grammars->find(grammar->spec)) return kept;
  TRY(take_on(TextWork::kGrammars));
  Result<std::shared_ptr<const Grammar>> compiled = model.grammars->compile(grammar->spec);
  if (compiled.ok()) return *std::move(compiled);
  const std::string message = grammar_error(*grammar, compiled.status().message());
  switch (compiled.status().code()) {
    case StatusCode::kUnimplemented: return unsupported_field(grammar->param, message);
    case StatusCode::kInvalidArgument: return invalid_field(grammar->param, message);
    default: return api_error(compiled.status(), grammar->param);
  }
}

ApiResult<std::string> read_answer_id(const ApiFields& fields, std::string_view prefix) {
  constexpr std::size_t kMaxIdBytes = 256;
  const std::optional<std::string> request_id = TRY(fields.string("request_id"));
  const std::optional<std::string> rid = TRY(fields.string("rid"));
  if (request_id && rid) return fields.unsupported("rid", "none beside \"request_id\"");
  if (!request_id && !rid) return make_id(prefix);
  const std::string& given = request_id ? *request_id : *rid;
  if (given.empty() || given.size() > kMaxIdBytes) {
    return fields.wrong(request_id ? "request_id" : "rid", fmt::format("a string of 1 to {} bytes", kMaxIdBytes));
  }
  return request_id ? std::string(prefix) + given : given;
}

ApiResult<TokenExtras> read_token_extras(const ApiFields& fields, bool stream) {
  TokenExtras out;
  const std::optional<std::int64_t> top = TRY(fields.integer("prompt_logprobs", 0, kMaxTopLogprobs));
  if (top) out.prompt_logprobs = static_cast<int>(*top);
  const Json* states = fields.find("return_hidden_states");
  if (states != nullptr && *states == Json("last")) {
    out.hidden_states = true;
  } else if (states != nullptr) {
    if (!states->is_bool()) return fields.wrong("return_hidden_states", "true, false or \"last\"");
    out.hidden_states = states->as_bool();
  }
  if (stream && top) return fields.unsupported("prompt_logprobs", "none where \"stream\" is true");
  if (stream && out.hidden_states) {
    return fields.unsupported("return_hidden_states", "false where \"stream\" is true");
  }
  out.tokens_as_ids = TRY(fields.boolean_or("return_tokens_as_token_ids", false));
  return out;
}

std::int64_t ids_of_parameters(const OutputFields& output) {
  const SamplingParams& sampling = output.sampling;
  std::int64_t count =
      std::ssize(sampling.allowed_tokens) + std::ssize(sampling.logit_bias) + std::ssize(output.stop.ids);
  for (const std::vector<TokenId>& word : sampling.bad_words) count += std::ssize(word);
  return count;
}

void append_choices(const OutputFields& output, const Request& request, std::vector<Request>& requests) {
  for (int choice = 0; choice < output.n; ++choice) {
    requests.push_back(request);
    requests.back().sampling.choice = choice;
  }
}

}  // namespace tessera
