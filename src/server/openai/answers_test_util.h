// Builds the events of requests and reads the JSON of answers. For tests only.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "tessera/server/openai/chat_answer.h"
#include "tessera/server/openai/completion_answer.h"
#include "tessera/server/openai/generate_answer.h"
#include "tessera/server/test_model.h"

namespace tessera::test {

inline TokenId token(const char* text) {
  const std::optional<TokenId> id = demo_tokenizer().token_to_id(text);
  EXPECT_TRUE(id.has_value()) << text;
  return id.value_or(TokenId(0));
}

// Returns the event of one token: its text and, with `logprobs`, its log-probabilities.
inline RequestEvent step(const char* text, TokenId id = TokenId(1), bool logprobs = false) {
  RequestEvent event{.token = id, .text = text};
  if (logprobs) event.logprobs = TokenLogprobs{.token = {id, -0.5f}, .top = {{id, -0.5f}, {TokenId(2), -1.5f}}};
  return event;
}
inline RequestEvent last(const char* text, FinishReason reason) { return {.text = text, .finish = reason}; }

// Returns what a stream sends for the event.
inline std::string on_event(Answer& answer, std::size_t index, const RequestEvent& event, Completion* end) {
  std::string stream;
  answer.on_event(index, event, end, stream);
  return stream;
}

inline Completion end_of(std::int64_t tokens, std::int64_t prompt, std::int64_t cached) {
  return {.output_ids = std::vector<TokenId>(static_cast<std::size_t>(tokens), TokenId(1)),
          .prompt_tokens = prompt,
          .cached_tokens = cached};
}

inline Json parsed(const std::string& text) {
  Result<Json> json = Json::parse(text, "answer");
  EXPECT_TRUE(json.ok()) << json.status().message() << "\n" << text;
  return json.ok() ? *std::move(json) : Json();
}

// Returns the JSON of each server-sent event.
inline std::vector<Json> events(const std::string& stream) {
  std::vector<Json> out;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t end = stream.find("\n\n", at);
    EXPECT_EQ(stream.substr(at, 6), "data: ");
    EXPECT_NE(end, std::string::npos);
    out.push_back(parsed(stream.substr(at + 6, end - at - 6)));
    at = end + 2;
  }
  return out;
}

// A server-sent event with an event name. The member "type" of its data repeats the name.
struct NamedEvent {
  std::string type;
  Json data;
};
// Returns a stream's server-sent events. Every event must have a name.
inline std::vector<NamedEvent> named_events(const std::string& stream) {
  std::vector<NamedEvent> out;
  for (std::size_t at = 0; at < stream.size();) {
    const std::size_t line = stream.find('\n', at);
    const std::size_t end = stream.find("\n\n", at);
    EXPECT_NE(end, std::string::npos) << stream;
    EXPECT_EQ(stream.substr(at, 7), "event: ");
    EXPECT_EQ(stream.substr(line + 1, 6), "data: ");
    out.push_back({stream.substr(at + 7, line - at - 7), parsed(stream.substr(line + 7, end - line - 7))});
    EXPECT_EQ(*out.back().data.find("type"), Json(out.back().type));
    at = end + 2;
  }
  return out;
}

// Returns the value at `path`: keys and indices separated by dots ("choices.0.message.content").
inline Json at(const Json& json, const std::string& path) {
  const std::size_t dot = path.find('.');
  const std::string key = path.substr(0, dot);
  const Json* next = nullptr;
  if (json.is_array()) {
    const auto index = static_cast<std::size_t>(std::stoi(key));
    if (index < json.as_array().size()) next = &json.as_array()[index];
  } else {
    next = json.find(key);
  }
  if (next == nullptr) return Json("nothing at " + path);
  return dot == std::string::npos ? *next : at(*next, path.substr(dot + 1));
}

inline ChatStyle chat_style(bool stream) {
  return {.id = "chatcmpl-1",
          .model = "demo",
          .stream = {.stream = stream},
          .prompt_tokens = 5,
          .tokenizer = &demo_tokenizer()};
}

inline CompletionStyle completion_style(bool stream) {
  return {.id = "cmpl-1",
          .model = "demo",
          .stream = {.stream = stream},
          .prompt_tokens = {7},
          .tokenizer = &demo_tokenizer()};
}

inline GenerateStyle generate_style(bool stream) {
  return {.choices = {{.id = "r1", .last_prompt_id = token("a"), .prompt_tokens = 2, .logprobs = true}},
          .stream = stream,
          .text_in_logprobs = true,
          .tokenizer = &demo_tokenizer(),
          .hidden_size = 2};
}

}  // namespace tessera::test
