// Catches: an EAGLE-3 draft that is broken or belongs to another model but is not refused at once; a refusal with an
// unclear error.
#include "tessera/model/families/eagle3.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tessera/base/testing/paths.h"
#include "tessera/base/testing/scratch_dir.h"
#include "tessera/model/weights/safetensors.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ModelConfig target() { return *ModelConfig::read(testing::data_path("goldens/llama"), built_in_families()); }

std::string golden_draft() { return testing::data_path("drafts/llama-eagle3"); }

// Reads the golden draft with a changed config.json, in which `changes` replace the members of the same names.
Status read_with(const Json::Object& changes, const ModelConfig& model = target(), bool reads_weights = false) {
  const test::ScratchDir folder;
  Json config = *Json::read_file(golden_draft() + "/config.json");
  for (const auto& [key, value] : changes) {
    Json::Object members;
    for (const auto& member : config.as_object())
      if (member.first != key) members.push_back(member);
    config = Json::object(std::move(members));
    config.set(key, value);
  }
  folder.write("config.json", config.dump());
  std::filesystem::copy(golden_draft() + "/model.safetensors", folder.path() + "/model.safetensors");
  return read_eagle3(folder.path(), model, built_in_families(), reads_weights).status();
}

TEST(Eagle3, ReadsSizesIdsAndLayers) {
  const Result<EagleDraft> draft = read_eagle3(golden_draft(), target(), built_in_families(), true);
  ASSERT_TRUE(draft.ok()) << draft.status().to_string();
  EXPECT_THAT(draft->aux_layers, ElementsAre(0, 1, 2)) << "2, 3 / 2 and 3 - 3 of three layers";
  EXPECT_EQ(draft->vocab_size, 320);
  EXPECT_EQ(draft->target_ids.size(), 320);
  EXPECT_FALSE(draft->own_embedding);
  EXPECT_EQ(draft->config.num_hidden_layers, target().num_hidden_layers + 1);
}

TEST(Eagle3, LayersOfTheConfigAreThoseBeforeThem) {
  Json layers = *Json::parse(R"({"eagle_aux_hidden_state_layer_ids": [1, -1, 0]})", "test");
  const Status status = read_with({{"eagle_config", layers}});
  EXPECT_TRUE(status.ok()) << status.to_string();
  layers = *Json::parse(R"({"eagle_aux_hidden_state_layer_ids": [0, 1, 2]})", "test");
  EXPECT_THAT(read_with({{"eagle_config", layers}}).message(),
              HasSubstr("the draft joins the inputs of the layers 1, 2, 3, but the target has 3 layers"));
  layers = *Json::parse(R"({"eagle_aux_hidden_state_layer_ids": [1, 1, 0]})", "test");
  EXPECT_THAT(read_with({{"eagle_config", layers}}).message(), HasSubstr("three different ones"));
}

TEST(Eagle3, DraftsOfOtherModelsAreRefusedByName) {
  EXPECT_THAT(read_with({{"hidden_size", Json(std::int64_t{128})}}).message(),
              HasSubstr("hidden_size is 128, but the model has 64; the draft was made for another model"));
  EXPECT_THAT(read_with({{"vocab_size", Json(std::int64_t{600})}}).message(), HasSubstr("vocab_size is 600"));
  EXPECT_THAT(read_with({{"num_hidden_layers", Json(std::int64_t{2})}}).message(), HasSubstr("num_hidden_layers is 2"));
  EXPECT_THAT(read_with({{"draft_vocab_size", Json(std::int64_t{513})}}).message(),
              HasSubstr("draft_vocab_size is 513; 1 to 512 is accepted"));
  EXPECT_THAT(read_with({{"architectures", *Json::parse(R"(["EagleLlamaForCausalLM"])", "test")}}).message(),
              HasSubstr("a draft of architecture \"EagleLlamaForCausalLM\""));
}

TEST(Eagle3, BrokenTensorsAreRefusedBeforeWeightsAreRead) {
  EXPECT_THAT(read_with({{"draft_vocab_size", Json(std::int64_t{319})}}, target(), true).message(), HasSubstr("d2t"));
  const test::ScratchDir folder;
  std::filesystem::copy(golden_draft() + "/config.json", folder.path() + "/config.json");
  const auto read = [&] { return read_eagle3(folder.path(), target(), built_in_families(), true).status(); };
  std::string bytes;
  {
    std::ifstream file(golden_draft() + "/model.safetensors", std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(file), {});
  }
  const auto write = [&](const std::string& changed) { folder.write("model.safetensors", changed); };
  std::string without = bytes;
  without.replace(without.find("\"fc.weight\""), 11, "\"fd.weight\"");
  write(without);
  EXPECT_THAT(read().message(), HasSubstr("fc.weight"));
  without = bytes;
  without.replace(without.find("\"d2t\""), 5, "\"d2u\"");
  write(without);
  EXPECT_THAT(read().message(), HasSubstr("d2t is missing, and the head has 320 of the model's 512 ids"));
  const SafetensorsFile file = *SafetensorsFile::open(golden_draft() + "/model.safetensors");
  const std::string d2t(reinterpret_cast<const char*>(file.find("d2t")->data.data()), 320 * 8);
  std::string wrong = bytes;
  wrong[wrong.find(d2t) + 8] = '\x7f';
  wrong[wrong.find(d2t.substr(16)) - 7] = '\x7f';
  write(wrong);
  EXPECT_THAT(read().message(), HasSubstr("d2t[1] is 32639; the resulting id is outside the model's 512 ids"));
}

}  // namespace
}  // namespace tessera
