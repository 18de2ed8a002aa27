// Writes a request as text. The text contains all fields that the engine gets, and the answer to a fixed sequence of
// events. Two requests with equal texts are therefore equal in every respect. For tests only.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <regex>
#include <string>
#include <vector>

#include "tessera/engine/grammar/grammar.h"
#include "tessera/image/patches.h"
#include "tessera/server/api_job.h"
#include "tessera/server/api_result.h"

namespace tessera::test {

inline std::vector<int> numbers(std::span<const TokenId> ids) {
  std::vector<int> out;
  for (const TokenId id : ids) out.push_back(id.value());
  return out;
}

// Returns up to 24 token ids. Each is the lowest id that the grammar allows after the ids before it.
inline std::string dump_grammar(const std::shared_ptr<const Grammar>& grammar) {
  if (grammar == nullptr) return "none";
  GrammarMatcher matcher(grammar);
  std::vector<std::uint32_t> mask(64);
  std::vector<int> ids;
  while (ids.size() < 24) {
    matcher.fill_mask(mask);
    int id = 0;
    while (id < 2048 && (mask[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1U) == 0) ++id;
    ids.push_back(id);
    if (!matcher.accept(TokenId(id)).ok()) break;
  }
  return fmt::format("{}", ids);
}

inline std::string dump_request(const Request& r) {
  const SamplingParams& s = r.sampling;
  std::string out = fmt::format("prompt {} embeds {}\n", numbers(r.prompt), r.input_embeds);
  for (const PromptImage& image : r.images)
    out += fmt::format("image {} {} {}\n", image.first_token, image.patches->tokens(), image.patches->content.hex());
  out += fmt::format("sampling {} {} {} {} {} {} {} seed {} choice {}\n", s.temperature, s.top_k, s.top_p, s.min_p,
                     s.repetition_penalty, s.frequency_penalty, s.presence_penalty, s.seed.value_or(-1), s.choice);
  for (const auto& [id, bias] : s.logit_bias) out += fmt::format("bias {} {}\n", id.value(), bias);
  for (const std::vector<TokenId>& word : s.bad_words) out += fmt::format("bad {}\n", numbers(word));
  out += fmt::format("allowed {}\n", numbers(s.allowed_tokens));
  out += fmt::format("stop {} {} {} {} {} {}\n", r.stop.max_new_tokens, r.stop.min_new_tokens, r.stop.texts,
                     numbers(r.stop.ids), r.stop.ignore_eos, r.stop.keep_matched);
  out += fmt::format("logprobs {} {} {}\n", r.logprobs.output.value_or(-1), r.logprobs.prompt.value_or(-1),
                     r.logprobs.prompt_start);
  out += fmt::format("retention \"{}\" {} {}\n", r.retention.session, r.retention.seconds.value_or(-1),
                     r.retention.priority.value_or(-1));
  out += fmt::format("grammar {}\n", dump_grammar(r.grammar));
  return out + fmt::format("{} {} {} {} from {} pooling {} priority {} timeout {}\n", r.return_hidden_states,
                           r.return_graph_info, r.skip_special_tokens, r.score, r.score_from, pooling_name(r.pooling),
                           r.priority, r.timeout_s);
}

inline TokenLogprobs logprobs_of(int id) {
  return {.token = {TokenId(id), -0.5F}, .top = {{TokenId(id), -0.5F}, {TokenId(9), -1.5F}}};
}

// Ends a request that generates nothing. The vectors and logits of the result depend on the prompt's length.
inline void end_one(Answer& answer, std::size_t index, const Request& request, std::string& stream) {
  Completion end{.prompt_tokens = std::ssize(request.prompt)};
  const auto tokens = static_cast<float>(request.prompt.size());
  if (request.pooling != Pooling::kNone) end.pooled = {1, tokens, -2, 0.5F};
  if (request.score) {
    end.logits.resize(2048);
    for (std::size_t i = 0; i < end.logits.size(); ++i)
      end.logits[i] = static_cast<float>((i * 5 + request.prompt.size() * 3) % 7) / 4;
  }
  answer.on_event(index, {.finish = FinishReason::kLength}, &end, stream);
}

// Gives the answer a text with reasoning and two calls, and all other results that the request asks for.
inline void answer_one(Answer& answer, std::size_t index, const Request& request, std::string& stream) {
  constexpr const char* kCall = "<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>";
  Completion end{.prompt_tokens = std::ssize(request.prompt)};
  for (const char* const text : {"<think>r</think>x", kCall, kCall}) {
    RequestEvent event{.token = TokenId(7), .text = text};
    if (request.logprobs.output) event.logprobs = logprobs_of(7);
    end.output_ids.emplace_back(7);
    if (event.logprobs) end.output_logprobs.push_back(*event.logprobs);
    answer.on_event(index, event, nullptr, stream);
  }
  if (request.logprobs.prompt) {
    end.prompt_logprobs.push_back({.token = {request.prompt[0], std::nanf("")}});
    for (std::size_t i = 1; i < request.prompt.size(); ++i)
      end.prompt_logprobs.push_back(logprobs_of(request.prompt[i].value()));
  }
  if (request.return_hidden_states) end.hidden_states.assign((request.prompt.size() + 2) * 4, 0.25F);
  answer.on_event(index, {.finish = FinishReason::kStop}, &end, stream);
}

// Dumps the job. Random ids and times are left out.
inline std::string dump_job(ApiJob& job) {
  std::string stream;
  std::string out;
  for (std::size_t i = 0; i < job.requests.size(); ++i) {
    out += dump_request(job.requests[i]);
    if (job.requests[i].generates()) {
      answer_one(*job.answer, i, job.requests[i], stream);
    } else {
      end_one(*job.answer, i, job.requests[i], stream);
    }
  }
  out += job.stream ? stream + job.answer->last_events() : job.answer->body();
  static const std::regex drawn("[0-9a-f]{32}|\"(created|created_at|completed_at)\":[0-9]+|\"created_at\":\"[^\"]*\"");
  return std::regex_replace(out, drawn, "_");
}

}  // namespace tessera::test
