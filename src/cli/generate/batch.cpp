#include <fmt/format.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>
#include <memory>
#include <unordered_map>

#include "tessera/base/progress.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/generate/local_jobs.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/server/batches/batch_lines.h"
#include "tessera/server/responses/response_store.h"
#include "tessera/server/served_model.h"

namespace tessera::cli {
namespace {

// The greatest number of requests that have been read but whose answers have not been written. Answers are written in
// the order of the input, so one long answer delays the answers after it. This many requests fill four forwards of 256
// requests, so the engine still has work during the delay.
constexpr std::size_t kWindow = 1024;

struct BatchTotals {
  std::int64_t requests = 0;
  std::int64_t failed = 0;
  std::int64_t prompt_tokens = 0;
  std::int64_t output_tokens = 0;
  double seconds = 0;
};

Result<std::int64_t> count_requests(const std::string& path) {
  std::ifstream file(path);
  std::int64_t count = 0;
  for (std::string line; std::getline(file, line);) count += line.find_first_not_of(" \t\r") != std::string::npos;
  if (!file.eof()) return not_found(fmt::format("{}: cannot be read: {}", path, std::strerror(errno)));
  if (count == 0) return invalid_argument(fmt::format("{}: the file has no requests", path));
  return count;
}

class BatchRun {
 public:
  BatchRun(Engine& engine, const ServedModel& model, std::ofstream& output, Progress& progress)
      : model_(model), jobs_(engine), output_(output), progress_(progress) {}

  Result<BatchTotals> run(std::ifstream& input) {
    const auto start = std::chrono::steady_clock::now();
    for (bool more = true; more || !places_.empty();) {
      while (more && places_.size() < kWindow) more = read_one(input);
      TRY(write_finished());
      if (alive_.empty()) continue;
      for (LocalJobs::Update& update : jobs_.wait()) take(update);
    }
    totals_.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return totals_;
  }

 private:
  // A request's entry in the output. The line is empty until the request has ended.
  struct Place {
    Json custom_id{};
    std::string request_id{};
    std::string line{};
  };

  // Reads the next line that is not blank, and starts its request. Returns false at the end of the file.
  bool read_one(std::ifstream& input) {
    std::string line;
    do {
      if (!std::getline(input, line)) return false;
    } while (line.find_first_not_of(" \t\r") == std::string::npos);
    ++totals_.requests;
    const auto place = std::make_shared<Place>();
    places_.push_back(place);
    const Result<BatchRequest> request = read_batch_line(line, place->custom_id);
    if (!request.ok()) {
      ++totals_.failed;
      place->line = batch_error(place->custom_id, "invalid_line", request.status().message());
      return true;
    }
    ApiResult<ApiJob> job = prepare_batch_request(model_, *request, no_responses_, /*owner=*/"");
    if (!job.ok()) {
      refuse(*place, job.error());
      return true;
    }
    place->request_id = job->id;
    alive_.emplace(jobs_.start(*std::move(job)), place);
    return true;
  }

  void refuse(Place& place, const ApiError& error) {
    ++totals_.failed;
    place.line = batch_refusal(place.custom_id, error);
  }

  void take(const LocalJobs::Update& update) {
    totals_.prompt_tokens += update.prompt_tokens;
    totals_.output_tokens += update.output_tokens;
    if (!update.ended) return;
    const auto found = alive_.find(update.job);
    Place& place = *found->second;
    if (update.error) {
      refuse(place, *update.error);
    } else {
      place.line = batch_answer(place.custom_id, place.request_id, update.body);
    }
    alive_.erase(found);
  }

  Status write_finished() {
    for (; !places_.empty() && !places_.front()->line.empty(); places_.pop_front()) {
      output_ << places_.front()->line << std::flush;
      if (!output_) return data_loss(fmt::format("the output file cannot be written: {}", std::strerror(errno)));
      progress_.advance(1);
    }
    return ok_status();
  }

  const ServedModel& model_;
  ResponseStore no_responses_{{.number = 0}};  // stores nothing
  LocalJobs jobs_;
  std::ofstream& output_;
  Progress& progress_;
  std::deque<std::shared_ptr<Place>> places_;  // in the order of the input
  std::unordered_map<LocalJobs::Id, std::shared_ptr<Place>> alive_;
  BatchTotals totals_;
};

std::string summary(const BatchTotals& totals, bool as_json) {
  const double rate = totals.seconds > 0 ? static_cast<double>(totals.output_tokens) / totals.seconds : 0;
  if (!as_json) {
    return fmt::format("{}, {} failed: {} in, {} out in {} s, {} tokens/s\n", plural(totals.requests, "request"),
                       totals.failed, plural(totals.prompt_tokens, "token"), plural(totals.output_tokens, "token"),
                       number_text(totals.seconds), number_text(rate));
  }
  Json json = Json::object();
  json.set("requests", totals.requests).set("failed", totals.failed);
  json.set("prompt_tokens", totals.prompt_tokens).set("completion_tokens", totals.output_tokens);
  json.set("seconds", totals.seconds).set("tokens_per_second", rate);
  return json.dump() + "\n";
}

}  // namespace

Status run_batch(const BatchOptions& options) {
  const std::int64_t requests = TRY(count_requests(options.input_file));
  std::error_code error;
  if (std::filesystem::equivalent(options.input_file, options.output_file, error))
    return invalid_argument("--output-file is the input file, which it would overwrite");
  std::ofstream output(options.output_file);
  if (!output)
    return invalid_argument(
        fmt::format("--output-file: {} cannot be written: {}", options.output_file, std::strerror(errno)));
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const std::unique_ptr<Engine> engine = TRY(start_engine(engine_options));
  ServerOptions server;
  server.served_model_name = options.served_model_name;
  const ServedModel model = TRY(ServedModel::create(server, *engine));

  BatchTotals totals;
  {
    std::ifstream input(options.input_file);
    Progress progress("Answering", requests, "requests", progress_wanted());
    BatchRun run(*engine, model, output, progress);
    totals = TRY(run.run(input));
  }
  TRY(write_output(summary(totals, options.json)));
  if (totals.failed == 0) return ok_status();
  return invalid_argument(fmt::format("{} of {} failed; {} says why", totals.failed, plural(totals.requests, "request"),
                                      options.output_file));
}

}  // namespace tessera::cli
