#include "tessera/engine/plan/model_texts.h"

#include <fmt/format.h>

#include <chrono>
#include <filesystem>
#include <string>

#include "tessera/model/gguf/gguf_model.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/weights/model_path.h"

namespace tessera {
namespace {

// Reads the tokenizer of a GGUF file; a file may have none.
Status read_gguf_tokenizer(const GgufModel& model, ModelTexts& texts) {
  const Result<TokenLists> lists = gguf_token_lists(model);
  if (lists.status().code() == StatusCode::kNotFound) return ok_status();
  TRY(lists.status());
  texts.tokenizer = TRY(Tokenizer::create(*lists));
  texts.tokenizer_config = TRY(gguf_tokenizer_config(model));
  return ok_status();
}

// Reads the tokenizer of a folder or file. If an option names the tokenizer (`given`), it must exist. Otherwise it may
// be missing. Without a tokenizer, requests must give ids.
Status read_tokenizer(const std::string& path, bool given, ModelTexts& texts) {
  Result<Tokenizer> tokenizer = Tokenizer::load(path);
  if (!given && tokenizer.status().code() == StatusCode::kNotFound) return ok_status();
  texts.tokenizer = TRY(std::move(tokenizer));
  texts.tokenizer_config = TRY(TokenizerConfig::load(model_folder(path)));
  return ok_status();
}

Status read_texts(const EngineOptions& options, ModelTexts& texts) {
  const bool given = !options.tokenizer_path.empty();
  const std::optional<std::string> gguf = TRY(find_gguf(options.model_path));
  if (gguf) {
    const GgufModel model = TRY(GgufModel::open(*gguf, gguf_options(options)));
    texts.generation = TRY(gguf_generation_config(model));
    if (!given) return read_gguf_tokenizer(model, texts);
  } else {
    texts.generation = TRY(GenerationConfig::read(model_folder(options.model_path)));
  }
  return read_tokenizer(given ? options.tokenizer_path : model_folder(options.model_path), given, texts);
}

Result<ReadTexts> read_model_texts(const EngineOptions& options) {
  ReadTexts read;
  read.times.begin = std::chrono::steady_clock::now();
  TRY(read_texts(options, read.texts));
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

Result<std::optional<Tokenizer>> read_model_tokenizer(const std::string& model_path, const std::string& tokenizer_path,
                                                      const GgufOptions& gguf_options) {
  ModelTexts texts;
  const bool given = !tokenizer_path.empty();
  const std::optional<std::string> gguf = given ? std::nullopt : TRY(find_gguf(model_path));
  if (gguf)
    TRY(read_gguf_tokenizer(TRY(GgufModel::open(*gguf, gguf_options)), texts));
  else
    TRY(read_tokenizer(given ? tokenizer_path : model_folder(model_path), given, texts));
  return std::move(texts.tokenizer);
}

std::future<Result<ReadTexts>> start_reading_texts(const EngineOptions& options) {
  return std::async(std::launch::async, [&options] { return read_model_texts(options); });
}

}  // namespace tessera
