#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/base/progress.h"
#include "tessera/cli/commands.h"
#include "tessera/cli/generate/log_probability.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/engine/engine.h"
#include "tessera/model/gguf/importance_matrix.h"
#include "tessera/model/model.h"
#include "tessera/model/quantise/folder_sizes.h"
#include "tessera/model/quantise/observed_input.h"
#include "tessera/runner/observe/linear_inputs.h"

namespace tessera::cli {
namespace {

namespace fs = std::filesystem;

Status check_output(const CalibrateOptions& options) {
  std::error_code error;
  const std::string& file = options.output;
  if (fs::is_directory(file, error)) return invalid_argument(fmt::format("--output: {} is a folder", file));
  if (!fs::exists(file, error) || options.overwrite) return ok_status();
  return invalid_argument(
      fmt::format("--output: {} is there already; give another file, or --overwrite, which replaces it", file));
}

// Returns the options of an engine that computes every token, without the prefix cache. The engine also captures as few
// graphs as possible, because observed forwards run without graphs.
EngineOptions engine_options(const CalibrateOptions& options) {
  EngineOptions engine = options.engine;
  engine.graphs = {};
  engine.graphs.capture = CaptureMode::kLazy;
  engine.graphs.measure_costs = false;
  engine.disable_radix_cache = true;
  engine.show_progress = !options.json && progress_wanted();
  return engine;
}

// Returns the text's tokens in chunks. Each chunk begins with the tokens that the tokenizer puts before a text.
Result<std::vector<std::vector<TokenId>>> chunks_of(const Engine& engine, const CalibrateOptions& options) {
  const std::vector<TokenId> all = TRY(prompt_ids(engine, {.texts = {}, .file = options.text, .ids = {}}, false))[0];
  const std::vector<TokenId> text =
      TRY(engine.tokenizer()->encode(TRY(read_text_file(options.text)), {.add_special_tokens = false}));
  const auto found = std::search(all.begin(), all.end(), text.begin(), text.end());
  const std::vector<TokenId> start(all.begin(), found == all.end() ? all.begin() : found);
  const std::int64_t most = options.chunk_tokens - std::ssize(start);
  if (most < 1 || options.chunk_tokens > engine.max_request_tokens())
    return invalid_argument(fmt::format("--chunk-tokens: {} is not accepted for this model; {} to {} are",
                                        options.chunk_tokens, std::ssize(start) + 1, engine.max_request_tokens()));
  std::vector<std::vector<TokenId>> chunks;
  for (std::int64_t at = 0; at < std::ssize(text); at += most) {
    if (options.most_chunks > 0 && std::ssize(chunks) == options.most_chunks) break;
    std::vector<TokenId>& chunk = chunks.emplace_back(start);
    chunk.insert(chunk.end(), text.begin() + at, text.begin() + std::min(at + most, std::ssize(text)));
  }
  return chunks;
}

// The figures of a calibration run, for its report.
struct Calibration {
  std::int64_t chunks = 0;
  std::int64_t tokens = 0;
  double perplexity = 1;
  double seconds = 0;
  std::size_t entries = 0;
  std::vector<std::string> notes;
};

// Runs the model on each chunk. Returns the perplexity of the text.
Result<double> run_chunks(Engine& engine, const std::vector<std::vector<TokenId>>& chunks, bool json) {
  const auto vocab = static_cast<std::size_t>(engine.config().vocab_size);
  Progress progress("Calibrating", std::ssize(chunks), "chunks", !json && progress_wanted());
  double sum = 0;
  std::int64_t predicted = 0;
  for (const std::vector<TokenId>& chunk : chunks) {
    const Request request{.prompt = chunk, .score = true};
    const std::vector<Completion> done = TRY(engine.run({&request, 1}));
    for (std::size_t i = 1; i < chunk.size(); ++i, ++predicted)
      sum += log_probability(std::span(done[0].logits).subspan((i - 1) * vocab, vocab), chunk[i]);
    progress.advance(1);
  }
  return predicted > 0 ? std::exp(-sum / static_cast<double>(predicted)) : 1.0;
}

// Returns notes about experts that the importance matrix leaves out, and about experts that the model never chose for
// the text.
std::vector<std::string> notes_about(const LinearInputs& observed, const std::vector<ImportanceEntry>& entries) {
  std::vector<std::string> notes;
  if (!observed.left_out().empty())
    notes.push_back(fmt::format("{} stacks of experts in MXFP4 are left out; the first is {}",
                                observed.left_out().size(), observed.left_out().front()));
  std::int64_t unseen = 0;
  std::string first;
  for (const ImportanceEntry& entry : entries) {
    const auto of_entry = std::ranges::count(entry.counts, 0.0F);
    if (unseen == 0 && of_entry > 0) first = entry.name;
    unseen += of_entry;
  }
  if (unseen > 0)
    notes.push_back(
        fmt::format("{} matrices of experts were never chosen in the text; the first belong to {}", unseen, first));
  return notes;
}

std::string summary(const CalibrateOptions& options, const Calibration& done) {
  return fmt::format("{}: {} matrices, {} tokens in {} chunks, perplexity {:.4f}, in {} s\n", options.output,
                     count_text(static_cast<std::int64_t>(done.entries)), count_text(done.tokens),
                     count_text(done.chunks), done.perplexity, number_text(done.seconds));
}

Json report(const CalibrateOptions& options, const Calibration& done) {
  Json notes = Json::array();
  for (const std::string& note : done.notes) notes.push_back(note);
  Json json = Json::object();
  json.set("output", options.output).set("matrices", done.entries).set("tokens", done.tokens);
  json.set("chunks", done.chunks).set("chunk_tokens", options.chunk_tokens).set("perplexity", done.perplexity);
  json.set("seconds", done.seconds).set("notes", std::move(notes));
  return json;
}

}  // namespace

Status run_calibrate(const CalibrateOptions& options) {
  TRY(check_output(options));
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options(options)));
  const std::string& model = options.engine.model_path;
  if (!engine->generates())
    return invalid_argument(
        fmt::format("--model-path: {} generates no text; accepted is a model that generates text", model));
  // Before the model runs on the text, refuses a model family that has no name in GGUF files.
  TRY(architecture_of_folder(engine->config(), model));
  const std::vector<std::vector<TokenId>> chunks = TRY(chunks_of(*engine, options));
  const auto start = std::chrono::steady_clock::now();
  LinearInputs observed(engine->runner());
  engine->runner().set_observer(&observed);
  Result<double> perplexity = run_chunks(*engine, chunks, options.json);
  engine->runner().set_observer(nullptr);
  Calibration done;
  done.perplexity = TRY(std::move(perplexity));
  done.chunks = std::ssize(chunks);
  for (const std::vector<TokenId>& chunk : chunks) done.tokens += std::ssize(chunk);
  const std::vector<WeightSpec> weights = all_weights(engine->runner().model().graphs);
  ImportanceMatrix matrix;
  matrix.datasets = {options.text};
  matrix.chunk_count = done.chunks;
  matrix.chunk_size = options.chunk_tokens;
  matrix.entries = TRY(importance_of_inputs(engine->config(), model, weights, observed.inputs()));
  done.entries = matrix.entries.size();
  done.notes = notes_about(observed, matrix.entries);
  TRY(write_importance(options.output, std::move(matrix)));
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (options.json) return write_output(report(options, done).dump(2) + "\n");
  for (const std::string& note : done.notes) write_error("Note: " + note + "\n");
  return write_output(summary(options, done));
}

}  // namespace tessera::cli
