// Catches: a model that cannot draft for another model but is accepted; a draft that may propose ids that the target
// does not have.
#include "tessera/model/families/draft_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/testing/paths.h"
#include "tessera/base/testing/scratch_dir.h"

namespace tessera {
namespace {

using ::testing::HasSubstr;

// Reads the folder as a draft for a model with 512 ids.
Result<DraftModel> read_draft(const std::string& folder, bool reads_weights = true) {
  const ModelConfig target = *ModelConfig::read(testing::data_path("goldens/llama"), built_in_families());
  return read_draft_model(folder, target, built_in_families(), reads_weights);
}

TEST(DraftModel, DenseFamiliesAreAccepted) {
  for (const char* golden : {"llama", "qwen2", "qwen3", "olmo2", "phi3", "llama-yarn"}) {
    const Result<DraftModel> draft = read_draft(testing::data_path(std::string("goldens/") + golden));
    ASSERT_TRUE(draft.ok()) << draft.status().to_string();
    EXPECT_EQ(draft->ids, 512) << golden;
    EXPECT_NE(draft->checkpoint, nullptr) << golden;
  }
}

TEST(DraftModel, OnlyIdsOfBothVocabulariesAreDrafted) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(testing::data_path("goldens/llama/config.json"));
  for (const std::int64_t size : {320, 640}) {
    config.set("vocab_size", Json(size));
    folder.write("config.json", config.dump());
    const Result<DraftModel> draft = read_draft(folder.path(), false);
    ASSERT_TRUE(draft.ok()) << draft.status().to_string();
    EXPECT_EQ(draft->ids, std::min<std::int64_t>(size, 512));
    EXPECT_EQ(draft->checkpoint, nullptr);
  }
}

TEST(DraftModel, MistralIsAcceptedWithoutItsWindow) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(testing::data_path("goldens/mistral-swa/config.json"));
  folder.write("config.json", config.dump());
  EXPECT_THAT(read_draft(folder.path(), false).status().message(), HasSubstr("it has sliding windows"));
  Json::Object members;
  for (const auto& member : config.as_object())
    if (member.first != "layer_types" && member.first != "sliding_window") members.push_back(member);
  config = Json::object(std::move(members));
  config.set("sliding_window", Json());
  folder.write("config.json", config.dump());
  const Result<DraftModel> draft = read_draft(folder.path(), false);
  EXPECT_TRUE(draft.ok()) << draft.status().to_string();
}

TEST(DraftModel, AFolderWithoutWeightsIsRefused) {
  const test::ScratchDir folder;
  folder.write("config.json", Json::read_file(testing::data_path("goldens/llama/config.json"))->dump());
  EXPECT_EQ(read_draft(folder.path()).status().code(), StatusCode::kNotFound);
}

}  // namespace
}  // namespace tessera
