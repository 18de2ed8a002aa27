#include "tessera/model/quantise/folder_tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <utility>

#include "tessera/base/json.h"
#include "tessera/model/config/generation_config.h"
#include "tessera/model/quantise/folder_token_lists.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

// The special tokens of a model.
struct SpecialTokens {
  std::optional<TokenId> bos;
  std::vector<TokenId> ends;  // all tokens that end an answer; the first is eos
  std::optional<TokenId> pad;
  std::optional<TokenId> unknown;
};

std::optional<TokenId> id_of(const Tokenizer& tokenizer, const std::string& token) {
  return token.empty() ? std::nullopt : tokenizer.token_to_id(token);
}

SpecialTokens special_tokens(const Tokenizer& tokenizer, const TokenizerConfig& texts, const ModelConfig& config,
                             const GenerationConfig& generation) {
  SpecialTokens special;
  special.bos = id_of(tokenizer, texts.bos_token);
  if (!special.bos) special.bos = generation.bos_token_id ? generation.bos_token_id : config.bos_token_id;
  special.pad = id_of(tokenizer, texts.pad_token);
  special.unknown = id_of(tokenizer, texts.unk_token);
  special.ends = generation.eos_token_ids.empty() ? config.eos_token_ids : generation.eos_token_ids;
  const std::optional<TokenId> eos = id_of(tokenizer, texts.eos_token);
  if (!eos) return special;
  // The tokenizer's eos token comes first. This token is added if the list does not contain it.
  std::erase(special.ends, *eos);
  special.ends.insert(special.ends.begin(), *eos);
  return special;
}

void write_special(const SpecialTokens& special, GgufMetadata& metadata, std::vector<std::string>& notes) {
  const auto write = [&](const char* name, TokenId id) {
    metadata.set_uint32(fmt::format("tokenizer.ggml.{}_token_id", name), id.value());
  };
  constexpr const char* kEnds[] = {"eos", "eot", "eom"};
  if (special.bos) write("bos", *special.bos);
  for (std::size_t i = 0; i < std::min(special.ends.size(), std::size(kEnds)); ++i) write(kEnds[i], special.ends[i]);
  if (special.ends.size() > std::size(kEnds))
    notes.push_back(fmt::format("{} of {} end tokens are left out: files have three",
                                special.ends.size() - std::size(kEnds), special.ends.size()));
  if (special.unknown) write("unknown", *special.unknown);
  if (special.pad) write("padding", *special.pad);
}

void write_templates(const TokenizerConfig& texts, GgufMetadata& metadata) {
  std::vector<std::string> names;
  for (const TokenizerConfig::NamedTemplate& chat : texts.chat_templates) {
    if (chat.name == "default") {
      metadata.set_string("tokenizer.chat_template", chat.source);
    } else {
      metadata.set_string("tokenizer.chat_template." + chat.name, chat.source);
      names.push_back(chat.name);
    }
  }
  if (!names.empty()) metadata.set_strings("tokenizer.chat_templates", names);
}

constexpr std::string_view kSpecialSample = "<|im_start|>user\nHi<|im_end|>\n<s>[INST] a </s>";
// Texts in several languages, with numbers, white space, code and unusual bytes.
constexpr std::string_view kSamples[] = {
    "",
    "Hello, world!",
    "  The 12345 quick\tbrown foxes' dens aren't 3.14 km away.\n\n\tÜber den Wolken — naïve café…",
    "def f(x):\n    return {'a': [1, 2, 3]}  # comment\r\n",
    "東京は日本の首都です。 Москва — столица. 한국어 नमस्ते 🤖👩‍🚀",
    "I'LL DON'T we'Ve  \n \n x_y-z @#$%^&*()_+ 1000000 e\u0301",
    kSpecialSample};

// Checks that the lists give the same tokens as the folder's own tokenizer. After a special token, some libraries add
// SentencePiece's space and others do not. A GGUF file cannot say with which kind of library the model was trained.
// A difference after a special token therefore becomes a note, not an error.
Status check_lists(const Tokenizer& own, const TokenLists& lists, std::vector<std::string>& notes) {
  const Tokenizer listed = TRY(Tokenizer::create(lists));
  for (const std::string_view sample : kSamples) {
    for (const bool special : {false, true}) {
      const EncodeOptions options{.add_special_tokens = special, .parse_special = special};
      const std::vector<TokenId> want = TRY(own.encode(sample, options));
      const std::vector<TokenId> got = TRY(listed.encode(sample, options));
      if (want == got) continue;
      const std::string what =
          fmt::format("{}: the tokenizer as GGUF files have it cuts the text {} into {} tokens instead of {}",
                      lists.file, Json(sample).dump(), got.size(), want.size());
      if (lists.model != "llama" || !special || sample != kSpecialSample)
        return unimplemented(what + "; accepted: tokenizers that a GGUF file can describe");
      notes.push_back(what);
    }
  }
  return ok_status();
}

