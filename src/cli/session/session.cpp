#include "tessera/cli/session/session.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <deque>

#include "tessera/cli/output.h"
#include "tessera/cli/session/failure_report.h"
#include "tessera/text/chat/chat_template.h"

namespace tessera::cli {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Returns a message's content. The images precede the text.
Json message_content(const std::string& text, std::size_t images) {
  if (images == 0) return text;
  Json parts = Json::array();
  Json image = Json::object();
  image.set("type", "image");
  for (std::size_t i = 0; i < images; ++i) parts.push_back(image);
  Json said = Json::object();
  said.set("type", "text").set("text", text);
  parts.push_back(std::move(said));
  return parts;
}

Result<std::string> render_chat(const Engine& engine, const std::string& text, std::size_t images) {
  const TokenizerConfig& config = engine.tokenizer_config();
  const std::string* source = config.find_template();
  if (source == nullptr)
    return not_found(
        "the model has no chat template (chat_template.jinja, chat_template.json or tokenizer_config.json), which "
        "--chat needs");
  const ChatTemplate chat = TRY(ChatTemplate::parse(*source));
  Json message = Json::object();
  message.set("role", "user").set("content", message_content(text, images));
  RenderOptions options;
  options.add_generation_prompt = true;
  options.bos_token = config.bos_token;
  options.eos_token = config.eos_token;
  return chat.render(Json(Json::Array{std::move(message)}), options);
}

// Returns the forward that ran between two readings of the counters.
ForwardRecord difference(const ForwardCounters& before, const ForwardCounters& after) {
  ForwardRecord record;
  for (const auto& [key, count] : after.by_key) {
    const ForwardCount* known = before.find(key);
    if (known != nullptr && known->forwards == count.forwards) continue;
    record.runner = key.runner;
    record.size = key.size;
    record.reason = key.reason;
  }
  record.tokens = after.tokens - before.tokens;
  record.padding = after.padded_tokens - before.padded_tokens;
  return record;
}

}  // namespace

Result<std::unique_ptr<Engine>> start_engine(const EngineOptions& options) {
  std::unique_ptr<Engine> engine = TRY(Engine::create(options));
  const std::string advice = explain_dropped_sizes(*engine->stats().graphs, options);
  if (!advice.empty()) write_error(advice);
  return engine;
}

bool progress_wanted() { return isatty(STDERR_FILENO) == 1; }

Result<std::vector<std::vector<TokenId>>> prompt_ids(const Engine& engine, const PromptOptions& prompt, bool chat) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (engine.tokenizer() == nullptr) {
    return not_found("the model has no tokenizer.json; give --tokenizer-path, or --input-ids instead of a text");
  }
  std::vector<std::string> texts = prompt.texts;
  std::string source = "--prompt";
  if (!prompt.file.empty()) {
    texts = {TRY(read_text_file(prompt.file))};
    source = prompt.file;
    if (texts[0].empty()) return invalid_argument(fmt::format("{}: the file is empty", prompt.file));
  }
  std::vector<std::vector<TokenId>> ids;
  for (const std::string& text : texts) {
    const std::string rendered = chat ? TRY(render_chat(engine, text, prompt.images.size())) : text;
    ids.push_back(TRY(engine.tokenizer()->encode(rendered, {.add_special_tokens = !chat}).with_context(source)));
    if (ids.back().empty()) return invalid_argument(fmt::format("{}: the text \"{}\" has no tokens", source, text));
  }
  return ids;
}

Json text_json(const Engine& engine, std::span<const TokenId> ids) {
  if (engine.tokenizer() == nullptr) return {};
  return engine.tokenizer()->decode(ids, /*skip_special=*/false);
}

Result<RunRecord> run_requests(Engine& engine, const std::vector<Request>& requests,
                               const std::function<Status(std::size_t, const RequestEvent&)>& on_event) {
  const Clock::time_point start = Clock::now();
  std::vector<RequestId> ids;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    Result<RequestId> id = engine.submit(requests[i]);
    if (!id.ok()) return requests.size() > 1 ? id.status().with_context(fmt::format("prompt {}", i)) : id.status();
    ids.push_back(*id);
  }
  RunRecord record;
  Status failure;
  std::int64_t prompt_tokens = 0;  // prompt tokens that are not computed yet
  for (const Request& request : requests) prompt_tokens += std::ssize(request.prompt);
  std::deque<ForwardRecord> in_flight;
  Clock::time_point last_done = start;
  while (!engine.idle()) {
    const ForwardCounters before = engine.runner().counters();
    const std::span<RequestEvent> events = TRY(engine.step());
    ForwardRecord forward = difference(before, engine.runner().counters());
    forward.decode = prompt_tokens <= 0;
    prompt_tokens -= forward.tokens;
    if (forward.tokens > 0) in_flight.push_back(forward);
    for (; std::ssize(in_flight) > engine.runner().in_flight(); in_flight.pop_front()) {
      in_flight.front().ms = ms_since(last_done);
      last_done = Clock::now();
      record.forwards.push_back(in_flight.front());
    }
    for (const RequestEvent& event : events) {
      const auto index = static_cast<std::size_t>(std::find(ids.begin(), ids.end(), event.request) - ids.begin());
      if (!event.error.ok() && failure.ok()) failure = event.error;
      if (on_event) TRY(on_event(index, event));
    }
  }
  TRY(failure);
  for (const RequestId id : ids) record.completions.push_back(*engine.take(id));
  record.total_ms = ms_since(start);
  return record;
}

}  // namespace tessera::cli
