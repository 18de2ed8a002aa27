// Builds the small tokenizers under tests/data/text from their shared vocabularies. For tests only.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "tessera/text/test_data.h"
#include "tessera/text/tokenizer.h"

namespace tessera::test {

struct TokenizerCase {
  std::string name;
  std::string json;  // a tokenizer.json
  Json item;         // the case with its expected results
};

// Returns the tokenizer of a file that must load; otherwise the test program stops with the error.
inline Tokenizer load_case(const std::string& json, const std::string& name) {
  Result<Tokenizer> tokenizer = Tokenizer::parse(json, name);
  if (!tokenizer.ok()) throw std::runtime_error(tokenizer.status().to_string());
  return *std::move(tokenizer);
}

// Returns the tokenizer.json of "qwen", "llama3" or "gpt2" from byte_level.json; "" for another name.
inline std::string byte_level_json(const std::string& name) {
  const Json file = *Json::read_file(own_data("byte_level.json"));
  for (const Json& item : file.as_array()) {
    if (item.find("name")->as_string() == name) return item.find("tokenizer")->dump();
  }
  return "";
}

// Returns tokenizers that share one vocabulary and differ in their normalizers and pre-tokenizers.
inline std::vector<TokenizerCase> step_cases() {
  const Json file = *Json::read_file(own_data("steps.json"));
  std::vector<TokenizerCase> out;
  for (const Json& item : file.find("cases")->as_array()) {
    Json tokenizer = Json::object();
    for (const char* key : {"model", "added_tokens", "decoder"}) tokenizer.set(key, *file.find(key));
    for (const char* key : {"normalizer", "pre_tokenizer"}) tokenizer.set(key, *item.find(key));
    out.push_back({item.find("name")->as_string(), tokenizer.dump(), item});
  }
  return out;
}

// Returns SentencePiece-style tokenizers: the first ("llama2") is complete, and the others change some of its fields.
inline std::vector<TokenizerCase> sentencepiece_cases() {
  const Json file = *Json::read_file(own_data("sentencepiece.json"));
  std::vector<TokenizerCase> out;
  for (const Json& item : file.find("cases")->as_array()) {
    Json tokenizer = *file.find("tokenizer");
    Json model = *tokenizer.find("model");
    for (const auto& [key, value] : item.find("model")->as_object()) model.set(key, value);
    for (const auto& [key, value] : item.find("changes")->as_object()) tokenizer.set(key, value);
    tokenizer.set("model", model).set("added_tokens", *item.find("added_tokens"));
    out.push_back({item.find("name")->as_string(), tokenizer.dump(), item});
  }
  return out;
}

}  // namespace tessera::test