// Returns whether the tokenizer adds a space before a text.
Result<bool> puts_space(const Tokenizer& tokenizer) {
  const std::vector<TokenId> ids = TRY(tokenizer.encode("a", {.add_special_tokens = false, .parse_special = false}));
  return !ids.empty() && tokenizer.id_to_token(ids.front()).value_or("").starts_with("▁");
}

std::vector<std::int32_t> numbers_of(const std::vector<TokenKind>& kinds) {
  std::vector<std::int32_t> numbers;
  for (const TokenKind kind : kinds) numbers.push_back(static_cast<std::int32_t>(kind));
  return numbers;
}

void write_sampling(const GenerationConfig& generation, GgufMetadata& metadata) {
  const auto number = [&](const char* name, const std::optional<double>& value) {
    if (value) metadata.set_float32(fmt::format("general.sampling.{}", name), *value);
  };
  const bool greedy = generation.do_sample == false;
  if (generation.top_k) metadata.set_int32("general.sampling.top_k", std::max<std::int64_t>(*generation.top_k, 0));
  number("top_p", generation.top_p);
  number("min_p", generation.min_p);
  number("temp", greedy ? std::optional<double>(0) : generation.temperature);
  number("penalty_repeat", generation.repetition_penalty);
}

}  // namespace

Status write_tokenizer(const std::string& folder, const ModelConfig& config, GgufMetadata& metadata,
                       std::vector<std::string>& notes) {
  const GenerationConfig generation = TRY(GenerationConfig::read(folder));
  write_sampling(generation, metadata);
  Result<Tokenizer> loaded = Tokenizer::load(folder);
  if (loaded.status().code() == StatusCode::kNotFound) {
    metadata.set_string("tokenizer.ggml.model", "none");
    notes.push_back(fmt::format("{} has no tokenizer, and the file will have none", folder));
    return ok_status();
  }
  const Tokenizer own = TRY(std::move(loaded));
  const TokenizerConfig texts = TRY(TokenizerConfig::load(folder));
  const FolderTokenLists lists = TRY(read_folder_token_lists(folder, config));
  if (lists.left_out > 0)
    notes.push_back(
        fmt::format("{} tokens are left out: the embeddings have {} rows", lists.left_out, config.vocab_size));
  SpecialTokens special = special_tokens(own, texts, config, generation);
  const std::vector<TokenId> around = TRY(own.encode(""));  // the tokens that the tokenizer adds before and after texts
  if (!special.bos && !around.empty() && std::ranges::find(special.ends, around.front()) == special.ends.end())
    special.bos = around.front();
  const bool add_bos = special.bos && !around.empty() && around.front() == *special.bos;
  const bool add_eos = !special.ends.empty() && !around.empty() && around.back() == special.ends.front();

  const bool marks = lists.model == "llama";
  const bool space_prefix = marks && TRY(puts_space(own));
  const TokenLists check{.file = lists.file,
                         .model = lists.model,
                         .pre = lists.pre,
                         .tokens = {lists.tokens.begin(), lists.tokens.end()},
                         .kinds = lists.kinds,
                         .merges = {lists.merges.begin(), lists.merges.end()},
                         .scores = lists.scores,
                         .bos = special.bos,
                         .eos = special.ends.empty() ? std::nullopt : std::optional(special.ends.front()),
                         .add_bos = add_bos,
                         .add_eos = add_eos,
                         .add_space_prefix = space_prefix};
  TRY(check_lists(own, check, notes));
  metadata.set_string("tokenizer.ggml.model", lists.model);
  if (!lists.pre.empty()) metadata.set_string("tokenizer.ggml.pre", lists.pre);
  metadata.set_strings("tokenizer.ggml.tokens", lists.tokens);
  if (marks) metadata.set_float32s("tokenizer.ggml.scores", lists.scores);
  metadata.set_int32s("tokenizer.ggml.token_type", numbers_of(lists.kinds));
  if (!marks) metadata.set_strings("tokenizer.ggml.merges", lists.merges);
  write_special(special, metadata, notes);
  metadata.set_bool("tokenizer.ggml.add_bos_token", add_bos);
  metadata.set_bool("tokenizer.ggml.add_eos_token", add_eos);
  if (lists.model != "gpt2") metadata.set_bool("tokenizer.ggml.add_space_prefix", space_prefix);
  write_templates(texts, metadata);
  return ok_status();
}

}  // namespace tessera
