#include <fmt/format.h>

#include <cmath>
#include <memory>

#include "tessera/cli/commands.h"
#include "tessera/cli/generate/image_files.h"
#include "tessera/cli/generate/log_probability.h"
#include "tessera/cli/inspect/graph_report.h"
#include "tessera/cli/output.h"
#include "tessera/cli/session/session.h"
#include "tessera/cli/table.h"
#include "tessera/image/patches.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera::cli {
namespace {

struct Score {
  std::vector<float> logits;    // [tokens, vocab]
  std::vector<float> logprobs;  // [tokens]: log-probability of each token given the tokens before it; 0 for the first
  double sum() const {
    double total = 0;
    for (const float value : logprobs) total += value;
    return total;
  }
  double perplexity() const {
    return logprobs.size() > 1 ? std::exp(-sum() / static_cast<double>(logprobs.size() - 1)) : 1;
  }
};

Score score_of(std::vector<float> logits, const std::vector<TokenId>& ids, std::size_t vocab) {
  Score score{.logits = std::move(logits), .logprobs = std::vector<float>(ids.size(), 0.0F)};
  for (std::size_t i = 1; i < ids.size(); ++i) {
    const std::span<const float> row = std::span(score.logits).subspan((i - 1) * vocab, vocab);
    score.logprobs[i] = static_cast<float>(log_probability(row, ids[i]));
  }
  return score;
}

// The embeddings of a prompt's images, and the positions of all tokens of the prompt.
struct ImageScore {
  std::vector<std::vector<float>> embeds{};  // one per image, [tokens, hidden]
  std::vector<std::int32_t> positions{};     // [3, tokens of the prompt]
};

// Returns the embeddings of the prompt's images, and the positions of the prompt's tokens. Each row of image_rows
// belongs to one token of an image, and the row's first `hidden` values are the token's embedding.
ImageScore image_score_of(Completion& completion, const Request& request, std::size_t hidden) {
  ImageScore score{.positions = std::move(completion.rope_positions)};
  for (std::size_t k = 0; k < completion.image_rows.size(); ++k) {
    const std::span<const float> rows = completion.image_rows[k];
    const std::size_t row = rows.size() / static_cast<std::size_t>(request.images[k].patches->tokens());
    std::vector<float>& embeds = score.embeds.emplace_back();
    for (std::size_t at = 0; at < rows.size(); at += row)
      embeds.insert(embeds.end(), rows.begin() + static_cast<std::ptrdiff_t>(at),
                    rows.begin() + static_cast<std::ptrdiff_t>(at + hidden));
  }
  return score;
}

void add_image_tensors(const ImageScore& images, std::size_t hidden, std::vector<StoredTensor>& tensors) {
  for (std::size_t k = 0; k < images.embeds.size(); ++k) {
    tensors.push_back(
        {.name = fmt::format("image_embeds_{}", k),
         .dtype = StoredDtype::kF32,
         .shape = {std::ssize(images.embeds[k]) / static_cast<std::int64_t>(hidden), static_cast<std::int64_t>(hidden)},
         .data = std::as_bytes(std::span(images.embeds[k]))});
  }
  if (images.positions.empty()) return;
  tensors.push_back({.name = "positions",
                     .dtype = StoredDtype::kI32,
                     .shape = {3, std::ssize(images.positions) / 3},
                     .data = std::as_bytes(std::span(images.positions))});
}

Status write_scores(const std::string& path, const std::vector<Score>& scores, std::int64_t vocab,
                    std::vector<StoredTensor> tensors) {
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const std::string suffix = scores.size() > 1 ? fmt::format("_{}", i) : "";
    const auto tokens = static_cast<std::int64_t>(scores[i].logprobs.size());
    tensors.push_back({.name = "logits" + suffix,
                       .dtype = StoredDtype::kF32,
                       .shape = {tokens, vocab},
                       .data = std::as_bytes(std::span(scores[i].logits))});
    tensors.push_back({.name = "logprobs" + suffix,
                       .dtype = StoredDtype::kF32,
                       .shape = {tokens},
                       .data = std::as_bytes(std::span(scores[i].logprobs))});
  }
  return write_safetensors(path, tensors, {{"format", "pt"}});
}

Json to_json(const ScoreOptions& options, const Engine& engine, const std::vector<std::vector<TokenId>>& prompts,
             const std::vector<Score>& scores, const RunRecord& record) {
  Json rows = Json::array();
  for (std::size_t i = 0; i < scores.size(); ++i) {
    Json row = Json::object();
    row.set("text", text_json(engine, prompts[i]));
    row.set("tokens", prompts[i].size()).set("logprob", scores[i].sum()).set("perplexity", scores[i].perplexity());
    rows.push_back(std::move(row));
  }
  Json timing = Json::object();
  timing.set("load", 1e3 * engine.load_seconds()).set("capture", 1e3 * engine.capture_seconds());
  timing.set("total", record.total_ms);
  Json json = Json::object();
  json.set("output", options.output).set("vocab_size", engine.config().vocab_size).set("prompts", std::move(rows));
  json.set("graphs", graphs_json(engine, record.forwards)).set("timing_ms", std::move(timing));
  return json;
}

}  // namespace

Status run_score(const ScoreOptions& options) {
  EngineOptions engine_options = options.engine;
  engine_options.show_progress = progress_wanted();
  const std::unique_ptr<Engine> engine = TRY(Engine::create(engine_options));
  if (!engine->generates()) {
    return invalid_argument(fmt::format(
        "--model-path: {} makes no tokens whose probabilities could be told; accepted is a model that generates text",
        engine_options.model_path));
  }
  std::vector<std::vector<TokenId>> prompts = TRY(prompt_ids(*engine, options.prompts, /*chat=*/false));
  std::vector<Request> requests;
  for (std::vector<TokenId>& ids : prompts) {
    Request request{.prompt = ids, .return_images = !options.prompts.images.empty(), .score = true};
    if (!options.engine.adapters.paths.empty()) request.adapter = options.engine.adapters.paths.front().name;
    TRY(add_image_files(*engine, options.prompts.images, request));
    ids = request.prompt;
    requests.push_back(std::move(request));
  }
  RunRecord record = TRY(run_requests(*engine, requests));

  const std::int64_t vocab = engine->config().vocab_size;
  std::vector<Score> scores;
  scores.reserve(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    scores.push_back(score_of(std::move(record.completions[i].logits), prompts[i], static_cast<std::size_t>(vocab)));
  }
  const auto hidden = static_cast<std::size_t>(engine->config().hidden_size);
  const ImageScore images = image_score_of(record.completions[0], requests[0], hidden);
  std::vector<StoredTensor> tensors;
  add_image_tensors(images, hidden, tensors);
  TRY(write_scores(options.output, scores, vocab, std::move(tensors)));
  if (options.json) return write_output(to_json(options, *engine, prompts, scores, record).dump() + "\n");
  Table table({"prompt", ">tokens", ">log-probability", ">perplexity"});
  for (std::size_t i = 0; i < scores.size(); ++i) {
    table.add({fmt::format("{}", i), count_text(std::ssize(prompts[i])), fmt::format("{:.4f}", scores[i].sum()),
               number_text(scores[i].perplexity())});
  }
  return write_output(fmt::format("{}  written to {}\n", table.text(), options.output));
}

}  // namespace tessera::cli
