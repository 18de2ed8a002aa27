// Catches: a digest that differs from the hub's; a needed file that is not downloaded; an unneeded file that is
// downloaded; an answer of the hub that makes files appear outside of their folder.
#include "tessera/model/hub/hub_listing.h"

#include "tessera/model/hub/hub_digest.h"
#include "tessera/model/test_support.h"

namespace tessera {
namespace {

using test::expect_error;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::string kSha1(40, 'a');
const std::string kSha256(64, 'b');

std::string listing_of(const std::vector<std::string>& names) {
  std::string text = R"({"sha": ")" + kSha1 + R"(", "siblings": [)";
  for (const std::string& name : names) {
    text += (text.ends_with('[') ? "" : ", ") + std::string(R"({"rfilename": ")") + name +
            R"(", "size": 3, "blobId": ")" + kSha1 + R"("})";
  }
  return text + "]}";
}

HubListing parsed(const std::vector<std::string>& names) {
  Result<HubListing> listing = parse_hub_listing(listing_of(names), "hub");
  EXPECT_TRUE(listing.ok()) << listing.status().message();
  return *listing;
}

std::vector<std::string> names_of(const std::vector<HubFile>& files) {
  std::vector<std::string> names;
  for (const HubFile& file : files) names.push_back(file.name);
  return names;
}

TEST(HubDigest, IsTheHubs) {
  Digest sha256 = *Digest::sha256();
  sha256.add("a");
  sha256.add("bc");
  EXPECT_EQ(*sha256.finish(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  Digest git = *Digest::git_blob(6);
  git.add("hello\n");
  EXPECT_EQ(*git.finish(), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(*Digest::git_blob(0)->finish(), "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391");
}

TEST(HubListing, ReadsBothKindsOfFile) {
  const Result<HubListing> listing = parse_hub_listing(R"({"id": "org/name", "sha": ")" + kSha1 + R"(", "siblings": [
        {"rfilename": "config.json", "size": 7, "blobId": ")" +
                                                           kSha1 + R"("},
        {"rfilename": "model.safetensors", "size": 9000000000, "blobId": "x",
         "lfs": {"sha256": ")" + kSha256 + R"(", "size": 9000000000, "pointerSize": 135}},
        {"rfilename": "onnx/model.onnx"}]})",
                                                       "hub");
  ASSERT_TRUE(listing.ok()) << listing.status().message();
  EXPECT_EQ(listing->commit, kSha1);
  ASSERT_THAT(names_of(listing->files), ElementsAre("config.json", "model.safetensors"));
  const HubFile& weights = *listing->find("model.safetensors");
  EXPECT_TRUE(weights.is_lfs);
  EXPECT_EQ(weights.digest, kSha256);
  EXPECT_EQ(weights.size, 9000000000);
  EXPECT_EQ(listing->find("config.json")->digest, kSha1);
  EXPECT_EQ(listing->find("absent"), nullptr);
}

TEST(HubListing, ChoosesWhatAnEngineReads) {
  const HubListing mistral =
      parsed({"config.json", "consolidated.safetensors", "model-00001-of-00002.safetensors",
              "model-00002-of-00002.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "README.md",
              "tokenizer.model", "chat_template.jinja", "original/params.json", "model.gguf"});
  EXPECT_THAT(names_of(small_files(mistral)),
              ElementsAre("config.json", "model.safetensors.index.json", "tokenizer.model", "chat_template.jinja"));
  EXPECT_TRUE(check_has_weights(mistral).ok());
  EXPECT_THAT(names_of(small_files(parsed({"modules.json", "1_Pooling/config.json", "2_Dense/config.json",
                                           "onnx/1_Pooling/config.json", "1_Pooling/x.json"}))),
              ElementsAre("modules.json", "1_Pooling/config.json"));
  EXPECT_THAT(names_of(*weight_files(mistral, {{"b", "model-00002-of-00002.safetensors"},
                                               {"c", "model-00002-of-00002.safetensors"},
                                               {"a", "model-00001-of-00002.safetensors"}})),
              ElementsAre("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
  expect_error(weight_files(mistral, {{"a", "gone.safetensors"}}), StatusCode::kDataLoss, {"gone.safetensors"});

  const HubListing both = parsed({"model.safetensors", "model-00001-of-00001.safetensors"});
  EXPECT_THAT(names_of(*weight_files(both, {})), ElementsAre("model.safetensors"));
  const HubListing shards = parsed({"model-00001-of-00001.safetensors", "adapter.safetensors"});
  EXPECT_TRUE(check_has_weights(shards).ok());
  EXPECT_THAT(names_of(*weight_files(shards, {})), ElementsAre("model-00001-of-00001.safetensors"));
}

TEST(HubListing, KeepsGgufFilesOfSubfolders) {
  EXPECT_THAT(
      names_of(parsed({"BF16/m-BF16-00001-of-00002.gguf", "BF16/config.json", "a/b/m.gguf", "README.md"}).files),
      ElementsAre("BF16/m-BF16-00001-of-00002.gguf", "a/b/m.gguf", "README.md"));
}

TEST(HubListing, NamesTheWeightFormatsThatExistInstead) {
  expect_error(check_has_weights(parsed({"config.json", "pytorch_model.bin", "model.gguf"})), StatusCode::kNotFound,
               {"pytorch_model.bin, model.gguf", "model.safetensors"});
  expect_error(check_has_weights(parsed({"config.json"})), StatusCode::kNotFound, {"no weights"});
}

TEST(HubListing, RefusesNamesThatLeaveTheFolder) {
  for (const char* name : {"../x.json", "/etc/x.json", "a/../../x.json", "..", "", "a//b", "./x.json", "x\\\\y.json",
                           "x\\u0000.json", "x\\n.json"})
    expect_error(parse_hub_listing(listing_of({"config.json", name}), "hub"), StatusCode::kDataLoss,
                 {"hub: the file name"});
}

TEST(HubListing, RefusesMalformedListings) {
  const auto file = [](const std::string& members) {
    return R"({"sha": ")" + kSha1 + R"(", "siblings": [{"rfilename": "f")" + members + "}]}";
  };
  struct Case {
    std::string text;
    std::string part;
  };
  for (const Case& c :
       std::vector<Case>{{"<html>", "JSON"},
                         {"[]", "no model of a hub"},
                         {R"({"sha": "../x", "siblings": []})", "no model of a hub"},
                         {R"({"sha": ")" + kSha1 + R"("})", "no model of a hub"},
                         {R"({"sha": ")" + kSha1 + R"(", "siblings": [1]})", "file name missing"},
                         {file(""), "size of \"f\" is missing"},
                         {file(R"(, "size": -1)"), "size of \"f\" is -1"},
                         {file(R"(, "size": 1)"), "\"f\" has no digest"},
                         {file(R"(, "size": 1, "blobId": "../../x")"), "blobId is \"../../x\""},
                         {file(R"(, "size": 1, "blobId": ")" + kSha256 + R"(")"), "\"f\" has no digest"},
                         {file(R"(, "lfs": {"size": 1, "sha256": ")" + kSha1 + R"("})"), "\"f\" has no digest"}})
    expect_error(parse_hub_listing(c.text, "hub"), StatusCode::kDataLoss, {c.part});
}

}  // namespace
}  // namespace tessera
