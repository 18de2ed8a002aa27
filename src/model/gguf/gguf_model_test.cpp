// Catches: a model that is split into several GGUF files, but is opened without some of them or with files of another
// model; a path that is resolved to the wrong file.
#include "tessera/model/gguf/gguf_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/gguf/gguf_test_util.h"
#include "tessera/model/gguf/gguf_texts.h"
#include "tessera/model/gguf/stored_form.h"

namespace tessera {
namespace {

using test::GgufBytes;
using test::ScratchDir;
using ::testing::HasSubstr;

// Returns a member of a split set, with one tensor of four numbers.
std::string member(std::uint32_t no, std::uint32_t count, const std::string& tensor, std::uint32_t total) {
  return GgufBytes()
      .start(1, 3)
      .pair("split.no", no)
      .pair("split.count", count)
      .pair("split.tensors.count", total)
      .tensor(tensor, {4}, BlockType::kF32, 0)
      .pad()
      .zeros(16)
      .string();
}

std::string single() { return GgufBytes().start(1, 0).tensor("x", {4}, BlockType::kF32, 0).pad().zeros(16).string(); }

void write_set(const ScratchDir& dir) {
  dir.write("m-00001-of-00002.gguf", member(0, 2, "x", 2));
  dir.write("m-00002-of-00002.gguf", member(1, 2, "y", 2));
}

void expect_error(const Status& status, StatusCode code, const std::string& text) {
  EXPECT_EQ(status.code(), code) << status.message();
  EXPECT_THAT(status.message(), HasSubstr(text));
}

TEST(GgufModel, AnyMemberOpensTheWholeSet) {
  const ScratchDir dir;
  write_set(dir);
  for (const char* name : {"/m-00001-of-00002.gguf", "/m-00002-of-00002.gguf"}) {
    const auto model = GgufModel::open(dir.path() + name);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->path(), dir.path() + "/m-00001-of-00002.gguf");
    EXPECT_NE(model->find_tensor("x"), nullptr);
    EXPECT_NE(model->find_tensor("y"), nullptr);
    EXPECT_EQ(model->find_tensor("z"), nullptr);
  }
}

TEST(GgufModel, SetsThatDoNotFitAreErrors) {
  const ScratchDir dir;
  const std::string path = dir.path() + "/m-00001-of-00002.gguf";
  dir.write("m-00001-of-00002.gguf", member(0, 2, "x", 2));
  expect_error(GgufModel::open(path).status(), StatusCode::kNotFound, "file 2 of 2 is missing");
  dir.write("m-00002-of-00002.gguf", member(0, 2, "y", 2));
  expect_error(GgufModel::open(path).status(), StatusCode::kDataLoss,
               "split.no is 0 and split.count 2; accepted: 1 and 2");
  dir.write("m-00002-of-00002.gguf", member(1, 3, "y", 2));
  expect_error(GgufModel::open(path).status(), StatusCode::kDataLoss, "split.count 3");
  dir.write("m-00002-of-00002.gguf", single());
  expect_error(GgufModel::open(path).status(), StatusCode::kDataLoss, "split.no is missing");
  dir.write("m-00002-of-00002.gguf", member(1, 2, "x", 2));
  expect_error(GgufModel::open(path).status(), StatusCode::kDataLoss, "tensor \"x\" is in two files");
  dir.write("m-00002-of-00002.gguf", member(1, 2, "y", 3));
  expect_error(GgufModel::open(path).status(), StatusCode::kDataLoss, "split.tensors.count is 3; accepted: 2");
}

TEST(GgufModel, RenamedMemberIsAnError) {
  const ScratchDir dir;
  dir.write("m.gguf", member(0, 2, "x", 2));
  expect_error(GgufModel::open(dir.path() + "/m.gguf").status(), StatusCode::kDataLoss,
               "accepted: a name that ends in -00001-of-00002.gguf");
}

TEST(GgufModel, ValuesOfOtherTypesAreErrors) {
  const std::string bytes = GgufBytes()
                                .start(0, 4)
                                .pair("text", "abc")
                                .pair("number", 7)
                                .list("equal", GgufType::kInt32, 2)
                                .put<std::int32_t>(5)
                                .put<std::int32_t>(5)
                                .list("mixed", GgufType::kInt32, 2)
                                .put<std::int32_t>(5)
                                .put<std::int32_t>(6)
                                .string();
  const GgufModel model = GgufModel::of(*GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf"));
  EXPECT_EQ(*model.integer("number"), 7);
  EXPECT_EQ(*model.integer("equal"), 5);
  EXPECT_EQ(*model.string("text"), "abc");
  EXPECT_EQ(*model.optional_number("number"), 7.0);
  EXPECT_EQ(*model.optional_integer("absent"), std::nullopt);
  expect_error(model.integer("absent").status(), StatusCode::kInvalidArgument,
               "m.gguf: metadata absent is missing; accepted: an integer");
  expect_error(model.integer("mixed").status(), StatusCode::kInvalidArgument, "metadata mixed is 2 of INT32");
  expect_error(model.integer("text").status(), StatusCode::kInvalidArgument, "metadata text is \"abc\"");
  expect_error(model.string("number").status(), StatusCode::kInvalidArgument, "accepted: a string");
}

TEST(GgufModel, OverridesReplaceAndAddMetadata) {
  const ScratchDir dir;
  const std::string path =
      dir.write("m.gguf", GgufBytes().start(0, 2).pair("text", "abc").pair("number", 7).pad().string());
  GgufOptions options;
  for (const char* text : {"number=int:8", "text=str:a:b=c", "rate=float:0.5", "flag=bool:true"})
    options.overrides.push_back(*GgufOverride::parse(text));
  const auto model = GgufModel::open(path, options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const GgufModel copy = *model;
  EXPECT_EQ(*copy.integer("number"), 8);
  EXPECT_EQ(*copy.string("text"), "a:b=c");
  EXPECT_EQ(*copy.optional_number("rate"), 0.5);
  EXPECT_EQ(*copy.optional_boolean("flag"), true);
  EXPECT_EQ(*GgufModel::open(path)->integer("number"), 7);
}

TEST(GgufModel, MalformedOverridesAreErrors) {
  for (const auto& [text, accepted] :
       {std::pair("number", "KEY=TYPE:VALUE"), std::pair("=int:1", "KEY=TYPE:VALUE"),
        std::pair("a=1", "KEY=TYPE:VALUE"), std::pair("a=long:1", "with the TYPE int, float, bool or str"),
        std::pair("a=int:1.5", "an integer behind int:"), std::pair("a=int:", "an integer"),
        std::pair("a=float:nan", "a finite number"), std::pair("a=bool:1", "true or false behind bool:")})
    expect_error(GgufOverride::parse(text).status(), StatusCode::kInvalidArgument, accepted);
}

TEST(GgufTokenLists, NoneInAFileIsNotFound) {
  const auto lists_of = [](GgufBytes& bytes) {
    const std::string file = bytes.string();
    return gguf_token_lists(GgufModel::of(*GgufFile::parse(std::as_bytes(std::span(file)), "m.gguf"))).status();
  };
  expect_error(lists_of(GgufBytes().start(0, 0)), StatusCode::kNotFound, "there is no tokenizer.ggml.model");
  expect_error(lists_of(GgufBytes().start(0, 1).pair("tokenizer.ggml.model", "none")), StatusCode::kNotFound,
               "tokenizer.ggml.model is none");
}

TEST(GgufTokenizerConfig, TemplatesWithOneNameAreAnError) {
  const std::string bytes = GgufBytes()
                                .start(0, 2)
                                .pair("tokenizer.chat_template.tools", "{{ messages }}")
                                .list("tokenizer.chat_templates", GgufType::kString, 2)
                                .text("tools")
                                .text("tools")
                                .string();
  expect_error(
      gguf_tokenizer_config(GgufModel::of(*GgufFile::parse(std::as_bytes(std::span(bytes)), "m.gguf"))).status(),
      StatusCode::kInvalidArgument, "m.gguf: tokenizer.chat_templates has \"tools\" twice; accepted: each name once");
}

TEST(FindGguf, FolderStandsForItsOneModel) {
  const ScratchDir dir;
  EXPECT_EQ(*find_gguf(dir.path()), std::nullopt);
  write_set(dir);
  dir.write("mmproj-F16.gguf", "");
  dir.write("config.json", "{}");
  EXPECT_EQ(*find_gguf(dir.path()), dir.path() + "/m-00001-of-00002.gguf");
  EXPECT_EQ(*find_gguf(dir.path() + "/other.gguf"), dir.path() + "/other.gguf");
  EXPECT_EQ(*find_gguf(dir.path() + "/config.json"), std::nullopt);
  dir.write("n.gguf", "");
  expect_error(find_gguf(dir.path()).status(), StatusCode::kInvalidArgument, "m-00001-of-00002.gguf, n.gguf");
  dir.write("model.safetensors", "");
  EXPECT_EQ(*find_gguf(dir.path()), std::nullopt);
}

// Tensors of integers are not weights, so no code converts their elements to floats. The same holds for F64.
TEST(GgufModel, TensorsOfIntegersOrDoublesAreNoWeights) {
  GgufTensor tensor;
  tensor.name = "v.blk.0.attn_q.weight";
  for (const BlockType type : {BlockType::kI8, BlockType::kI32, BlockType::kI64, BlockType::kF64}) {
    tensor.type = type;
    EXPECT_EQ(check_readable("a.gguf", tensor).code(), StatusCode::kUnimplemented);
  }
}

}  // namespace
}  // namespace tessera
