// Catches: malformed or unknown content of a tokenizer's files that is read as something else, that crashes the
// program, or whose error does not say what to repair.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/text/test_data.h"
#include "tessera/text/tokenizer.h"
#include "tessera/text/tokenizer_config.h"

namespace tessera {
namespace {

using test::ScratchDir;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Returns the smallest file that loads, with `changed` as its member `key`. The key "model.x" is the member "x" of
// "model".
std::string with(const std::string& key, const std::string& changed) {
  Json file = *Json::parse(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2, "<0x0A>": 3},
    "merges": ["a b"]}, "added_tokens": [{"id": 4, "content": "<x>", "special": true}]})",
                           "base");
  const Json value = *Json::parse(changed, "changed");
  if (key.starts_with("model.")) {
    Json model = *file.find("model");
    model.set(key.substr(6), value);
    file.set("model", model);
  } else {
    file.set(key, value);
  }
  return file.dump();
}

Status load(const std::string& json) { return Tokenizer::parse(json, "tokenizer.json").status(); }

struct BadFile {
  const char* key;
  const char* value;
  std::vector<const char*> message;  // parts of the message
};

TEST(TokenizerErrors, NameFileFieldValueAndWhatIsAccepted) {
  ASSERT_TRUE(load(with("version", "1")).ok()) << load(with("version", "1")).message();
  const BadFile files[] = {
      {"model.type", R"("WordPiece")", {"model.type: \"WordPiece\" is not supported", "accepted: BPE, Unigram"}},
      {"model.type", R"("Unigram")", {"model.vocab: {", "accepted: an array of fewer than"}},
      {"model", R"({"type": "Unigram"})", {"model.vocab: missing", "accepted: an array of [token, score]"}},
      {"model", R"({"type": "Unigram", "vocab": [["a"]]})", {"model.vocab[0]: [\"a\"]", "accepted: [token, score]"}},
      {"model", R"({"type": "Unigram", "vocab": [["a", "1"]]})", {"model.vocab[0]", "accepted: [token, score]"}},
      {"model", R"({"type": "Unigram", "vocab": [["", 1]]})", {"model.vocab[0]: \"\"", "not empty"}},
      {"model",
       R"({"type": "Unigram", "vocab": [["a", 1], ["a", 2]]})",
       {"model.vocab: token \"a\" has id 1 and id 0", "accepted: one id"}},
      {"model",
       R"({"type": "Unigram", "vocab": [["a", 1]], "unk_id": 1})",
       {"model.unk_id: 1", "accepted: null or an id from 0 to 0"}},
      {"model.type", "7", {"model.type: 7 is of type integer", "accepted: a string"}},
      {"model.vocab", R"([["a", -1.5]])", {"model.vocab: [[\"a\", -1.5]]", "accepted: an object"}},
      {"model.vocab", R"({"a": -1})", {"model.vocab[\"a\"]: -1", "accepted: an id from 0 to 16777215"}},
      {"model.vocab", R"({"a": 99999999999})", {"model.vocab[\"a\"]: 99999999999", "accepted: an id"}},
      {"model.vocab", R"({"a": "0"})", {"model.vocab[\"a\"]: \"0\"", "accepted: an id"}},
      {"model.vocab", R"({"a": 0, "b": 0})", {"model.vocab", "id 0 belongs to token \"a\" and to token \"b\""}},
      {"model.merges", R"(["a c"])", {"model.merges[0]", "\"c\" is not in model.vocab", "accepted: merges whose"}},
      {"model.merges", R"(["b a"])", {"model.merges[0]", "\"ba\" is not in model.vocab"}},
      {"model.merges", R"(["a b", "a  b"])", {"model.merges[1]: \"a  b\"", "accepted: \"a b\" with exactly one space"}},
      {"model.merges", R"([["a"]])", {"model.merges[0]: [\"a\"]", "accepted:"}},
      {"model.merges", R"([["a", 1]])", {"model.merges[0]", "accepted:"}},
      {"model.merges", "{}", {"model.merges: {}", "accepted: an array"}},
      {"model.dropout", "0.1", {"model.dropout: 0.1", "accepted: null or 0"}},
      {"model.unk_token", R"("<u>")", {"model.unk_token: \"<u>\"", "accepted: null or a token of model.vocab"}},
      {"model.byte_fallback", "1", {"model.byte_fallback: 1 is of type integer", "accepted: true or false"}},
      {"model", "[]", {"model: []", "accepted: an object"}},
      {"normalizer",
       R"({"type": "BertNormalizer"})",
       {"normalizer.type: \"BertNormalizer\" is not supported", "accepted: NFC"}},
      {"normalizer", R"({"type": "Precompiled"})", {"normalizer.precompiled_charsmap: missing", "accepted: a string"}},
      {"normalizer",
       R"({"type": "Precompiled", "precompiled_charsmap": "a-b"})",
       {"normalizer.precompiled_charsmap: \"a-b\"", "accepted: base64"}},
      {"normalizer",
       R"({"type": "Precompiled", "precompiled_charsmap": "AAA="})",
       {"normalizer.precompiled_charsmap", "2 bytes; accepted: 4 or more"}},
      {"normalizer",
       R"({"type": "Precompiled", "precompiled_charsmap": "CAAAAAAAAAA="})",
       {"normalizer.precompiled_charsmap", "a trie of 8 bytes where 4 follow"}},
      {"normalizer", R"({"a": 1})", {"normalizer.type: missing", "accepted: a string"}},
      {"normalizer",
       R"({"type": "Replace", "pattern": {}, "content": ""})",
       {"normalizer.pattern: {}", "accepted: {\"String\""}},
      {"normalizer",
       R"({"type": "Replace", "pattern": {"String": ""}, "content": ""})",
       {"normalizer.pattern.String", "not empty"}},
      {"pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "(a"}, "behavior": "Isolated"})",
       {"pre_tokenizer.pattern.Regex: \"(a\"", "does not compile", "parenthesis"}},
      {"pre_tokenizer",
       R"({"type": "Split", "pattern": {"Regex": "[a&&b]"}, "behavior": "Isolated"})",
       {"pre_tokenizer.pattern.Regex", "class intersection"}},
      {"pre_tokenizer",
       R"({"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"String": "a"}, "behavior": "isolated"}]})",
       {"pre_tokenizer.pretokenizers[0].behavior: \"isolated\"", "accepted: Removed, Isolated"}},
      {"pre_tokenizer", R"({"type": "UnicodeScripts"})", {"pre_tokenizer.type: \"UnicodeScripts\"", "accepted: Split"}},
      {"pre_tokenizer",
       R"({"type": "Metaspace", "replacement": "ab"})",
       {"pre_tokenizer.replacement: \"ab\"", "exactly one character"}},
      {"decoder", R"({"type": "WordPiece"})", {"decoder.type: \"WordPiece\"", "accepted: ByteLevel"}},
      {"decoder",
       R"({"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]})",
       {"decoder.decoders[1].type: \"ByteFallback\"", "behind Fuse"}},
      {"decoder", R"({"type": "Strip", "content": " ", "start": -1})", {"decoder.start: -1", "accepted: 0 or more"}},
      {"post_processor",
       R"({"type": "PairProcessing"})",
       {"post_processor.type: \"PairProcessing\"", "accepted: TemplateProcessing"}},
      {"post_processor",
       R"({"type": "BertProcessing", "cls": ["a"]})",
       {"post_processor.cls: [\"a\"]", "accepted: [token, id]"}},
      {"post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<q>"}}, {"Sequence": {}}]})",
       {"post_processor.special_tokens.<q>.ids: missing", "accepted: an array"}},
      {"post_processor",
       R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "q"}}, {"Sequence": {}}], "special_tokens": {"q": {"ids": [77]}}})",
       {"post_processor", "id 77 has no token"}},
      {"added_tokens", R"([{"id": 9}])", {"added_tokens[0].content: missing", "accepted: a string"}},
      {"added_tokens", R"([{"id": -3, "content": "x"}])", {"added_tokens[0].id: -3", "accepted: an id from 0"}},
      {"added_tokens", R"([{"id": 1, "content": "x"}])", {"added_tokens[0]", "has this id for token \"b\""}},
      {"added_tokens", R"([{"id": 9, "content": "a"}])", {"added_tokens[0]", "has this token with id 0"}},
      {"added_tokens",
       R"([{"id": 9, "content": "x"}, {"id": 9, "content": "y"}])",
       {"added_tokens[1]", "id appears twice"}},
      {"added_tokens",
       R"([{"id": 9, "content": "x"}, {"id": 8, "content": "x"}])",
       {"added_tokens[1]", "content appears twice"}},
      {"added_tokens", R"({"id": 9})", {"added_tokens: {\"id\": 9}", "accepted: an array"}},
  };
  for (const BadFile& bad : files) {
    const Status status = load(with(bad.key, bad.value));
    ASSERT_FALSE(status.ok()) << bad.key << " = " << bad.value;
    EXPECT_THAT(status.message(), HasSubstr("tokenizer.json: ")) << bad.value;
    for (const char* part : bad.message) EXPECT_THAT(status.message(), HasSubstr(part)) << bad.value;
  }
}

