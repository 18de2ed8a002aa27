#include "tessera/engine/start/model_texts.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

Result<ReadTexts> read_model_texts(const EngineOptions& options) {
  ReadTexts read;
  read.times.begin = std::chrono::steady_clock::now();
  ModelTexts& texts = read.texts;
  const std::string folder = model_folder(options.model_path);
  texts.generation = TRY(GenerationConfig::read(folder));

  const bool given = !options.tokenizer_path.empty();
  const std::string path = given ? options.tokenizer_path : folder;
  Result<Tokenizer> tokenizer = Tokenizer::load(path);
  // A model may have no tokenizer; its requests then give ids.
  const bool without = !given && tokenizer.status().code() == StatusCode::kNotFound;
  if (!without) {
    texts.tokenizer = TRY(std::move(tokenizer));
    texts.tokenizer_config = TRY(TokenizerConfig::load(model_folder(path)));
  }
  read.times.end = std::chrono::steady_clock::now();
  return read;
}

}  // namespace

Status check_end_ids(const std::string& model_path, std::span<const TokenId> end_ids, std::int64_t vocab_size) {
  const std::filesystem::path folder = model_folder(model_path);
  std::error_code error;
  const bool generation = std::filesystem::exists(folder / "generation_config.json", error);
  for (const TokenId id : end_ids) {
    if (id.value() >= 0 && id.value() < vocab_size) continue;
    return invalid_argument(fmt::format("{}: \"eos_token_id\" has {}; accepted: 0 to {}, the model's vocabulary",
                                        (folder / (generation ? "generation_config.json" : "config.json")).string(),
                                        id.value(), vocab_size - 1));
  }
  return ok_status();
}

std::string without_tokenizer(const std::string& model_path) {
  return fmt::format(
      "{} has neither tokenizer.json nor tokenizer.model: requests give and get token ids alone; texts, chats, stop "
      "strings and constrained output are refused",
      model_folder(model_path));
}

std::future<Result<ReadTexts>> start_reading_texts(const EngineOptions& options) {
  return std::async(std::launch::async, [&options] { return read_model_texts(options); });
}

}  // namespace tessera
