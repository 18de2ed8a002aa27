#include <fmt/format.h>

#include <memory>

#include "tessera/cli/commands.h"
#include "tessera/cli/generate/image_files.h"
#include "tessera/cli/inspect/graph_report.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"

namespace tessera::cli {
namespace {

struct PhaseTimes {
  double prefill_ms = 0;
  double decode_ms = 0;
  std::int64_t decode_tokens = 0;
};

PhaseTimes phase_times(const RunRecord& record) {
  PhaseTimes times;
  for (const ForwardRecord& forward : record.forwards) {
    (forward.decode ? times.decode_ms : times.prefill_ms) += forward.ms;
    if (forward.decode) times.decode_tokens += forward.tokens;
  }
  return times;
}

double per_second(std::int64_t tokens, double ms) { return ms > 0 ? 1e3 * static_cast<double>(tokens) / ms : 0; }

Json to_json(const Engine& engine, const RunRecord& record) {
  const Completion& done = record.completions[0];
  const PhaseTimes times = phase_times(record);
  Json::Array ids;
  for (const TokenId id : done.output_ids) ids.emplace_back(id.value());
  const auto completion_tokens = static_cast<std::int64_t>(done.output_ids.size());
  Json usage = Json::object();
  usage.set("prompt_tokens", done.prompt_tokens).set("completion_tokens", completion_tokens);
  usage.set("total_tokens", done.prompt_tokens + completion_tokens);
  Json timing = Json::object();
  timing.set("load", 1e3 * engine.load_seconds()).set("capture", 1e3 * engine.capture_seconds());
  timing.set("time_to_first_token", done.time_to_first_token_ms);
  timing.set("prefill", times.prefill_ms).set("decode", times.decode_ms).set("total", record.total_ms);

  Json json = Json::object();
  json.set("text", engine.tokenizer() == nullptr ? Json() : Json(done.text));
  json.set("output_ids", std::move(ids)).set("finish_reason", finish_reason_name(done.finish));
  json.set("seed", done.seed).set("usage", std::move(usage));
  json.set("graphs", graphs_json(engine, record.forwards)).set("timing_ms", std::move(timing));
  return json;
}

void print_stats(const Engine& engine, const RunRecord& record) {
  const Completion& done = record.completions[0];
  const PhaseTimes times = phase_times(record);
  std::string text = "\n" + graphs_text(engine, record.forwards) + "\n";
  text += fmt::format("  prefill  {} in {} ms, {} tokens/s\n", plural(done.prompt_tokens, "token"),
                      number_text(times.prefill_ms), number_text(per_second(done.prompt_tokens, times.prefill_ms)));
  text += fmt::format("  decode   {} in {} ms, {} tokens/s\n", plural(times.decode_tokens, "token"),
                      number_text(times.decode_ms), number_text(per_second(times.decode_tokens, times.decode_ms)));
  write_error(text);
}

}  // namespace

Status run_generate(const GenerateOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const std::unique_ptr<Engine> engine = TRY(start_engine(engine_options));
  Request request{.prompt = TRY(prompt_ids(*engine, options.prompt, options.chat))[0],
                  .sampling = options.sampling,
                  .stop = options.stop};
  if (!options.engine.adapters.paths.empty()) request.adapter = options.engine.adapters.paths.front().name;
  TRY(add_image_files(*engine, options.prompt.images, request));
  RunRecord record;
  if (options.json) {
    record = TRY(run_requests(*engine, {request}));
    TRY(write_output(to_json(*engine, record).dump() + "\n"));
  } else {
    // Writes each piece of text when it is generated. Without a tokenizer, writes ids.
    record = TRY(run_requests(*engine, {request}, [&](std::size_t, const RequestEvent& event) {
      if (engine->tokenizer() != nullptr) return write_output(event.text);
      return event.token ? write_output(fmt::format("{} ", event.token->value())) : ok_status();
    }));
    TRY(write_output("\n"));
  }
  if (options.stats) print_stats(*engine, record);
  return ok_status();
}

}  // namespace tessera::cli