TEST(TokenizerErrors, DocumentsThatAreNoTokenizer) {
  EXPECT_THAT(load("[]").message(), HasSubstr("accepted: an object"));
  EXPECT_THAT(load("{}").message(), HasSubstr("model: missing"));
  EXPECT_THAT(load(R"({"model": {"type": "BPE"}})").message(), HasSubstr("model.vocab: missing"));
  EXPECT_THAT(load(R"({"model": {"type": "BPE", "vocab": {}}})").message(), HasSubstr("model.merges: missing"));
  EXPECT_THAT(load(R"({"model": {}})").message(), HasSubstr("model.type: missing"));
  const std::string whole = with("version", "1");
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_THAT(load(whole.substr(0, length)).message(), HasSubstr("tokenizer.json is not valid JSON")) << length;
  }
  EXPECT_THAT(Tokenizer::load("/nonexistent/tokenizer.json").status().message(),
              HasSubstr("/nonexistent/tokenizer.json"));
}

TEST(TokenizerErrors, APointerOfGitLfsIsNamed) {
  for (const std::string file : {"tokenizer.json", "tokenizer.model"}) {
    const ScratchDir dir;
    dir.write(file, "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 10\n");
    EXPECT_THAT(Tokenizer::load(dir.path()).status().message(),
                AllOf(HasSubstr(dir.path() + "/" + file + " is a pointer of Git LFS"), HasSubstr("git lfs pull")));
  }
}

