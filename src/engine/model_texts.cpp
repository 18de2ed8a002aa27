#include "tessera/engine/model_texts.h"

#include <chrono>
#include <string>

#include "tessera/model/model_path.h"

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
  // A model may have no tokenizer: then requests give ids.
  const bool without = !given && tokenizer.status().code() == StatusCode::kNotFound;
  if (!without) {
    texts.tokenizer = TRY(std::move(tokenizer));
    texts.tokenizer_config = TRY(TokenizerConfig::load(model_folder(path)));
  }
  read.times.end = std::chrono::steady_clock::now();
  return read;
}

}  // namespace

std::future<Result<ReadTexts>> start_reading_texts(const EngineOptions& options) {
  return std::async(std::launch::async, [&options] { return read_model_texts(options); });
}

}  // namespace tessera