TEST(TokenizerErrors, DeepNestingIsAnError) {
  for (const auto& [key, list] : {std::pair{"normalizer", "normalizers"}, std::pair{"pre_tokenizer", "pretokenizers"},
                                  std::pair{"decoder", "decoders"}, std::pair{"post_processor", "processors"}}) {
    std::string value = "[]";
    for (int i = 0; i < 100; ++i) value = std::string(R"([{"type": "Sequence", ")") + list + "\": " + value + "}]";
    value = value.substr(1, value.size() - 2);
    EXPECT_THAT(load(with(key, value)).message(), HasSubstr("nested deeper than 16")) << key;
  }
  EXPECT_FALSE(load("{\"model\": " + std::string(100'000, '[')).ok());
}

TEST(TokenizerConfig, ReadsEveryFormOfEachField) {
  const ScratchDir directory;
  EXPECT_TRUE(TokenizerConfig::load(directory.path())->chat_templates.empty());
  directory.write("tokenizer_config.json", R"({"bos_token": {"content": "<s>", "lstrip": false}, "eos_token": "</s>",
    "pad_token": null, "add_bos_token": true, "model_max_length": 1000000000000000019884624838656,
    "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}]})");
  const TokenizerConfig config = *TokenizerConfig::load(directory.path());
  EXPECT_EQ(config.bos_token, "<s>");
  EXPECT_EQ(config.eos_token, "</s>");
  EXPECT_EQ(config.pad_token, "");
  EXPECT_EQ(config.add_bos_token, true);
  EXPECT_EQ(config.add_eos_token, std::nullopt);
  EXPECT_EQ(*config.find_template(), "D");
  EXPECT_EQ(*config.find_template("tool_use"), "T");
  EXPECT_EQ(config.find_template("rag"), nullptr);
  directory.write("chat_template.json", R"({"chat_template": "P"})");
  EXPECT_EQ(*TokenizerConfig::load(directory.path())->find_template(), "P");
  EXPECT_EQ(*TokenizerConfig::load(directory.path())->find_template("tool_use"), "T");
  directory.write("chat_template.jinja", "J");
  EXPECT_EQ(*TokenizerConfig::load(directory.path())->find_template(), "J");
  EXPECT_EQ(*TokenizerConfig::load(directory.path())->find_template("tool_use"), "T");
}

TEST(TokenizerConfig, ErrorsNameTheField) {
  const ScratchDir directory;
  const std::pair<const char*, const char*> files[] = {
      {R"({"bos_token": 1})", "bos_token: 1: accepted: a string"},
      {R"({"eos_token": {}})", "eos_token.content: missing"},
      {R"({"add_bos_token": "yes"})", "add_bos_token: \"yes\" is of type string; accepted: true or false"},
      {R"({"chat_template": 5})", "chat_template: 5: accepted: a string, or an array"},
      {R"({"chat_template": [{"name": "x"}]})", "chat_template[0].template: missing"},
      {"[]", "accepted: an object"},
      {"{", "is not valid JSON"},
  };
  for (const auto& [text, message] : files) {
    directory.write("tokenizer_config.json", text);
    EXPECT_THAT(TokenizerConfig::load(directory.path()).status().message(),
                AllOf(HasSubstr("tokenizer_config.json"), HasSubstr(message)));
  }
  directory.write("tokenizer_config.json", "{}");
  directory.write("chat_template.json", R"({"chat_template": 5})");
  EXPECT_THAT(TokenizerConfig::load(directory.path()).status().message(),
              HasSubstr("chat_template.json: chat_template: 5: accepted: a string, or an array"));
}

}  // namespace
}  // namespace tessera
